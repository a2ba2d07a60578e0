"""The initial copy of a large table: other tables continue, its own changes come after the copy, also after a kill."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.cdc_consumer import buffer_reader
from tests.cdc_consumer.conftest import LOG_AND_TABLES, MakeConsumer
from tests.cdc_consumer.harness import Connection, Consumer, check, connect, until
from tests.cdc_consumer.test_capture import add, captured
from tests.cdc_consumer.test_refused_tables import stopped as told
from tests.cdc_consumer.topic_reader import Content, open_reader, position, read_topics

ROWS = 5_000

LOCKED_S = 5.0
"""How long a server process that may hold a lock stays stopped."""

SCHEMA = f"""
CREATE TABLE early (id int PRIMARY KEY, v text);
CREATE TABLE late (id int PRIMARY KEY, v text) WITH (fillfactor = 10);
ALTER TABLE late REPLICA IDENTITY FULL;
INSERT INTO late SELECT g, repeat('x', 40) FROM generate_series(1, {ROWS}) g;
"""


def initial_copy(make_consumer: MakeConsumer, db: Connection, **settings: object) -> Consumer:
    """Start a consumer that streams one table; the other exists and is not published."""
    consumer = make_consumer(heartbeat_ms=300, copy_connections=1, copy_chunk_pages=1, **settings)
    db.execute(SCHEMA.encode())
    add(db, "early")
    consumer.start()
    return consumer


def stopped(db: Connection, pid: int) -> bool:
    """Stop a server process -> whether it waits for its client in the middle of a copy.

    Elsewhere it may hold a lock that all others need.
    """
    # If it does, the question is answered when it goes on.
    go_on = threading.Timer(LOCKED_S, os.kill, (pid, signal.SIGCONT))
    waits, began = "SELECT wait_event_type = 'Client', query FROM pg_stat_activity WHERE pid = %s", time.monotonic()
    os.kill(pid, signal.SIGSTOP)
    go_on.start()
    row = db.execute(waits, (pid,)).fetchone()
    go_on.cancel()
    # The last chunk has no upper bound.
    is_in_middle = row is not None and row[0] is True and "ctid <" in row[1]
    is_stopped = is_in_middle and time.monotonic() - began < LOCKED_S
    if not is_stopped:
        os.kill(pid, signal.SIGCONT)
    return is_stopped


@contextmanager
def stuck_copy(db: Connection, table: str) -> Iterator[None]:
    """Publish the table, and hold a server process in the middle of its copy."""
    copying = "SELECT pid FROM pg_stat_activity WHERE state <> 'idle' AND query LIKE 'COPY (SELECT%' LIMIT 1"
    add(db, table)
    found, deadline = None, time.monotonic() + 60
    # No pause is needed: hundreds of small chunks do not take long.
    while (found := db.execute(copying).fetchone()) is None or not stopped(db, found[0]):
        assert time.monotonic() < deadline, "no copy seen"
    try:
        yield
    finally:
        os.kill(found[0], signal.SIGCONT)


def now(consumer: Consumer) -> Content:
    """Return everything that can be read at this moment, whatever the frontier is."""
    if consumer.mode != "log":
        with connect(consumer.target) as buffers:
            return buffer_reader.read_buffers(buffers, consumer.prefix)
    reader = open_reader(consumer.bootstrap)
    try:
        return read_topics(reader, consumer.prefix)
    finally:
        reader.close()


def change_both(db: Connection, consumer: Consumer, key: int) -> None:
    """Commit in both tables; return when the first one's row can be read and the server may discard the commit."""
    db.execute(
        f"""
        BEGIN;
        INSERT INTO early VALUES ({key}, 'new');
        INSERT INTO late VALUES ({ROWS + key}, 'new');
        UPDATE late SET v = 'changed {key}' WHERE id IN ({key}, {ROWS - key});
        DELETE FROM late WHERE id = {ROWS // 2 + key};
        COMMIT
        """.encode()
    )
    row = db.execute("SELECT pg_current_wal_insert_lsn()").fetchone()
    until(lambda: any(r.values[0] == str(key) for r in now(consumer).rows["public.early"]), "published")
    confirmed = "SELECT confirmed_flush_lsn >= %s FROM pg_replication_slots WHERE slot_name = %s"
    assert row is not None
    until(lambda: db.execute(confirmed, (row[0], consumer.prefix)).fetchone() == (True,), "acknowledged")


@LOG_AND_TABLES
def test_the_stream_goes_on_while_a_table_is_copied(make_consumer: MakeConsumer, db: Connection) -> None:
    consumer = initial_copy(make_consumer, db)
    with stuck_copy(db, "late"):
        for key in (1, 2):
            change_both(db, consumer, key)
        # More than may be held in memory.
        db.execute("UPDATE late SET v = 'all of it ' || id")
        until(lambda: consumer.metric("pg_trickle_cdc_spool_bytes") > 0, "spooled")
        assert (
            consumer.metric("pg_trickle_cdc_captured_tables") == 1 == consumer.metric("pg_trickle_cdc_copying_tables")
        )
        assert consumer.get("/readyz")[0] == 200
        if consumer.mode == "log":
            held = now(consumer).progress[-1]
            assert position(held["frontier"]) < position(held["written"]), "readers of frontiers wait for the copy"
    captured(consumer, 2)
    db.execute("UPDATE late SET v = 'after' WHERE id < 5")
    content = check(consumer, ["public.early", "public.late"])
    assert [row.snapshot for row in content.rows["public.late"][:ROWS]] == [True] * ROWS
    assert consumer.metric("pg_trickle_cdc_spool_bytes") == 0 == consumer.metric("pg_trickle_cdc_copying_tables")


def test_the_stream_waits_when_too_much_waits_for_the_copy(make_consumer: MakeConsumer, db: Connection) -> None:
    consumer = initial_copy(make_consumer, db, ring_spill_max_mb=0)
    with stuck_copy(db, "late"):
        db.execute("UPDATE late SET v = 'all of it ' || id")
        until(lambda: consumer.metric("pg_trickle_cdc_spool_bytes") > 0, "spooled")
        at = consumer.metric("pg_trickle_cdc_messages_total")
        db.execute("UPDATE late SET v = v || '!'")
        time.sleep(1)
        assert consumer.metric("pg_trickle_cdc_messages_total") == at, "it receives no more"
    captured(consumer, 2)
    check(consumer, ["public.late"])


def test_killed_while_the_stream_goes_on(make_consumer: MakeConsumer, db: Connection) -> None:
    """Acknowledged commits are not requested again, and rows that waited for the copy are in the next copy."""
    consumer = initial_copy(make_consumer, db)
    with stuck_copy(db, "late"):
        change_both(db, consumer, 1)
        consumer.kill()
    db.execute("UPDATE late SET v = 'while away' WHERE id < 5; DELETE FROM late WHERE id = 7")
    consumer.start()
    captured(consumer, 2)
    change_both(db, consumer, 2)
    content = check(consumer, ["public.early", "public.late"])
    assert [row.values[0] for row in content.rows["public.early"]] == ["1", "2"]


def again(db: Connection) -> None:
    """Take the second table out of the publication and change it where no stream sees it."""
    db.execute("ALTER PUBLICATION pg_trickle DROP TABLE late")
    db.execute("UPDATE late SET v = 'unseen' WHERE id % 7 = 0; DELETE FROM late WHERE id % 11 = 0")


@LOG_AND_TABLES
def test_a_second_copy_runs_beside_the_stream_and_is_seen_whole(make_consumer: MakeConsumer, db: Connection) -> None:
    """It takes several Kafka transactions. Killed in the middle, it begins again; readers never see half of it."""
    consumer = initial_copy(make_consumer, db, transaction_max_s=0)
    add(db, "late")
    captured(consumer, 2)
    again(db)
    with stuck_copy(db, "late"):
        for key in (1, 2):
            change_both(db, consumer, key)
        until(lambda: any(r.op == "T" for r in now(consumer).rows["public.late"]), "a first part is published")
        consumer.kill()
    db.execute("UPDATE late SET v = 'while away' WHERE id < 5; DELETE FROM late WHERE id = 8")
    consumer.start(wait=False)
    until(lambda: consumer.log.read_text().count("table captured table=public.late") == 2, "copied again")
    change_both(db, consumer, 3)
    content = check(consumer, ["public.early", "public.late"])
    first, second = (row for row in content.rows["public.late"] if row.op == "T" and row.snapshot)
    frontiers = [position(record["frontier"]) for record in content.progress]
    assert first.lsn < second.lsn
    assert not [at for at in frontiers if first.lsn < at <= second.lsn], "a frontier that counts half a copy"
    if consumer.mode == "log":
        assert sum("unfinished" in record for record in content.progress) > 2, "it takes several transactions"
        assert "unfinished" not in content.progress[-1]


def test_a_table_that_left_before_its_second_copy_was_complete(make_consumer: MakeConsumer, db: Connection) -> None:
    """Its readers are told before a frontier counts the half of it that is written."""
    consumer = initial_copy(make_consumer, db, transaction_max_s=0)
    add(db, "late")
    captured(consumer, 2)
    again(db)
    with stuck_copy(db, "late"):
        until(lambda: any(r.op == "T" for r in now(consumer).rows["public.late"]), "a first part is published")
        consumer.kill()
    db.execute("ALTER PUBLICATION pg_trickle DROP TABLE late")
    consumer.start(wait=False)
    assert "left the publications" in told(consumer, "late")
    db.execute("INSERT INTO early VALUES (9, 'x')")
    content = check(consumer, ["public.early"])
    (half,) = [row for row in content.rows["public.late"] if row.op == "T" and row.snapshot]
    (record,) = [record for record in content.captures if record["table"] == "late" and record.get("stopped")]
    assert position(record["snapshot_lsn"]) <= half.lsn < position(content.progress[-1]["frontier"])
