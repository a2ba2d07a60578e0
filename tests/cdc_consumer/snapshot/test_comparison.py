"""What one look at the catalog of a real server finds, and whether it may be trusted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import psycopg
import pytest

from cdc_consumer.snapshot.comparison import CatalogComparison, Comparison
from cdc_consumer.wal.catalog import published_tables
from cdc_consumer.wal.slot import insert_position
from cdc_consumer.wal.table_facts import read_table_facts
from shared_schema.lsn import Lsn
from shared_schema.progress import Capture
from shared_schema.table_schema import TableId
from tests.cdc_consumer.harness import Connection, until
from tests.fixtures.standby import committing

T = TableId("public", "t")
SCHEMA = """
CREATE TYPE mood AS ENUM ('sad', 'glad');
CREATE TABLE t (id int PRIMARY KEY, v int, m mood); CREATE TABLE unrelated (id int);
ALTER PUBLICATION pg_trickle ADD TABLE t; INSERT INTO t VALUES (1, 1, 'sad')
"""
REWRITE = "ALTER TABLE t ALTER v TYPE int USING v + 1"

Look = Callable[..., Comparison]


def captured(db: Connection) -> dict[TableId, Capture]:
    """Return what would be stored of the published tables if they were copied now."""
    tables = published_tables(db, ("pg_trickle",))
    facts = read_table_facts(db, ["pg_trickle"], [t.relid for t in tables])
    return {t.table: Capture("s", t.table, t.relid, Lsn(9), 0, t.membership, facts=facts[t.relid]) for t in tables}


@pytest.fixture
def look(database: str, db: Connection) -> Iterator[Look]:
    db.execute(SCHEMA.encode())
    comparison = CatalogComparison(database, ("pg_trickle",))

    def look_once(captures: Mapping[TableId, Capture], compared: str | None = None) -> Comparison:
        results: list[Comparison] = []
        comparison.start(captures, compared)

        def is_over() -> bool:
            results.extend(result for result in [comparison.take_result()] if result is not None)
            return bool(results)

        until(is_over, "a result", limit_s=20)
        return results[0]

    yield look_once
    comparison.close()


def test_the_catalog_is_read_whole_only_when_it_changed(look: Look, db: Connection) -> None:
    captures = captured(db)
    first = look(captures)
    assert first.seen is not None and not first.seen.outdated and not first.seen.unpublished
    assert first.is_committing, "nobody knew yet of which objects to ask the sessions"
    db.execute("INSERT INTO t VALUES (2, 2, 'glad'); CREATE TABLE another (id int); ALTER TABLE unrelated ADD v int")
    before = insert_position(db)
    second = look(captures, first.digest)
    assert second.seen is None and not second.is_committing and second.position >= before
    db.execute(REWRITE.encode())
    third = look(captures, second.digest)
    assert third.seen is not None and "v of public.t" in third.seen.outdated[T]
    assert not third.is_committing
    present = captured(db)
    copied = look(present)
    assert copied.seen is not None and not copied.seen.outdated


def test_a_commit_that_is_in_the_log_and_not_visible(look: Look, db: Connection, database: str) -> None:
    """A look that began after it would call the old catalog the present one."""
    captures = captured(db)
    digest = look(captures).digest
    for ddl in (REWRITE, "ALTER TYPE mood RENAME VALUE 'sad' TO 'low'", "ALTER PUBLICATION pg_trickle DROP TABLE t"):
        with committing(database, ddl):
            during = look(captures, digest)
            assert during.seen is None and during.is_committing, ddl
            assert look(captures, digest).is_committing, "and it waits for it only once"
        after = look(captures, digest)
        assert after.seen is not None and not after.is_committing, ddl
        assert after.seen.outdated or after.seen.unpublished, ddl
        digest, captures = after.digest, captured(db)
        if captures:
            digest = look(captures).digest


def test_sessions_that_concern_nobody(look: Look, db: Connection, database: str) -> None:
    captures = captured(db)
    digest = look(captures).digest
    with committing(database, "ALTER TABLE unrelated ADD more int"):
        assert not look(captures, digest).is_committing, "another table"
    with committing(database, "INSERT INTO t VALUES (5, 5, 'sad')"):
        assert not look(captures, digest).is_committing, "no DDL"
    with psycopg.connect(database) as idle:
        idle.execute(REWRITE.encode())
        assert not look(captures, digest).is_committing, "it waits for its client: it has not begun to commit"
        idle.rollback()


def test_the_time_in_which_others_commit_is_not_ours(look: Look, db: Connection, database: str) -> None:
    captures = captured(db)
    digest = look(captures).digest
    with committing(database, REWRITE):
        during = look(captures, digest)
        assert during.is_committing and during.seconds < 0.25, "it waited for half a second"


def test_a_table_that_waits_to_be_captured(look: Look, db: Connection) -> None:
    captures = captured(db)
    first = look(captures)
    assert first.seen is not None and not first.seen.is_uncaptured
    db.execute("ALTER PUBLICATION pg_trickle ADD TABLE unrelated")
    second = look(captures, first.digest)
    assert second.seen is None and second.members != first.members, "it is no captured table, but is to be one"
    db.execute("ALTER TABLE t RENAME TO renamed")
    third = look(captures, first.digest)
    assert third.seen is not None and third.seen.is_uncaptured and not third.seen.is_copy_missing
    assert third.seen.unpublished == {T: "it is now called public.renamed"}
    db.execute("ALTER TABLE renamed RENAME TO t; ALTER PUBLICATION pg_trickle DROP TABLE t")
    db.execute("ALTER PUBLICATION pg_trickle ADD TABLE t")
    fourth = look(captures, third.digest)
    assert fourth.seen is not None and fourth.seen.is_copy_missing, "what happened in between was not streamed"
