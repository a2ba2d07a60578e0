"""A commit of any size needs constant memory and is atomic for readers, even beyond the broker's time limit."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tests.cdc_consumer.conftest import LOG_AND_TABLES, MakeConsumer
from tests.cdc_consumer.harness import (
    Connection,
    Consumer,
    by_stamp,
    check,
    connect,
    flushed_message,
    refused,
    scalar,
    until,
)
from tests.cdc_consumer.topic_reader import open_reader, position, wait_for_frontier

ROWS = int(os.environ.get("LARGE_COMMIT_ROWS", "300000"))
RSS_MB = 100

CUT = """
CREATE TABLE t (id int PRIMARY KEY, v int); ALTER TABLE t REPLICA IDENTITY FULL;
CREATE TABLE u (id int PRIMARY KEY); INSERT INTO u VALUES (1);
ALTER PUBLICATION pg_trickle ADD TABLE t, u
"""

LONG = """
BEGIN;
INSERT INTO t SELECT g, 0 FROM generate_series(1, 4000) g;
SELECT pg_logical_emit_message(true, 'app', 'in the middle');
UPDATE t SET v = 1 WHERE id <= 2000;
ALTER TABLE t ADD more text DEFAULT 'x';
TRUNCATE u;
UPDATE t SET v = 2, more = 'y' WHERE id > 2000;
DELETE FROM t WHERE id % 3 = 0;
INSERT INTO u VALUES (2);
COMMIT
"""


def publishes(consumer: Consumer, number: float) -> None:
    until(lambda: consumer.metric("pg_trickle_cdc_publishes_total") > number, "some parts")


@pytest.mark.parametrize("kill", [False, True])
def test_a_commit_longer_than_a_transaction_may_last(make_consumer: MakeConsumer, db: Connection, kill: bool) -> None:
    consumer = make_consumer(transaction_max_s=0, wal_max_changes_per_poll=100)
    db.execute(CUT)
    consumer.start()
    consumer.caught_up()
    published = consumer.metric("pg_trickle_cdc_publishes_total")
    db.execute(LONG)
    if kill:
        publishes(consumer, published + 8)
        consumer.kill()
        consumer.start(wait=False)
        publishes(consumer, 20)
        consumer.kill()
        consumer.start(wait=False)
    db.execute("INSERT INTO u VALUES (3)")
    content = check(consumer, ["public.u"])
    rows = by_stamp(content.rows["public.t"])
    commit = rows[0].lsn
    # With a limit of 0 s the small commits around it may be cut as well.
    partial = [r for r in content.progress if "part" in r and position(r["part"]["lsn"]) == commit]
    parts = [record["part"] for record in partial]
    assert len(parts) > 20
    assert [part["rows"] for part in parts] == sorted({part["rows"] for part in parts}), "each goes on after the last"
    stamps = [(row.lsn, row.seq) for row in rows]
    assert len(set(stamps)) == len(stamps) == 4000 + 4000 + 4000 + 1333
    assert [r["content"] for r in content.control if r.get("prefix") == "app"] == ["in the middle"]
    assert [r["changes"] for r in content.control if r["kind"] == "schema"] == [["added more text"]]
    # No ordinal is missing or used twice: rows of both tables and the control records between them.
    own = [row.seq for found in content.rows.values() for row in found if row.lsn == commit]
    own += [r["seq"] for r in content.control if position(r["lsn"]) == commit]
    assert sorted(own) == list(range(len(own)))
    # A frontier passes the commit only when it is complete.
    assert all(position(record["frontier"]) <= commit for record in partial)


def test_progress_goes_on_beside_an_open_transaction(make_consumer: MakeConsumer, db: Connection) -> None:
    consumer = make_consumer(heartbeat_ms=200)
    db.execute(CUT)
    consumer.start()
    with connect(consumer.url) as other:
        other.execute("BEGIN; INSERT INTO t SELECT g, 0 FROM generate_series(1, 1000) g")
        db.execute("INSERT INTO u VALUES (2)")
        check(consumer, ["public.u"])
        # Nothing of this is published, but the server may discard its log up to the open transaction.
        db.execute("CREATE TABLE nobodys AS SELECT generate_series(1, 1000)")
        end = position(str(scalar(db, "SELECT pg_current_wal_lsn()::text")))
        until(lambda: consumer.metric("pg_trickle_cdc_published_lsn") >= end, "the frontier follows", 10)
        other.execute("COMMIT")
    check(consumer, ["public.t", "public.u"])


def test_publications_may_not_change_in_the_middle(make_consumer: MakeConsumer, db: Connection) -> None:
    consumer = make_consumer(transaction_max_s=0, wal_max_changes_per_poll=100)
    db.execute(CUT)
    consumer.start()
    published = consumer.metric("pg_trickle_cdc_publishes_total")
    db.execute(LONG)
    publishes(consumer, published + 3)
    consumer.kill()
    consumer.environment["PG_TRICKLE_PUBLICATIONS"] = "pg_trickle,another"
    assert "published only in part" in refused(consumer)


@LOG_AND_TABLES
def test_memory_does_not_grow_with_a_commit(consumer: Consumer, db: Connection) -> None:
    db.execute("CREATE TABLE big (id int PRIMARY KEY, v int, t text); ALTER PUBLICATION pg_trickle ADD TABLE big")
    consumer.start()
    rows = ROWS if consumer.mode == "log" else ROWS // 6
    began = time.monotonic()
    db.execute(f"INSERT INTO big SELECT g, g, 'v' || g FROM generate_series(1, {rows}) g".encode())
    target = flushed_message(db)
    if consumer.mode == "log":
        reader = open_reader(consumer.bootstrap)
        limit_s = max(60, rows / 5000)
        wait_for_frontier(reader, consumer.prefix, target, lambda: time.monotonic() - began < limit_s)
        reader.close()
    else:
        consumer.caught_up()
    status = Path(f"/proc/{consumer.process.pid}/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("VmHWM")]
    peak_mb = int(line.split()[1]) / 1024
    print(f"{rows} rows in {time.monotonic() - began:.1f} s, peak {peak_mb:.0f} MB")
    assert peak_mb < RSS_MB
    assert consumer.metric("pg_trickle_cdc_rows_total") == rows
