"""What other sessions do meanwhile holds back the stream tables that it concerns, and those alone."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest
from psycopg import errors

from applier.refresh.check import check_stream_table
from deploy.local.stack import Stack
from shared_schema.table_schema import TableId
from tests import oracle

Connection = psycopg.Connection[tuple[object, ...]]

LONG = bool(os.environ.get("PG_TRICKLE_LONG_TESTS"))
RESTARTS = "restarts the applier: PG_TRICKLE_LONG_TESTS"


def assert_equal(db: Connection, *names: str) -> None:
    for name in names:
        db.execute("SELECT pgtrickle.wait_for(%s, timeout => '120 s')", (name,))
        checked = check_stream_table(db, TableId("public", name))
        assert checked.equal, checked


def assert_suspended(db: Connection, name: str, because: str) -> None:
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match=because):
        db.execute("SELECT pgtrickle.wait_for(%s, timeout => '120 s')", (name,))


@contextmanager
def at_work(stack: Stack, statement: str) -> Iterator[None]:
    """Run a statement that takes seconds beside the test."""

    def run() -> None:
        with psycopg.connect(stack.addresses.database_url, autocommit=True) as other:
            other.execute(statement.encode())

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
        assert thread.is_alive(), "the statement took no longer than the test"
    finally:
        thread.join()


@pytest.fixture
def busy(db: Connection) -> Connection:
    """Stream tables `of_busy` and `of_calm`, each over a table of its own."""
    db.execute("CREATE TYPE pace AS ENUM ('slow', 'fast')")
    db.execute("CREATE TABLE busy (id int PRIMARY KEY, p pace); CREATE TABLE calm (id int PRIMARY KEY, v int)")
    db.execute("SELECT pgtrickle.create_stream_table('of_busy', 'SELECT p, count(*) AS n FROM busy GROUP BY p')")
    db.execute("SELECT pgtrickle.create_stream_table('of_calm', 'SELECT count(*) AS n, sum(v) AS s FROM calm')")
    assert_equal(db, "of_busy", "of_calm")
    return db


def test_long_ddl_on_other_tables_stops_nobody(busy: Connection, stack: Stack) -> None:
    """It was taken for a commit that is under way and may have altered anything."""
    with at_work(stack, "CREATE TABLE slow AS SELECT pg_sleep(8) IS NULL AS slept"):
        busy.execute("INSERT INTO calm VALUES (1, 1)")
        busy.execute("SELECT pgtrickle.wait_for('of_calm', timeout => '6 s')")
    assert_equal(busy, "of_calm", "of_busy")

    # A locked source whose reader has to be planned again: only that one waits.
    with psycopg.connect(stack.addresses.database_url) as other:
        other.execute("LOCK TABLE busy IN ACCESS EXCLUSIVE MODE")
        busy.execute("ALTER TYPE pace ADD VALUE 'faster'")
        busy.execute("INSERT INTO calm VALUES (2, 2)")
        busy.execute("SELECT pgtrickle.wait_for('of_calm', timeout => '10 s')")
    busy.execute("INSERT INTO busy VALUES (1, 'faster')")
    assert_equal(busy, "of_busy", "of_calm")


def test_a_reader_follows_to_the_new_sources(db: Connection) -> None:
    """The reader's text stays the same, and what it rests on does not: it stood still for ever."""
    db.execute("CREATE TABLE first_source (id int PRIMARY KEY, v int); INSERT INTO first_source VALUES (1, 1), (2, 2)")
    db.execute("CREATE TABLE second_source (id int PRIMARY KEY, v int); INSERT INTO second_source VALUES (7, 70)")
    db.execute("SELECT pgtrickle.create_stream_table('lower_one', 'SELECT id, v FROM first_source')")
    db.execute("SELECT pgtrickle.create_stream_table('upper_one', 'SELECT count(*) AS n, sum(v) AS s FROM lower_one')")
    assert_equal(db, "lower_one", "upper_one")
    db.execute("SELECT pgtrickle.alter_stream_table('lower_one', query => 'SELECT id, v FROM second_source')")
    db.execute("DROP TABLE first_source")
    assert_equal(db, "lower_one", "upper_one")
    db.execute("INSERT INTO second_source VALUES (8, 80)")
    assert_equal(db, "lower_one", "upper_one")


@pytest.mark.parametrize("restarted", [False, pytest.param(True, marks=pytest.mark.skipif(not LONG, reason=RESTARTS))])
def test_a_chain_that_stopped_is_mended_by_a_query_below(db: Connection, stack: Stack, restarted: bool) -> None:
    """Nobody could alter the lower one while a reader was suspended, nor resume the reader while the lower one was."""
    db.execute("DROP TABLE IF EXISTS base; CREATE TABLE base (id int PRIMARY KEY, v int, w int)")
    db.execute("INSERT INTO base VALUES (1, 1, 10), (2, 2, 20), (3, 0, 30)")
    db.execute("SELECT pgtrickle.create_stream_table('below_all', 'SELECT id, v, w FROM base')")
    db.execute("SELECT pgtrickle.create_stream_table('above_it', 'SELECT count(*) AS n, sum(v) AS s FROM below_all')")
    db.execute(
        "SELECT pgtrickle.create_stream_table('own_reason', 'SELECT id, 10 / v AS x FROM below_all WHERE id < 9')"
    )
    assert_equal(db, "below_all", "above_it")
    assert_suspended(db, "own_reason", "divi")
    # One reader has a reason of its own: it stays suspended, and takes the new query over when it is resumed.
    db.execute("SELECT pgtrickle.alter_stream_table('below_all', query => 'SELECT id, v + 1 AS v, w FROM base')")
    assert_equal(db, "below_all", "above_it")
    assert_suspended(db, "own_reason", "divi")
    db.execute("SELECT pgtrickle.resume_stream_table('own_reason')")
    assert_equal(db, "own_reason")
    db.execute("ALTER TABLE base DROP COLUMN v")
    for name in ("below_all", "above_it", "own_reason"):
        assert_suspended(db, name, "column v of public.base was dropped")
    if restarted:
        stack.restart("applier")
    new = "SELECT id, w / 10 + id AS v, w FROM base"
    assert db.execute("SELECT pgtrickle.alter_stream_table('below_all', query => %s)", (new,)).fetchone() == (
        "compatible",
    )
    oracle.eventually(lambda: assert_in_service(db, "below_all", "above_it", "own_reason"), within_s=60)
    db.execute("INSERT INTO base VALUES (4, 40)")
    assert_equal(db, "below_all", "above_it", "own_reason")


def assert_in_service(db: Connection, *names: str) -> None:
    found = db.execute("SELECT pgt_name FROM pgtrickle.pgt_stream_tables WHERE status = 'ACTIVE'").fetchall()
    assert set(names) <= {str(name) for (name,) in found}


def test_a_source_loses_its_key(db: Connection) -> None:
    """The unique index of the stream table stayed, and the first row that came twice was rejected."""
    db.execute("CREATE TABLE keyed (id int PRIMARY KEY, v int); INSERT INTO keyed VALUES (1, 1)")
    db.execute("SELECT pgtrickle.create_stream_table('of_keyed', 'SELECT id, v FROM keyed')")
    assert_equal(db, "of_keyed")
    db.execute("ALTER TABLE keyed DROP CONSTRAINT keyed_pkey")
    db.execute("INSERT INTO keyed VALUES (1, 1), (1, 2)")
    assert_equal(db, "of_keyed")
