"""Rows change without change rows: tables that no applier of this database compares are compared by the consumer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cdc_consumer.resume import find_outdated
from cdc_consumer.settings import ConsumerSettings
from cdc_consumer.sinks.sink import StoredState
from cdc_consumer.wal.catalog import published_tables
from cdc_consumer.wal.table_facts import find_difference, find_left_out, read_table_facts
from shared_schema.lsn import Lsn
from shared_schema.progress import Capture
from shared_schema.settings import load_settings
from shared_schema.table_schema import TableId
from tests.cdc_consumer.conftest import MakeConsumer
from tests.cdc_consumer.harness import Connection, Consumer, check, until

SCHEMA = """
CREATE TYPE mood AS ENUM ('sad', 'glad');
CREATE TABLE t (id int PRIMARY KEY, v int, m mood);
CREATE TABLE other (id int PRIMARY KEY);
ALTER TABLE t REPLICA IDENTITY FULL; ALTER PUBLICATION pg_trickle ADD TABLE t, other;
INSERT INTO t SELECT i, i, 'sad' FROM generate_series(1, 20) i; INSERT INTO other VALUES (1)
"""

T = TableId("public", "t")

PUBLISH_ALL = "ALTER PUBLICATION pg_trickle SET (publish = 'insert, update, delete, truncate')"


def captures(consumer: Consumer, table: str) -> list[dict[str, Any]]:
    return [record for record in consumer.caught_up().captures if record["table"] == table]


def copies(consumer: Consumer, table: str) -> int:
    return len({record["snapshot_lsn"] for record in captures(consumer, table)})


@pytest.mark.parametrize(
    ("ddl", "changes_rows"),
    [
        ("ALTER TABLE t ALTER v TYPE int USING v + 100", True),
        ("ALTER TABLE t DROP v; ALTER TABLE t ADD v int DEFAULT 7", True),
        ("ALTER TYPE mood RENAME VALUE 'sad' TO 'low'", True),
        # Rows that were written in between have the other label, or are missing.
        ("ALTER TYPE mood RENAME VALUE 'sad' TO 'low'; ALTER TYPE mood RENAME VALUE 'low' TO 'sad'", True),
        ("ALTER PUBLICATION pg_trickle SET (publish = 'insert')", True),
        (f"ALTER PUBLICATION pg_trickle SET (publish = 'insert'); {PUBLISH_ALL}", True),
        ("ALTER TYPE mood ADD VALUE 'more'", False),
        ("ALTER PUBLICATION pg_trickle DROP TABLE other; ALTER PUBLICATION pg_trickle ADD TABLE other", False),
        ("CREATE PUBLICATION another FOR TABLE t", False),
        ("VACUUM FULL t", False),
        ("TRUNCATE t", False),
        ("ALTER TABLE t ADD w int DEFAULT 3", False),
        ("ALTER TABLE t ALTER v SET DEFAULT 5", False),
        # A table without a TOAST table: nothing tells both apart.
        ("ALTER TABLE t ALTER v SET STATISTICS 9; VACUUM FULL t", True),
        ("ALTER TABLE t ADD n text; TRUNCATE t; ALTER TABLE t ALTER v SET STATISTICS 9", True),
        ("CREATE INDEX ON t (v); ANALYZE t", False),
        ("UPDATE t SET v = v + 1", False),
    ],
)
def test_only_ddl_that_changes_rows_counts(db: Connection, ddl: str, changes_rows: bool) -> None:
    db.execute(SCHEMA.encode())
    relid = db.execute("SELECT 't'::regclass::oid::int8").fetchall()[0][0]
    before = read_table_facts(db, ["pg_trickle", "another"], [relid])[relid]
    for statement in ddl.split("; "):
        db.execute(statement.encode())
    after = read_table_facts(db, ["pg_trickle", "another"], [relid])[relid]
    assert (find_difference(T, before, after) is not None) is changes_rows


def test_the_next_session_copies_what_the_last_one_ended_for(db: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise it would end for it too, again and again."""
    monkeypatch.setenv("PG_TRICKLE_DATABASE_URL", "postgresql://h/db")
    monkeypatch.setenv("PG_TRICKLE_KAFKA_BOOTSTRAP", "nowhere:1")
    settings = load_settings(ConsumerSettings)
    db.execute(SCHEMA.encode())
    (published,) = (table for table in published_tables(db, ("pg_trickle",)) if table.table == T)
    facts = read_table_facts(db, ["pg_trickle"], [published.relid])[published.relid]
    whole = Capture("slot", T, published.relid, Lsn(9), 0, published.membership, facts=facts)

    def found(capture: Capture, *overdue: TableId) -> list[TableId]:
        return find_outdated(db, settings, StoredState(captures={T: capture}), overdue)

    assert found(whole) == []
    assert found(replace(whole, left_out="it was called otherwise for a moment")) == [T]
    db.execute("ALTER TABLE t ALTER v TYPE int USING v + 100")
    assert found(whole) == [T]
    assert found(replace(whole, stopped="why")) == []
    # An applier of this database compares it too, and requests the copy.
    db.execute(
        """
        CREATE SCHEMA pgtrickle; CREATE TABLE pgtrickle.pgt_source_facts AS SELECT 't'::regclass::oid AS source_relid;
        CREATE TABLE pgtrickle.pgt_dependencies AS SELECT source_relid, 'TABLE' AS source_type
        FROM pgtrickle.pgt_source_facts
        """
    )
    assert found(whole) == []
    assert found(whole, T) == [T], "it did not"


NESTED = """
CREATE TYPE mood AS ENUM ('sad', 'glad'); CREATE DOMAIN inner_mood AS mood; CREATE DOMAIN outer_mood AS inner_mood;
CREATE TYPE pair AS (a int, m mood); CREATE TYPE moods AS RANGE (subtype = mood);
CREATE TABLE t (id int, d outer_mood, p pair[], r moods, g int GENERATED ALWAYS AS (id * 2) STORED)
    PARTITION BY RANGE (id);
CREATE TABLE leaf PARTITION OF t FOR VALUES FROM (0) TO (10);
CREATE TABLE leaf2 PARTITION OF t FOR VALUES FROM (10) TO (20);
CREATE TABLE plain (id int PRIMARY KEY, {column});
ALTER PUBLICATION pg_trickle ADD TABLE t, plain
"""


@pytest.mark.parametrize("column", ["v outer_mood", "v pair", "v pair[]", "v moods"])
def test_an_enum_at_any_depth_of_a_type(db: Connection, column: str) -> None:
    db.execute(NESTED.format(column=column).encode())
    relid = db.execute("SELECT 'plain'::regclass::oid::int8").fetchall()[0][0]
    facts = [read_table_facts(db, ["pg_trickle"], [relid])[relid]]
    for ddl in ("ALTER TYPE mood ADD VALUE 'more'", "ALTER TYPE mood RENAME VALUE 'sad' TO 'low'"):
        db.execute(ddl.encode())
        facts.append(read_table_facts(db, ["pg_trickle"], [relid])[relid])
    assert find_difference(T, facts[0], facts[1]) is None
    assert "label sad" in str(find_difference(T, facts[1], facts[2]))


@pytest.mark.parametrize(
    ("ddl", "problem", "since"),
    [
        ("ALTER TYPE pair ADD ATTRIBUTE b int", "other attributes", 16),
        ("ALTER TYPE pair RENAME ATTRIBUTE a TO b", None, 16),
        ("ALTER TABLE leaf ALTER g SET EXPRESSION AS (id * 3)", "g of public.t was rewritten", 17),
        ("VACUUM FULL leaf", None, 14),
        ("ALTER TABLE t ALTER r SET STATISTICS 9; VACUUM FULL leaf; TRUNCATE leaf2", None, 14),
        ("ALTER TABLE t ALTER r TYPE moods USING NULL", "r of public.t was rewritten", 14),
        ("ALTER PUBLICATION pg_trickle ADD TABLE leaf WHERE (id > 3)", "in another way", 15),
        ("ALTER PUBLICATION pg_trickle ADD TABLE leaf2 (id)", "in another way", 15),
        ("ALTER PUBLICATION pg_trickle ADD TABLE leaf2", None, 14),
        ("ALTER PUBLICATION pg_trickle SET (publish_via_partition_root = true)", "in another way", 14),
    ],
)
def test_types_and_leaves(db: Connection, ddl: str, problem: str | None, since: int) -> None:
    if db.info.server_version < since * 10_000:
        pytest.skip(f"since version {since}")
    db.execute(NESTED.format(column="v int").encode())
    relid = db.execute("SELECT 't'::regclass::oid::int8").fetchall()[0][0]
    before = read_table_facts(db, ["pg_trickle"], [relid])[relid]
    for statement in ddl.split("; "):
        db.execute(statement.encode())
    after = read_table_facts(db, ["pg_trickle"], [relid])[relid]
    found = find_difference(T, before, after)
    assert found is None if problem is None else problem in str(found)
    (published,) = (p for p in published_tables(db, ("pg_trickle",)) if p.table == T)
    assert find_left_out(published, before) == ""
    assert bool(find_left_out(published, after)) is ("PUBLICATION" in ddl and problem is not None)


def test_rows_that_changed_behind_the_log_are_copied_again(make_consumer: MakeConsumer, db: Connection) -> None:
    """While it runs and while it does not; the other table is not copied again."""
    consumer = make_consumer(heartbeat_ms=300)
    db.execute(SCHEMA.encode())
    consumer.start()
    check(consumer, ["public.t", "public.other"])
    for number, ddl in enumerate(("ALTER v TYPE int USING v + 100", "DROP v, ADD v int DEFAULT 7")):
        db.execute(f"ALTER TABLE t {ddl}".encode())
        until(lambda n=number: copies(consumer, "t") >= n + 2, "copied again")
        db.execute("UPDATE t SET v = v + 1 WHERE id < 3; INSERT INTO other SELECT max(id) + 1 FROM other")
        check(consumer, ["public.t", "public.other"])
    assert consumer.stop() == 0
    db.execute("ALTER TYPE mood RENAME VALUE 'sad' TO 'low'")
    db.execute("INSERT INTO t (id, v, m) VALUES (99, 9, 'low')")
    consumer.start()
    until(lambda: copies(consumer, "t") >= 4, "copied again after the start")
    check(consumer, ["public.t", "public.other"])
    assert copies(consumer, "other") == 1


def test_readers_are_told_what_the_publications_leave_out(make_consumer: MakeConsumer, db: Connection) -> None:
    consumer = make_consumer(heartbeat_ms=300)
    db.execute(SCHEMA.encode())
    consumer.start()
    check(consumer, ["public.t"])

    def left_out() -> str:
        return str(captures(consumer, "t")[-1].get("left_out", ""))

    db.execute("ALTER PUBLICATION pg_trickle DROP TABLE t")
    until(lambda: "none of the publications" in left_out(), "not published")
    db.execute("UPDATE t SET v = 0 WHERE id = 1; ALTER PUBLICATION pg_trickle ADD TABLE t")
    until(lambda: left_out() == "", "published again")
    check(consumer, ["public.t"])
    db.execute("ALTER PUBLICATION pg_trickle SET (publish = 'insert, update')")
    until(lambda: "only insert, update" in left_out(), "without DELETE")
    db.execute(
        "DELETE FROM t WHERE id = 2; ALTER PUBLICATION pg_trickle SET (publish = 'insert, update, delete, truncate')"
    )
    until(lambda: left_out() == "", "with DELETE again")
    check(consumer, ["public.t"])
    db.execute("ALTER TABLE t RENAME TO renamed")
    until(lambda: "now called public.renamed" in left_out(), "renamed")
