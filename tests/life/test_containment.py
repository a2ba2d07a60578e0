"""What one stream table, one query or one source does concerns that one; the others go on."""

from __future__ import annotations

import os

import psycopg
import pytest
from confluent_kafka import OFFSET_END, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from psycopg import errors

from applier.refresh.check import check_stream_table
from applier.refresh.computing.fills import MAX_UNFINISHED
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


@pytest.mark.skipif(not LONG, reason="restarts the applier: PG_TRICKLE_LONG_TESTS")
def test_rows_that_were_deleted_before_they_were_read(stack: Stack, db: Connection) -> None:
    """Retention, or somebody, empties the topic of one table: its readers stop with the reason, the others go on."""
    for name in ("emptied", "kept"):
        db.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, v int); INSERT INTO {name} VALUES (1, 1)".encode())
        create(db, **{f"of_{name}": f"SELECT id, v FROM {name}"})
    assert_equal(db, "of_emptied", "of_kept")
    stack.stop("applier")
    topic = table_topic(DEFAULT_PREFIX, TableId("public", "emptied"))
    admin = AdminClient({"bootstrap.servers": stack.addresses.kafka_bootstrap})
    reader = Consumer({"bootstrap.servers": stack.addresses.kafka_bootstrap, "group.id": "ends"})
    before = reader.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)[1]
    for name in ("emptied", "kept"):
        db.execute(f"INSERT INTO {name} VALUES (2, 2)".encode())

    def assert_written() -> None:
        assert reader.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)[1] > before

    oracle.eventually(assert_written)
    reader.close()
    for deleted in admin.delete_records([TopicPartition(topic, 0, OFFSET_END)]).values():
        deleted.result(30)
    stack.restart("applier")
    assert_equal(db, "of_kept")
    assert_suspended(db, "of_emptied", "deleted from topic .* before they were read")
    db.execute("SELECT pgtrickle.resume_stream_table('of_emptied')")
    db.execute("UPDATE emptied SET v = v + 1; UPDATE kept SET v = v + 1")
    assert_equal(db, "of_emptied", "of_kept")


@pytest.mark.skipif(not LONG, reason="kills the applier: PG_TRICKLE_LONG_TESTS")
def test_a_fill_that_ends_the_applier_each_time(stack: Stack, db: Connection) -> None:
    """It is out of service with the reason after some tries; a stream table that was filled beside it is not."""
    db.execute("CREATE TABLE deadly (id int PRIMARY KEY); INSERT INTO deadly SELECT generate_series(1, 60000)")
    db.execute(
        "CREATE FUNCTION hold_the_fill() RETURNS trigger LANGUAGE plpgsql AS"
        " 'BEGIN PERFORM pg_catalog.pg_advisory_xact_lock(4244); RETURN NULL; END'"
    )

    def assert_filling(since: object) -> None:
        waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'advisory' AND backend_start > %s"
        assert db.execute(waiting, (since,)).fetchone() == (1,)

    with psycopg.connect(stack.addresses.database_url) as holder:
        holder.execute("SELECT pg_advisory_xact_lock(4244)")
        [(start,)] = db.execute("SELECT clock_timestamp()").fetchall()
        with db.transaction():
            create(db, of_deadly="SELECT id FROM deadly")
            db.execute("CREATE TRIGGER hold BEFORE INSERT ON of_deadly EXECUTE FUNCTION hold_the_fill()")
        for _ in range(MAX_UNFINISHED):
            oracle.eventually(lambda since=start: assert_filling(since), within_s=90)  # type: ignore[misc]
            [(start,)] = db.execute("SELECT clock_timestamp()").fetchall()
            stack.kill("applier")
            stack.restart("applier")
        assert_suspended(db, "of_deadly", f"ended {MAX_UNFINISHED} times while it computed")
    db.execute("SELECT pgtrickle.resume_stream_table('of_deadly')")
    assert_equal(db, "of_deadly")


@pytest.mark.skipif(not LONG, reason="kills the applier: PG_TRICKLE_LONG_TESTS")
def test_a_write_that_takes_long(stack: Stack, db: Connection) -> None:
    """A large fill is being written, the applier is killed meanwhile and begins again; the others stay fresh."""
    db.execute("CREATE TABLE vast (id int PRIMARY KEY, v int); CREATE TABLE brisk (id int PRIMARY KEY)")
    db.execute("INSERT INTO vast SELECT i, i % 7 FROM generate_series(1, 60000) i")
    db.execute(
        "CREATE FUNCTION wait_for_test() RETURNS trigger LANGUAGE plpgsql AS"
        " 'BEGIN PERFORM pg_catalog.pg_advisory_xact_lock(4243); RETURN NULL; END'"
    )
    create(db, brisk_count="SELECT count(*) AS n FROM brisk")
    assert_equal(db, "brisk_count")

    def assert_waiting(since: object) -> None:
        waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'advisory' AND backend_start > %s"
        assert db.execute(waiting, (since,)).fetchone() == (1,)

    with psycopg.connect(stack.addresses.database_url) as holder:
        holder.execute("SELECT pg_advisory_xact_lock(4243)")
        [(start,)] = db.execute("SELECT clock_timestamp()").fetchall()
        with db.transaction():
            create(db, vast_all="SELECT id, v FROM vast")
            db.execute("CREATE TRIGGER wait_for_test BEFORE INSERT ON vast_all EXECUTE FUNCTION wait_for_test()")
        oracle.eventually(lambda: assert_waiting(start), within_s=60)
        for number in range(3):
            db.execute("INSERT INTO brisk VALUES (%s)", (number,))
            assert_equal(db, "brisk_count")
        [(start,)] = db.execute("SELECT clock_timestamp()").fetchall()
        stack.kill("applier")
        stack.restart("applier")
        oracle.eventually(lambda: assert_waiting(start), within_s=90)
        db.execute("INSERT INTO brisk VALUES (10)")
        assert_equal(db, "brisk_count")
        assert db.execute("SELECT count(*) FROM vast_all").fetchone() == (0,)
    db.execute("UPDATE vast SET v = 8 WHERE id = 1")
    assert_equal(db, "vast_all", "brisk_count")


def test_queries_that_are_large_in_form_or_have_no_order(db: Connection) -> None:
    """PostgreSQL runs them, or they are refused with the reason; another stream table stays fresh."""
    db.execute("CREATE TABLE wide (v int PRIMARY KEY); INSERT INTO wide VALUES (1), (2)")
    joins = "SELECT v FROM wide" + "".join(f" FULL JOIN wide AS w{i} USING (v)" for i in range(100))
    numbered = "SELECT v, row_number() OVER () AS r FROM wide"
    create(db, wide_count="SELECT count(*) AS n FROM wide")
    with pytest.raises(psycopg.Error, match="not supported"):
        db.execute("SELECT pgtrickle.create_stream_table('wide_strict', %s, refresh_mode => 'DIFFERENTIAL')", (joins,))
    create(db, wide_joined=joins, wide_numbered=numbered)
    db.execute("SELECT pgtrickle.create_stream_table('wide_never', %s, refresh_mode => 'DIFFERENTIAL')", (numbered,))
    assert_equal(db, "wide_count", "wide_joined", "wide_numbered")
    db.execute("INSERT INTO wide VALUES (3)")
    assert_equal(db, "wide_count", "wide_joined", "wide_numbered")
    assert_suspended(db, "wide_never", "order")
    for name in ("wide_joined", "wide_numbered"):
        last = db.execute("SELECT action FROM pgtrickle.get_refresh_history(%s, 1)", (name,)).fetchone()
        assert last == ("FULL_IN_POSTGRES",)


def test_a_row_that_is_too_large_for_its_topic(stack: Stack, db: Connection) -> None:
    db.execute("CREATE TABLE long_lines (id int PRIMARY KEY, t text); INSERT INTO long_lines VALUES (1, 'a')")
    create(db, whole_text="SELECT string_agg(t, '' ORDER BY id) AS t FROM long_lines")
    create(db, line_count="SELECT id FROM long_lines")
    assert_equal(db, "whole_text", "line_count")
    db.execute("INSERT INTO long_lines SELECT i, repeat('x', 700000) FROM generate_series(2, 5) i")

    def assert_stopped() -> None:
        found = "SELECT status, last_error_code FROM pgtrickle.pgt_stream_tables WHERE pgt_name = 'whole_text'"
        assert db.execute(found.encode()).fetchone() == ("SUSPENDED", "PublishingFailed")

    oracle.eventually(assert_stopped, within_s=60)
    db.execute("DELETE FROM long_lines WHERE id = 1")
    assert_equal(db, "line_count")
    replay = oracle.TopicReplay(stack.addresses.kafka_bootstrap, "trickle_out.public.line_count", "trickle_out.schemas")
    expected = oracle.query_result(db, "line_count")
    oracle.eventually(lambda: oracle.assert_same(expected, replay.catch_up(), "topic"), within_s=60)
