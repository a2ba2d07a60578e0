"""A refusal predicts FULL mode correctly: the stream table is created, planned and filled, or not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from applier.catalog.catalog import Catalog
from applier.catalog.database import Connection, Database
from applier.catalog.install import install_catalog
from applier.catalog.stream_tables import StreamTableRow
from applier.errors import CalculationError
from applier.plan.depth import Thresholds
from applier.plan.stream_table import PostgresQuery
from applier.refresh.computing.full_in_postgres import FullInPostgres, run_query
from applier.refresh.planning.plan_stream_table import StreamTablePlanner
from applier.sinks.postgres.full_diff import FullResult, diff_with_target
from applier.sql.plan_query import plan_query
from applier.sql.refusal import Reason, Refused
from shared_schema.errors import TrickleError
from shared_schema.lsn import ORIGIN, Lsn, LsnRange
from tests.applier.sql.queries import REFUSED
from tests.applier.sql.shop import SCHEMA

ROWS = """
INSERT INTO customer (id, name, notes, score, vip, born) VALUES (2, '1', '{"a": 1}', 0.5, true, '2020-01-31');
INSERT INTO orders (id, customer_id, amount, quantity, state, delivered)
    SELECT i, i, i / 3.0, i, 'open', '2020-01-31' FROM generate_series(1, 3) i;
INSERT INTO line SELECT i, i, 's', i FROM generate_series(1, 3) i;
INSERT INTO log VALUES (1, 'open', 1), (2, 'paid', 2);
"""


_NO_LIBRARY = "server to be built with libxml"
"""The error of a server without XML support."""


@pytest.fixture
def shop(database: str) -> Iterator[Connection]:
    with psycopg.connect(database, autocommit=True) as connection:
        install_catalog(connection)
        connection.execute("CREATE SCHEMA shop")
        connection.execute("SET search_path = shop")
        connection.execute(SCHEMA)
        connection.execute(ROWS.encode())
        yield connection


def _refusal(connection: psycopg.Connection[Any], query: str) -> Refused:
    with pytest.raises(Refused) as caught:
        plan_query(connection, query, "shop")
    return caught.value


def _fill_in_full_mode(connection: Connection, definer: StreamTablePlanner, row: StreamTableRow) -> str:
    """Return an empty text when FULL mode fills the stream table, otherwise the reason why it does not."""
    try:
        table = definer(row)
        assert isinstance(table.plan, PostgresQuery)
        with connection.transaction(force_rollback=True), connection.cursor() as cursor:
            rows = run_query(connection, table, table.plan.query)
            diff_with_target(cursor, table, FullResult(LsnRange(ORIGIN, Lsn(1)), rows))
    except (psycopg.Error, TrickleError) as error:
        return "" if _NO_LIBRARY in str(error) else str(error)
    return ""


@pytest.mark.timeout(400)
def test_full_mode_accepts_what_refusals_say_it_accepts(shop: Connection, database: str) -> None:
    said = {name: _refusal(shop, query).full_in_postgres for name, query in REFUSED.items()}
    failures: dict[str, str] = {}
    for name, query in REFUSED.items():
        try:
            shop.execute("SELECT pgtrickle.create_stream_table(%s, %s, refresh_mode => 'FULL')", (f"st_{name}", query))
        except psycopg.Error as error:
            failures[name] = str(error)
    own = Database(database)
    catalog = Catalog(own)
    definer = StreamTablePlanner(own, catalog, Thresholds())
    shop.execute("SET statement_timeout = '5s'")
    for row in catalog.stream_tables.all():
        failures[row.table.name.removeprefix("st_")] = _fill_in_full_mode(shop, definer, row)
    wrong = [
        f"{name}: said {able}, but {failures[name]!r}" for name, able in said.items() if able == bool(failures[name])
    ]
    assert not wrong, "\n".join(wrong)


BY_ITSELF = """
CREATE TYPE moment AS (at timestamptz, n int);
CREATE TABLE src (id int PRIMARY KEY, at timestamptz, t text);
CREATE VIEW late AS SELECT id, t FROM src WHERE at < now();
CREATE VIEW later AS SELECT id, t FROM late;
CREATE FUNCTION doubled(int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN $1 * 2; END';
CREATE FUNCTION looked_up(int) RETURNS int LANGUAGE sql STABLE AS 'SELECT count(*)::int FROM src';
CREATE VIEW called AS SELECT id, doubled(id) AS d FROM src;
CREATE VIEW looked AS SELECT id, looked_up(id) AS d FROM src
"""

STEADY = {
    # What planning meets first is another construct: FIELDSELECT, or an order that is not decided.
    "SELECT id, row_number() OVER () AS n FROM src": (None, True),
    "SELECT id, to_char(at, 'YYYY') || concat(id, t) AS y, row_number() OVER () AS n FROM src": (None, True),
    "SELECT id, (ROW(at, id)::moment).at AS a FROM src": (None, True),
    "SELECT id, (ROW(now(), id)::moment).at AS a FROM src": (Reason.CURRENT_TIME, False),
    "SELECT id, (ROW(at, id)::moment).at AS a, CURRENT_DATE AS d FROM src": (Reason.CURRENT_TIME, False),
    "SELECT id, row_number() OVER () AS n FROM later": (Reason.CURRENT_TIME, False),
    "SELECT id, row_number() OVER () AS n FROM looked": (Reason.SESSION, False),
    "SELECT id, row_number() OVER () AS n FROM src WHERE t = current_setting('app.t', true)": (Reason.SESSION, False),
    "SELECT id, row_number() OVER () AS n FROM src TABLESAMPLE SYSTEM (50)": (Reason.VOLATILE, False),
    "SELECT id, row_number() OVER () AS n FROM called": (None, False),
    "SELECT id, t::date AS d, row_number() OVER () AS n FROM src": (None, False),
}
"""Query -> why AUTO refuses it, and whether in FULL mode its result changes only with its sources."""


def test_what_changes_by_itself_is_found_behind_any_construct(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        install_catalog(connection)
        connection.execute(BY_ITSELF.encode())
        own = Database(database)
        catalog = Catalog(own)
        planner = StreamTablePlanner(own, catalog, Thresholds())
        for mode in ("AUTO", "FULL"):
            for number, query in enumerate(STEADY):
                connection.execute(
                    "SELECT pgtrickle.create_stream_table(%s, %s, refresh_mode => %s)",
                    (f"{mode}_{number}", query, mode),
                )
        found: dict[str, list[object]] = {query: [] for query in STEADY}
        for row in catalog.stream_tables.all():
            try:
                plan = planner(row).plan
                assert isinstance(plan, PostgresQuery)
                found[row.original_query].append(plan.is_deterministic if row.refresh_mode == "FULL" else None)
            except Refused as refused:
                found[row.original_query].append(refused.reason)
        own.close()
    assert {query: tuple(answers) for query, answers in found.items()} == STEADY


LIMITED = {
    "statement_timeout = 300": ("SELECT m.x, pg_sleep(1)::text AS s FROM mv m LIMIT 1", "timeout"),
    "temp_file_limit = 64": ("SELECT m.x, row_number() OVER (ORDER BY -m.x) AS n FROM mv m", "temp_file_limit"),
    "": ("SELECT x FROM mv", "has not been populated"),
}


@pytest.mark.parametrize("setting", LIMITED)
def test_what_one_query_meets_is_no_server_that_is_away(database: str, setting: str) -> None:
    query, shown = LIMITED[setting]
    with psycopg.connect(database, autocommit=True) as connection:
        install_catalog(connection)
        connection.execute("CREATE MATERIALIZED VIEW mv AS SELECT x FROM generate_series(1, 100000) x")
        connection.execute("SELECT pgtrickle.create_stream_table('st', %s, refresh_mode => 'FULL')", (query,))
        own = Database(database)
        [row] = Catalog(own).stream_tables.all()
        table = StreamTablePlanner(own, Catalog(own), Thresholds())(row)
        assert isinstance(table.plan, PostgresQuery)
        if setting:
            name = connection.info.dbname
            connection.execute(f"ALTER DATABASE {name} SET {setting}; ALTER DATABASE {name} SET work_mem = 64".encode())
        else:
            connection.execute("REFRESH MATERIALIZED VIEW mv WITH NO DATA")
        with pytest.raises(CalculationError, match=shown):
            FullInPostgres(database, 100).run(table, ORIGIN)
        own.close()
