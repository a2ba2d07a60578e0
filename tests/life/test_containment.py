"""What one stream table, one query or one source does concerns that one; the others go on."""

from __future__ import annotations

import os

import psycopg
import pytest
from confluent_kafka import Producer
from psycopg import errors

from applier.refresh.check import check_stream_table
from deploy.local.stack import Stack
from shared_schema.table_schema import TableId
from shared_schema.topics import DEFAULT_PREFIX, table_topic
from tests import oracle

Connection = psycopg.Connection[tuple[object, ...]]

LONG = bool(os.environ.get("PG_TRICKLE_LONG_TESTS"))


def create(db: Connection, **queries: str) -> None:
    for name, query in queries.items():
        db.execute("SELECT pgtrickle.create_stream_table(%s, %s)", (name, query))


def assert_equal(db: Connection, *names: str) -> None:
    for name in names:
        checked = check_stream_table(db, TableId("public", name))
        assert checked.equal, checked


def assert_suspended(db: Connection, name: str, because: str) -> None:
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match=because):
        db.execute("SELECT pgtrickle.wait_for(%s)", (name,))


def test_a_message_that_nobody_can_decode(stack: Stack, db: Connection) -> None:
    """Somebody else writes to the topic of one table: its readers stop with the reason, and a new copy mends them."""
    db.execute("CREATE TABLE garbled (id int PRIMARY KEY, v int); INSERT INTO garbled VALUES (1, 1)")
    db.execute("CREATE TABLE clean (id int PRIMARY KEY, v int); INSERT INTO clean VALUES (1, 1)")
    create(db, of_garbled="SELECT id, v FROM garbled", count_garbled="SELECT count(*) AS n FROM garbled")
    create(db, of_clean="SELECT v, count(*) AS n FROM clean GROUP BY v")
    assert_equal(db, "of_garbled", "count_garbled", "of_clean")
    producer = Producer({"bootstrap.servers": stack.addresses.kafka_bootstrap})
    for bad in (b"a value that nobody may see", b"\xc3\x01" + bytes(12)):
        producer.produce(table_topic(DEFAULT_PREFIX, TableId("public", "garbled")), bad)
    assert producer.flush(10) == 0
    db.execute("INSERT INTO garbled VALUES (2, 2)")
    db.execute("INSERT INTO clean VALUES (2, 2)")
    assert_equal(db, "of_clean")
    for name in ("of_garbled", "count_garbled"):
        assert_suspended(db, name, "could not be taken in")
    shown = db.execute("SELECT last_error_message FROM pgtrickle.pgt_stream_tables WHERE pgt_name = 'of_garbled'")
    assert "nobody may see" not in str(shown.fetchone())
    for name in ("of_garbled", "count_garbled"):
        db.execute("SELECT pgtrickle.resume_stream_table(%s)", (name,))
    db.execute("UPDATE garbled SET v = v + 1")
    assert_equal(db, "of_garbled", "count_garbled", "of_clean")


@pytest.mark.skipif(not LONG, reason="restarts the applier: PG_TRICKLE_LONG_TESTS")
def test_paused_over_a_restart_and_passed_by_a_checkpoint(stack: Stack, db: Connection) -> None:
    """On resume it is brought up by a full difference, with the reason in its history."""
    limits = {"checkpoint_rows": "100", "max_buffer_rows": "10000"}
    for name, least in limits.items():
        db.execute("SELECT pgtrickle.set_setting(%s, %s)", (name, least))
    try:
        db.execute("CREATE TABLE passed (id int PRIMARY KEY, v int); CREATE TABLE idle (id int PRIMARY KEY)")
        db.execute("INSERT INTO passed SELECT i, 0 FROM generate_series(1, 50) i")
        create(db, goes_on="SELECT v, count(*) AS n FROM passed GROUP BY v", rests="SELECT id, v FROM passed")
        assert_equal(db, "goes_on", "rests")
        # Its frontier moves on, and Delta has no commit for that.
        db.execute("INSERT INTO idle VALUES (1)")
        assert_equal(db, "goes_on", "rests")
        db.execute("SELECT pgtrickle.pause_stream_table('rests')")
        stack.restart("applier")
        for v in range(1, 5):
            db.execute(
                "INSERT INTO passed SELECT i, %s FROM generate_series(%s::int, %s::int) i",
                (v, v * 10_000, v * 10_000 + 4_000),
            )
            assert_equal(db, "goes_on")

        def assert_passed() -> None:
            gone = "SELECT c.frontier > v.frontier FROM pgtrickle.pgt_checkpoints c, pgtrickle.pg_stat_stream_tables v"
            assert db.execute(f"{gone} WHERE v.pgt_name = 'rests'".encode()).fetchone() == (True,)

        oracle.eventually(assert_passed)
        db.execute("SELECT pgtrickle.resume_stream_table('rests')")
        db.execute("DELETE FROM passed WHERE id = 1")
        assert_equal(db, "goes_on", "rests")
        last = db.execute("SELECT action, refresh_reason FROM pgtrickle.get_refresh_history('rests', 1)").fetchone()
        assert last == ("FULL", "HISTORY_GONE")
    finally:
        for name in limits:
            db.execute("SELECT pgtrickle.reset_setting(%s)", (name,))
