"""Rows change without change rows: tables that no applier of this database compares are compared by the consumer."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from applier.ingest.inbox import Inbox
from cdc_consumer.wal.table_facts import find_difference, read_table_facts
from shared_schema.progress import decode_progress
from shared_schema.table_schema import TableId
from tests.cdc_consumer.conftest import MakeConsumer
from tests.cdc_consumer.harness import Connection, Consumer, check, scalar, until
from tests.cdc_consumer.topic_reader import Content, position

SCHEMA = """
CREATE TYPE mood AS ENUM ('sad', 'glad');
CREATE TABLE t (id int PRIMARY KEY, v int, m mood);
CREATE TABLE other (id int PRIMARY KEY);
ALTER TABLE t REPLICA IDENTITY FULL; ALTER PUBLICATION pg_trickle ADD TABLE t, other;
INSERT INTO t SELECT i, i, 'sad' FROM generate_series(1, 20) i; INSERT INTO other VALUES (1)
"""

T = TableId("public", "t")


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
        ("ALTER PUBLICATION pg_trickle SET (publish = 'insert')", True),
        ("VACUUM FULL t", False),
        ("TRUNCATE t", False),
        ("ALTER TABLE t ADD w int DEFAULT 3", False),
        ("ALTER TABLE t ALTER v SET DEFAULT 5", False),
        ("CREATE INDEX ON t (v); ANALYZE t", False),
        ("UPDATE t SET v = v + 1", False),
    ],
)
def test_only_ddl_that_changes_rows_counts(db: Connection, ddl: str, changes_rows: bool) -> None:
    db.execute(SCHEMA.encode())
    relid = db.execute("SELECT 't'::regclass::oid::int8").fetchall()[0][0]
    before = read_table_facts(db, ["pg_trickle"], [relid])[relid]
    for statement in ddl.split("; "):
        db.execute(statement.encode())
    after = read_table_facts(db, ["pg_trickle"], [relid])[relid]
    assert (find_difference(T, before, after) is not None) is changes_rows


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


def shown(content: Content) -> list[int]:
    """Return the frontiers that readers elsewhere show, if each record comes alone and with all its rows."""
    inbox, frontiers = Inbox(sources_elsewhere=True), []
    for offset, record in enumerate(content.progress):
        alone = {**record, "end_offsets": {}, "checkpoint": None}
        inbox.add_record(("progress", 0), offset, decode_progress(json.dumps(alone).encode()))
        frontiers.append(inbox.advance().value)
    return sorted(set(frontiers))


def end_of_log(db: Connection) -> int:
    return position(str(scalar(db, "SELECT pg_current_wal_insert_lsn()::text")))


@pytest.mark.parametrize("is_local", [False, True], ids=["far", "local and far"])
def test_readers_elsewhere_see_nothing_between_ddl_and_copy(
    make_consumer: MakeConsumer, db: Connection, is_local: bool
) -> None:
    """Whether an applier of the same database compares the table too, and requests the copy, or not."""
    consumer = make_consumer(heartbeat_ms=300)
    db.execute(SCHEMA.encode())
    if is_local:
        db.execute(
            """
            CREATE SCHEMA pgtrickle;
            CREATE TABLE pgtrickle.pgt_source_facts AS SELECT 't'::regclass::oid AS source_relid;
            CREATE TABLE pgtrickle.pgt_dependencies AS SELECT source_relid, 'TABLE' AS source_type
            FROM pgtrickle.pgt_source_facts;
            CREATE TABLE pgtrickle.pgt_recaptures (source_relid oid, epoch bigint)
            """
        )
    consumer.start()
    check(consumer, ["public.t", "public.other"])
    db.execute("INSERT INTO other VALUES (2)")
    before = end_of_log(db)
    until(lambda: shown(consumer.caught_up())[-1] >= before, "shown while nothing differs", limit_s=10)
    with db.transaction():
        db.execute("ALTER TABLE t ALTER v TYPE int USING v + 100")
    altered = end_of_log(db)
    for number in range(3, 8):
        db.execute("INSERT INTO other VALUES (%s)", (number,))
        time.sleep(0.02)
    if is_local:
        time.sleep(2.0)
        assert copies(consumer, "t") == 1, "the applier requests it"
        assert shown(consumer.caught_up())[-1] <= altered
        db.execute("INSERT INTO pgtrickle.pgt_recaptures SELECT 't'::regclass, 1")
    until(lambda: copies(consumer, "t") == 2, "copied again")
    db.execute("INSERT INTO other VALUES (8)")
    end = end_of_log(db)
    until(lambda: shown(consumer.caught_up())[-1] >= end, "shown again", limit_s=10)
    content = check(consumer, ["public.t", "public.other"])
    copied_at = max(position(record["snapshot_lsn"]) for record in content.captures if record["table"] == "t")
    assert [at for at in shown(content) if altered <= at <= copied_at] == []
    assert [at for at in (position(r["frontier"]) for r in content.progress) if altered <= at], "others may show them"


def test_a_table_that_nobody_requests_is_copied_all_the_same(make_consumer: MakeConsumer, db: Connection) -> None:
    """Stopped while the consumer was down, or read by no stream table any more: what is stored of it is not enough."""
    consumer = make_consumer(heartbeat_ms=300)
    db.execute(SCHEMA.encode())
    db.execute(
        """
        CREATE SCHEMA pgtrickle;
        CREATE TABLE pgtrickle.pgt_source_facts AS SELECT 't'::regclass::oid AS source_relid;
        CREATE TABLE pgtrickle.pgt_dependencies (source_relid oid, source_type text)
        """
    )
    consumer.start()
    check(consumer, ["public.t"])
    db.execute("ALTER TABLE t ALTER v TYPE int USING v + 100")
    until(lambda: copies(consumer, "t") == 2, "copied again", limit_s=10)
    check(consumer, ["public.t"])
    assert consumer.stop() == 0
    db.execute("ALTER PUBLICATION pg_trickle DROP TABLE t; UPDATE t SET v = 0")
    consumer.start()
    until(lambda: "none of" in captures(consumer, "t")[-1].get("left_out", ""), "its readers are told", limit_s=10)
