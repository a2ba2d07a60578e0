"""Sources in another database: the consumer compares them, and readers are told or get a new copy."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from deploy.local.stack import Stack
from tests import oracle
from tests.e2e.test_sinks import applier_of
from tests.life.test_repair import Connection, one

pytestmark = pytest.mark.skipif(
    not os.environ.get("PG_TRICKLE_LONG_TESTS"), reason="a second applier: PG_TRICKLE_LONG_TESTS"
)


@dataclass(frozen=True)
class Sources:
    """Tables that are here and in another database, and stream tables over them, which are only there."""

    schema: str
    captured: str
    rows: str
    """What is done here, where the tables are captured."""
    queries: Mapping[str, str]
    """The stream tables, by name."""


@contextmanager
def read_elsewhere(sources: Sources, db: Connection, stack: Stack, database: str, folder: Path) -> Iterator[Connection]:
    """Create the tables here and there, and run an applier there; yields a session there."""
    db.execute(sources.schema.encode())
    for statement in sources.rows.split(";"):
        db.execute(statement.encode())
    prefix = f"trickle_of_{sources.captured.split(',')[0]}"
    far = applier_of(stack, database, folder, PG_TRICKLE_PUBLICATION_PREFIX=prefix)
    far.run_once("install")
    with psycopg.connect(database, autocommit=True) as there:
        there.execute(sources.schema.encode())
        there.execute("SELECT pgtrickle.set_setting('sources_elsewhere', 'true')")
        for name, query in sources.queries.items():
            there.execute("SELECT pgtrickle.create_stream_table(%s, %s)", (name, query))
        far.start()
        try:
            yield there
        except BaseException:
            print(far.last_words())
            raise
        finally:
            far.kill()
    db.execute(f"ALTER PUBLICATION pg_trickle DROP TABLE {sources.captured}; DROP TABLE {sources.captured}".encode())


ALTERED = Sources(
    """
    CREATE TYPE far_mood AS ENUM ('sad', 'glad');
    CREATE TABLE far_rows (id int PRIMARY KEY, k int, v int, m far_mood); CREATE TABLE far_others (id int)
    """,
    "far_rows, far_others",
    """
    ALTER TABLE far_rows REPLICA IDENTITY FULL; ALTER TABLE far_others REPLICA IDENTITY FULL;
    ALTER PUBLICATION pg_trickle ADD TABLE far_rows, far_others;
    INSERT INTO far_rows SELECT i, i % 3, i, 'sad' FROM generate_series(1, 30) i
    """,
    {
        "far_sum": "SELECT k, count(*) AS n, sum(v) AS s FROM far_rows GROUP BY k",
        "far_moods": "SELECT m, count(*) AS n FROM far_rows GROUP BY m",
        "far_ids": "SELECT id FROM far_others",
    },
)


@pytest.mark.timeout(900)
def test_what_is_altered_in_the_other_database_is_noticed(
    db: Connection, stack: Stack, database: str, tmp_path: Path
) -> None:
    """A rewritten column, another one under its name, another label: copied again. Left out: stopped with reason."""
    with read_elsewhere(ALTERED, db, stack, database, tmp_path) as there:

        def is_equal(name: str) -> None:
            at = db.execute("SELECT pg_current_wal_insert_lsn()::text").fetchall()[0][0]
            there.execute("SELECT pgtrickle.wait_for(%s, lsn => %s::pg_lsn, timeout => '1 min')", (name, at))
            expected = oracle.Bag(db.execute(ALTERED.queries[name].encode()).fetchall())
            oracle.assert_same(expected, oracle.in_postgres(there, name), name)

        def is_stopped(name: str, because: str) -> None:
            query = "SELECT status, last_error_message FROM pgtrickle.pgt_stream_tables WHERE pgt_name = %s"
            found = there.execute(query, (name,)).fetchone()
            assert found is not None and found[0] == "SUSPENDED" and because in str(found[1]), found

        for name in ALTERED.queries:
            is_equal(name)
        db.execute("ALTER TABLE far_rows ALTER v TYPE int USING v + 100")
        oracle.eventually(lambda: is_equal("far_sum"))
        db.execute("ALTER TABLE far_rows DROP v; ALTER TABLE far_rows ADD v int DEFAULT 7")
        oracle.eventually(lambda: is_equal("far_sum"))
        db.execute("ALTER TYPE far_mood RENAME VALUE 'sad' TO 'low'")
        there.execute("ALTER TYPE far_mood RENAME VALUE 'sad' TO 'low'")
        db.execute("DELETE FROM far_rows WHERE id = 1")
        oracle.eventually(lambda: is_equal("far_moods"))
        db.execute("ALTER PUBLICATION pg_trickle DROP TABLE far_rows")
        oracle.eventually(lambda: is_stopped("far_sum", "none of the publications"))
        is_equal("far_ids")
        db.execute("DELETE FROM far_rows WHERE id = 2; ALTER PUBLICATION pg_trickle ADD TABLE far_rows")

        def is_resumed() -> None:
            try:
                there.execute("SELECT pgtrickle.reinitialize_stream_table('far_sum')")
                is_equal("far_sum")
            except psycopg.Error as error:
                raise AssertionError(str(error)) from error

        oracle.eventually(is_resumed)


WRITTEN = Sources(
    """
    CREATE TABLE rewritten (id int PRIMARY KEY, k int, v int); CREATE TABLE beside (id int);
    CREATE TABLE divided (id int, v int) PARTITION BY RANGE (id);
    CREATE TABLE divided_1 PARTITION OF divided FOR VALUES FROM (0) TO (100);
    CREATE TABLE divided_2 PARTITION OF divided FOR VALUES FROM (100) TO (200)
    """,
    "rewritten, beside, divided",
    """
    ALTER TABLE rewritten REPLICA IDENTITY FULL; ALTER TABLE beside REPLICA IDENTITY FULL;
    ALTER TABLE divided_1 REPLICA IDENTITY FULL; ALTER TABLE divided_2 REPLICA IDENTITY FULL;
    ALTER PUBLICATION pg_trickle ADD TABLE rewritten, beside, divided;
    INSERT INTO rewritten SELECT i, i % 3, i FROM generate_series(1, 30) i;
    INSERT INTO divided SELECT i, i FROM generate_series(0, 199) i
    """,
    {
        "rewritten_sums": "SELECT k, count(*) AS n, sum(v) AS s FROM rewritten GROUP BY k",
        "divided_sums": "SELECT count(*) AS n, sum(v) AS s FROM divided",
    },
)

BEHIND_THE_LOG = (
    "ALTER TABLE rewritten ALTER v TYPE int USING v + 100",
    "ALTER TABLE rewritten DROP v; ALTER TABLE rewritten ADD v int DEFAULT 7",
    "UPDATE rewritten SET v = id",
    "ALTER TABLE rewritten RENAME v TO w; ALTER TABLE rewritten RENAME k TO v; ALTER TABLE rewritten RENAME w TO k",
    "ALTER TABLE divided DETACH PARTITION divided_2",
    "UPDATE divided_2 SET v = v + 1; ALTER TABLE divided ATTACH PARTITION divided_2 FOR VALUES FROM (100) TO (200)",
    "ALTER TABLE rewritten ALTER v TYPE int USING v + 1, ALTER k TYPE int USING k + 1",
)
"""DDL that changes rows without a change row, and writes beside it."""


@pytest.mark.timeout(900)
def test_no_wait_ends_with_rows_from_before_the_ddl(
    db: Connection, stack: Stack, database: str, tmp_path: Path
) -> None:
    """The rows of the other tables go on meanwhile, so the frontier does."""
    with read_elsewhere(WRITTEN, db, stack, database, tmp_path) as there:

        def assert_waited_for(what: str) -> None:
            """Check what is shown right after the first wait that ends, without a second chance."""
            db.execute("INSERT INTO beside VALUES (1)")
            at = one(db, "SELECT pg_current_wal_insert_lsn()::text")
            for name, query in WRITTEN.queries.items():
                there.execute("SELECT pgtrickle.wait_for(%s, lsn => %s::pg_lsn, timeout => '1 min')", (name, at))
                expected = oracle.Bag(db.execute(query.encode()).fetchall())
                oracle.assert_same(expected, oracle.in_postgres(there, name), f"{name}: {what}")

        assert_waited_for("the first rows")
        for ddl in BEHIND_THE_LOG:
            for statement in ddl.split("; "):
                db.execute(statement.encode())
            assert_waited_for(ddl)
        db.execute("UPDATE rewritten SET v = v + 1; DELETE FROM divided WHERE id < 10")
        assert_waited_for("ordinary rows")
