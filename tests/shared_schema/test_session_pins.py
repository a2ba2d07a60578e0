"""Every kind of session has the pins, for a role and a database whose own settings are as far from them as possible."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from applier.catalog.database import Database, connect
from applier.catalog.install import install_catalog
from applier.plan.stream_table import PostgresQuery, StreamTable
from applier.refresh.computing.pinned_snapshot import PinnedSnapshots, _connect_replication
from applier.sinks.postgres.transaction import prepare_write_session
from applier.sinks.staging.staging import _Copier
from applier.sql.plan_query import plan_query
from cdc_consumer.wal import catalog
from cdc_consumer.wal.session import ReplicationSession
from deploy.demo.shop import open_shop
from shared_schema.session_pins import PINS, TRANSACTION_TIMEOUT_SINCE, UNLIMITED
from shared_schema.table_schema import TableId

Connection = psycopg.Connection[Any]
Show = Callable[[str], str]

HOSTILE = {
    "search_path": "evil, pg_catalog",
    "datestyle": "German, DMY",
    "intervalstyle": "sql_standard",
    "timezone": "Asia/Kathmandu",
    "extra_float_digits": "-10",
    "bytea_output": "escape",
    "standard_conforming_strings": "off",
    "transform_null_equals": "on",
    "client_encoding": "LATIN1",
}
SHORT = "98765ms"
EVIL = """
CREATE SCHEMA evil;
CREATE FUNCTION evil.lower(text) RETURNS text LANGUAGE sql IMMUTABLE AS 'SELECT ''evil''::text';
CREATE FUNCTION evil.format_type(oid, int) RETURNS text LANGUAGE sql STABLE AS 'SELECT ''evil''::text';
CREATE FUNCTION evil.nothing(int, int) RETURNS bool LANGUAGE sql IMMUTABLE AS 'SELECT false';
CREATE OPERATOR evil.= (LEFTARG = int, RIGHTARG = int, FUNCTION = evil.nothing);
CREATE TABLE evil.pg_class (oid int);
"""


@pytest.fixture
def hostile(database: str) -> Iterator[str]:
    """The URL of a database, for a role with hostile settings. Half of them are the role's, half the database's."""
    name, password = f"hostile_{secrets.token_hex(4)}", "hush"
    role = sql.Identifier(name)
    with psycopg.connect(database, autocommit=True) as admin:
        install_catalog(admin)
        admin.execute(EVIL.encode())
        admin.execute(sql.SQL("CREATE ROLE {} LOGIN SUPERUSER REPLICATION PASSWORD {}").format(role, password))
        own = sql.Identifier(admin.info.dbname)
        for number, (setting, value) in enumerate({**HOSTILE, **dict.fromkeys(_limits(admin), SHORT)}.items()):
            values = sql.SQL(value) if setting == "search_path" else sql.Literal(value)
            what = sql.SQL("ROLE {}").format(role) if number % 2 else sql.SQL("DATABASE {}").format(own)
            admin.execute(sql.SQL("ALTER {} SET {} = {}").format(what, sql.SQL(setting), values))
        yield make_conninfo(database, user=name, password=password)
        admin.execute(sql.SQL("DROP OWNED BY {0} CASCADE; DROP ROLE {0}").format(role))


def _limits(connection: Connection) -> list[str]:
    is_known = connection.info.server_version >= TRANSACTION_TIMEOUT_SINCE
    return [*UNLIMITED, *(["transaction_timeout"] if is_known else [])]


def _show(connection: Connection) -> Show:
    def show(name: str) -> str:
        found = connection.pgconn.exec_(f"SHOW {name}".encode()).get_value(0, 0)
        return (found or b"").decode()

    return show


@contextmanager
def _shown(connection: Connection) -> Iterator[Show]:
    with connection:
        yield _show(connection)


@contextmanager
def _replication(url: str) -> Iterator[Show]:
    with ReplicationSession(url, sender_timeout_s=7) as session:
        assert session.command("SHOW wal_sender_timeout") == ("7s",)
        yield lambda name: str(session.command(f"SHOW {name}")[0])


@contextmanager
def _snapshot(url: str) -> Iterator[Show]:
    with PinnedSnapshots(url).pin() as (reader, _):
        yield _show(reader)


def _staging(url: str) -> Connection:
    table = StreamTable(1, TableId("public", "t"), 1, (), PostgresQuery("SELECT", frozenset(), True, ""))
    return _Copier(url, table, 1, "")._connect()


SESSIONS: dict[str, Callable[[str], AbstractContextManager[Show]]] = {
    "the consumer's catalog, copies and buffer tables": lambda url: _shown(catalog.connect(url)),
    "the consumer's stream": _replication,
    "the applier's catalog, planning and checks": lambda url: _shown(connect(url)),
    "the applier's executors": lambda url: _shown(_staging(url)),
    "the applier's slot for a snapshot": lambda url: _shown(_connect_replication(url)),
    "full results in PostgreSQL": _snapshot,
}


@pytest.mark.parametrize("kind", SESSIONS)
def test_a_session_has_the_pins(hostile: str, kind: str) -> None:
    with psycopg.connect(hostile) as unpinned:
        assert {name: _show(unpinned)(name) for name in HOSTILE} == HOSTILE
        limits = _limits(unpinned)
        assert {_show(unpinned)(name) for name in limits} == {SHORT}
    with SESSIONS[kind](hostile) as show:
        assert {name: show(name) for name in PINS} == dict(PINS)
        assert {name: show(name) for name in limits} == dict.fromkeys(limits, "0")
        assert show("client_encoding") == "UTF8"


@pytest.mark.parametrize(
    ("opened", "path"),
    [
        (lambda url: Database(url, prepare_write_session(300)).connection, "evil, pg_temp"),
        (open_shop, "public"),
    ],
    ids=["writes to stream tables", "the demo"],
)
def test_a_session_that_differs_says_so(hostile: str, opened: Callable[[str], Connection], path: str) -> None:
    with opened(hostile) as connection:
        assert {name: _show(connection)(name) for name in PINS} == {**PINS, "search_path": path}
        # The built-in function is found first.
        assert connection.execute("SELECT lower('ABC'), 1 = 1").fetchone() == ("abc", True)


def test_no_path_of_our_own_leaves_the_temporary_schema_first() -> None:
    """PostgreSQL searches pg_temp before everything else where the path does not name it."""
    root = Path(__file__).parents[2]
    files = [file for program in ("applier", "cdc_consumer", "shared_schema") for file in (root / program).rglob("*.*")]
    one = r"(?:'[^']*'|[\w$]+)"
    paths = [
        (file.name, found)
        for file in files
        if file.suffix in {".py", ".sql"}
        for found in re.findall(rf"(?i)set\s(?:local\s)?search_path (?:=|TO) *({one}(?:, *{one})*)", file.read_text())
    ]
    assert len(paths) > 100
    assert [path for path in paths if path[1] != PINS["search_path"]] == []
    assert PINS["search_path"].endswith(", pg_temp")


def _written_pins() -> Iterator[tuple[str, str, str]]:
    """(file, setting, value) wherever a pin but the search path is written into a statement or an option."""
    root, names = Path(__file__).parents[2], "|".join(name for name in PINS if name != "search_path")
    text = rf"(?i)(?:\bset\s(?:local\s)?|-c )({names}) ?(?:=|TO) ?('[^']*'|[\w.]+)|\bset_config\('({names})', ('[^']*')"
    for folder in ("applier", "cdc_consumer", "shared_schema", "deploy"):
        for file in [*(root / folder).rglob("*.py"), *(root / folder).rglob("*.sql")]:
            for set_name, value, config_name, config_value in re.findall(text, file.read_text()):
                yield file.name, (set_name or config_name).lower(), (value or config_value).strip("'")


def test_every_copy_of_a_pin_has_its_value() -> None:
    """SQL functions cannot read the list: they set what their own work depends on, in the text."""
    found = list(_written_pins())
    assert {name for name, _, _ in found} >= {"create.sql", "repair.sql", "lifecycle.sql", "canary.sql"}
    assert [pin for pin in found if pin[2] != PINS[pin[1]]] == []


def test_the_analysis_pins_any_connection(hostile: str, database: str) -> None:
    query = (
        "SELECT lower(name) AS low, ts::text AS day, '2024-02-01'::date AS d, '1 day'::interval AS i"
        " FROM public.t WHERE id = 1 AND name = NULL AND x > 0.1::float8"
    )
    with psycopg.connect(database, autocommit=True) as admin:
        admin.execute("CREATE TABLE public.t (id int, name text, ts timestamptz, x float8)")
        with psycopg.connect(hostile, autocommit=True) as connection:
            assert _planned(connection, query) == _planned(admin, query)


def _planned(connection: Connection, query: str) -> str:
    return repr(plan_query(connection, query, "pg_catalog").plan)


def test_the_stored_text_of_a_query_is_printed_under_the_pins(hostile: str) -> None:
    with psycopg.connect(hostile, autocommit=True) as connection:
        # Who prints the text of a query, and who reads it again.
        for function in ("_canonical", "_analyse_again"):
            found = connection.execute(
                "SELECT pg_catalog.unnest(p.proconfig) FROM pg_catalog.pg_proc p WHERE p.proname = %s", (function,)
            ).fetchall()
            written = dict(str(line).split("=", 1) for (line,) in found)
            assert {name.lower(): value for name, value in written.items()} == dict(PINS)
        connection.execute(
            "CREATE VIEW public.v AS SELECT date '01.02.2024' AS d, interval '1-2' AS i, float8 '0.1' AS x,"
            " timestamptz '2024-02-01 00:00+00' AS t"
        )
        text = connection.execute("SELECT pgtrickle._canonical('public.v'::pg_catalog.regclass)").fetchone()
        assert text is not None
        for constant in ("'2024-02-01'::date", "'1 year 2 mons'::interval", "'2024-02-01 00:00:00+00'::", "0.1"):
            assert constant in text[0]
