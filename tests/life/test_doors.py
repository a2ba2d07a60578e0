"""What a role without rights can do to the running stack: nothing. No value of a row is in a log."""

from __future__ import annotations

import contextlib
import json
import secrets
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import errors
from psycopg.conninfo import make_conninfo

from deploy.local.stack import Stack
from tests import oracle
from tests.e2e.conftest import db

__all__ = ["db"]

Connection = psycopg.Connection[Any]

CANARY = "canary-7f3a91"


@pytest.fixture
def stranger(stack: Stack) -> Iterator[Connection]:
    """A session of a role that may log in and create a schema, and nothing else."""
    name = f"stranger_{secrets.token_hex(4)}"
    with psycopg.connect(stack.addresses.database_url, autocommit=True) as admin:
        admin.execute("SET ROLE postgres")
        admin.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'hush'; CREATE SCHEMA {name} AUTHORIZATION {name}".encode())
        url = make_conninfo(stack.addresses.database_url, user=name, password="hush")
        with psycopg.connect(url, autocommit=True) as own:
            own.execute(f"SET search_path = {name}".encode())
            yield own
        admin.execute(f"DROP OWNED BY {name} CASCADE; DROP ROLE {name}".encode())


def test_a_message_of_a_stranger_makes_the_applier_run_nothing(db: Connection, stranger: Connection) -> None:
    """A question in the log with a search path of the asker's made the applier call a function of that schema."""
    schema = stranger.info.user
    stranger.execute(f"GRANT USAGE ON SCHEMA {schema} TO PUBLIC".encode())
    stranger.execute("CREATE SEQUENCE called; GRANT ALL ON SEQUENCE called TO PUBLIC")
    stranger.execute(
        f"CREATE FUNCTION {schema}.now() RETURNS timestamptz LANGUAGE sql AS"
        f" $$ SELECT nextval('{schema}.called'); SELECT pg_catalog.now() $$".encode()
    )
    stranger.execute(
        f"CREATE FUNCTION {schema}.count_call(int) RETURNS boolean LANGUAGE sql AS"
        f" $$ SELECT nextval('{schema}.called') > 0 $$".encode()
    )
    stranger.execute(f"CREATE DOMAIN {schema}.checked AS int CHECK ({schema}.count_call(VALUE))".encode())
    for query in ("SELECT 1 AS one", f"SELECT '{{1}}'::{schema}.checked[] AS one"):
        asked = {"question": str(uuid.uuid4()), "query": query, "search_path": f"{schema}, pg_catalog"}
        for content in (f"ask {json.dumps(asked)}", f"ask {'0' * 64} {json.dumps(asked)}"):
            stranger.execute("SELECT pg_logical_emit_message(false, 'pg_trickle', %s)", (content,))
            stranger.execute("SELECT pg_logical_emit_message(true, 'pg_trickle', %s)", (content,))
    with pytest.raises(errors.InsufficientPrivilege):
        stranger.execute("SELECT pgtrickle._ask(gen_random_uuid(), '{}')")
    # A question of somebody who may ask is answered after those of the stranger were read.
    db.execute("CREATE TABLE IF NOT EXISTS doors (id int PRIMARY KEY)")
    assert db.execute("SELECT result FROM pgtrickle.validate_query('SELECT id FROM doors')").fetchone() == ("yes",)
    assert stranger.execute("SELECT is_called FROM called").fetchone() == (False,)
    # Had one of them been run, it would have been seen.
    db.execute(f"SELECT {schema}.now(), '{{1}}'::{schema}.checked[]".encode())
    assert stranger.execute("SELECT is_called FROM called").fetchone() == (True,)


def test_a_reader_may_ask_and_nothing_of_the_question_is_run_by_the_applier(
    db: Connection, stranger: Connection
) -> None:
    """Reading a literal of an array of a domain calls the domain's check; only the asker's own session does that."""
    schema = stranger.info.user
    db.execute("CREATE TABLE IF NOT EXISTS doors (id int PRIMARY KEY)")
    db.execute(f"GRANT USAGE ON SCHEMA pgtrickle TO {schema}".encode())
    db.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA pgtrickle TO {schema}".encode())
    stranger.execute("CREATE TABLE callers (who text); CREATE TABLE own (id int PRIMARY KEY)")
    stranger.execute(f"GRANT ALL ON SCHEMA {schema} TO PUBLIC; GRANT ALL ON callers TO PUBLIC".encode())
    stranger.execute("CREATE SEQUENCE others; GRANT ALL ON SEQUENCE others TO PUBLIC")
    stranger.execute(
        f"CREATE FUNCTION {schema}.who(int) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN"
        f" IF current_user <> '{schema}' THEN PERFORM nextval('{schema}.others'); END IF; RETURN true; END $$".encode()
    )
    stranger.execute(f"CREATE DOMAIN {schema}.checked AS int CHECK ({schema}.who(VALUE))".encode())
    query = f"SELECT id, '{{1}}'::{schema}.checked[] AS c FROM {schema}.own"
    answer = stranger.execute("SELECT check_name, result FROM pgtrickle.validate_query(%s)", (query,)).fetchall()
    assert answer
    assert stranger.execute("SELECT is_called FROM others").fetchone() == (False,)
    # Had another role read the literal, it would have been seen.
    db.execute(f"SELECT '{{1}}'::{schema}.checked[]".encode())
    assert stranger.execute("SELECT is_called FROM others").fetchone() == (True,)
    with pytest.raises(errors.InsufficientPrivilege):
        stranger.execute("SELECT * FROM pgtrickle.validate_query('SELECT id FROM public.doors')")


def test_a_row_of_the_catalog_does_not_read_what_its_owner_may_not(db: Connection) -> None:
    """Authors write the catalog; a table that is captured for somebody else stays hidden from them."""
    db.execute(
        "CREATE TABLE doors_plain (id int PRIMARY KEY, treasure text); INSERT INTO doors_plain VALUES (1, 'mine')"
    )
    db.execute("SET ROLE postgres")
    db.execute("CREATE TABLE vault (id int PRIMARY KEY, treasure text); INSERT INTO vault VALUES (1, 'theirs')")
    db.execute("GRANT SELECT ON vault TO trickle_cdc; ALTER PUBLICATION pg_trickle ADD TABLE vault; RESET ROLE")
    with pytest.raises(errors.InsufficientPrivilege):
        db.execute("SELECT pgtrickle.create_stream_table('robbed', 'SELECT id, treasure FROM vault')")
    db.execute("SELECT pgtrickle.create_stream_table('robbed', 'SELECT id, treasure FROM doors_plain')")
    db.execute("SELECT pgtrickle.wait_for('robbed')")
    with db.transaction():
        db.execute(
            "UPDATE pgtrickle.pgt_stream_tables"
            " SET defining_query = 'SELECT vault.id, vault.treasure FROM public.vault' WHERE pgt_name = 'robbed'"
        )
        db.execute(
            "UPDATE pgtrickle.pgt_dependencies SET source_relid = 'vault'::regclass, source_name = 'vault'"
            " WHERE source_name = 'doors_plain'"
        )
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match="permission denied for table vault"):
        for _ in range(20):
            db.execute("SELECT pgtrickle.wait_for('robbed')")
            time.sleep(0.2)
    assert db.execute("SELECT treasure FROM robbed").fetchall() == [("mine",)]
    db.execute("SET ROLE postgres; DROP TABLE vault; RESET ROLE")


def test_no_value_of_a_row_is_in_a_log(db: Connection, stack: Stack) -> None:
    """Casts that fail, constraints that are violated, rows and texts of any kind: the logs name columns and counts."""
    logs = {
        name: Path(log) for name, log in (("applier", stack.addresses.applier_log), ("cdc", stack.addresses.cdc_log))
    }
    seen = {name: len(log.read_bytes()) for name, log in logs.items()}
    db.execute("CREATE TABLE texts (id int PRIMARY KEY, t text, n numeric)")
    db.execute("INSERT INTO texts VALUES (1, '1', 1)")
    create = "SELECT pgtrickle.create_stream_table(%s, %s, refresh_mode => %s)"
    db.execute(create, ("as_number", "SELECT id, t::int AS v FROM texts", "DIFFERENTIAL"))
    db.execute(create, ("as_date", "SELECT id, CASE WHEN id > 1 THEN t::date END AS v FROM texts", "FULL"))
    db.execute(create, ("checked", "SELECT id, t FROM texts", "DIFFERENTIAL"))
    db.execute(create, ("joined", "SELECT a.t, count(*) AS c FROM texts a JOIN texts b USING (t) GROUP BY 1", "AUTO"))
    names = ("as_number", "as_date", "checked", "joined")
    for name in names:
        db.execute("SELECT pgtrickle.wait_for(%s)", (name,))
    db.execute(f"ALTER TABLE checked ADD CHECK (t NOT LIKE '%{CANARY}%')".encode())
    hostile = f"{CANARY}\\n\\\\.\\t\"',{{}}$$%s -- \\x00"
    db.execute("INSERT INTO texts VALUES (2, %s, 2), (3, %s, 3)", (CANARY, hostile))
    db.execute("INSERT INTO texts VALUES (4, %s, 4)", (CANARY * 20_000,))
    for name in names:
        with contextlib.suppress(errors.ObjectNotInPrerequisiteState, errors.QueryCanceled):
            db.execute("SELECT pgtrickle.wait_for(%s, timeout => '5 s')", (name,))

    def suspended() -> None:
        rows = db.execute(
            "SELECT pgt_name FROM pgtrickle.pgt_stream_tables WHERE status = 'SUSPENDED' ORDER BY 1"
        ).fetchall()
        assert {row[0] for row in rows} >= {"as_number", "checked"}

    oracle.eventually(suspended, within_s=30)
    for name, log in logs.items():
        written = log.read_bytes()[seen[name] :]
        assert name != "applier" or b"as_number" in written, "the failures are in it"
        assert CANARY.encode() not in written, (
            f"{name}: {written[max(0, written.find(CANARY.encode()) - 300) :][:600]!r}"
        )
