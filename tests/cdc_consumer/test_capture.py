"""Tables are captured, captured again or recreated while everything runs: no row is lost or duplicated."""

from __future__ import annotations

import random
import time

import pytest

from tests.cdc_consumer.conftest import LOG_AND_TABLES, MODES, MakeConsumer
from tests.cdc_consumer.harness import Connection, Consumer, by_stamp, check, connect, until
from tests.cdc_consumer.topic_reader import replay
from tests.cdc_consumer.writers import writing

TABLE = """
CREATE TABLE {0} (id int PRIMARY KEY, v int);
ALTER TABLE {0} REPLICA IDENTITY FULL;
INSERT INTO {0} SELECT g, 0 FROM generate_series(1, 300) g;
"""


def churn(connection: Connection, pick: random.Random) -> None:
    """Change both tables in one transaction, so that a snapshot between two statements would be visible."""
    key, gone = pick.randrange(400), pick.randrange(400)
    connection.execute(
        f"""
        BEGIN;
        INSERT INTO early VALUES ({key}, 1) ON CONFLICT (id) DO UPDATE SET v = early.v + 1;
        INSERT INTO late VALUES ({key}, 1) ON CONFLICT (id) DO UPDATE SET v = late.v + 1;
        DELETE FROM late WHERE id = {gone};
        COMMIT
        """.encode()
    )


def add(connection: Connection, *tables: str) -> None:
    """Do what create_stream_table does with its sources: publish them and write a message to the log."""
    connection.execute(
        f"BEGIN; ALTER PUBLICATION pg_trickle ADD TABLE {', '.join(tables)};"
        "SELECT pg_logical_emit_message(true, 'pg_trickle', 'capture'); COMMIT".encode()
    )


def captured(consumer: Consumer, count: int) -> None:
    until(lambda: consumer.metric("pg_trickle_cdc_captured_tables") >= count, f"{count} tables captured")


@MODES
def test_a_table_is_captured_under_load(consumer: Consumer, db: Connection) -> None:
    db.execute(TABLE.format("early").encode())
    db.execute(TABLE.format("late").encode())
    add(db, "early")
    consumer.start()
    with writing(consumer.url, churn, sessions=3, pause_s=0.005):
        time.sleep(0.5)
        add(db, "late")
        captured(consumer, 2)
        time.sleep(0.5)
    content = check(consumer, ["public.early", "public.late"])
    rows = by_stamp(content.rows["public.late"])
    (capture,) = [c for c in content.captures if c["table"] == "late"]
    assert [row.snapshot for row in rows[: capture["rows"]]] == [True] * capture["rows"]
    assert not any(row.snapshot for row in rows[capture["rows"] :])
    assert len(rows) > capture["rows"], "the writers should have changed it after the snapshot"


def slow(connection: Connection, pick: random.Random) -> None:
    """Change both tables in a transaction that is old when it commits."""
    key = pick.randrange(400)
    connection.execute(
        f"""
        BEGIN;
        INSERT INTO early VALUES ({key}, 1) ON CONFLICT (id) DO UPDATE SET v = early.v + 1;
        UPDATE late SET v = late.v + 1 WHERE id = {pick.randrange(100) + 100 * pick.randrange(4)};
        SELECT pg_sleep(1);
        DELETE FROM late WHERE id = {key};
        COMMIT
        """.encode()
    )


def lonely(connection: Connection, pick: random.Random) -> None:
    """Let the stream move on all the time."""
    connection.execute(f"UPDATE other SET v = {pick.randrange(100)} WHERE id = {pick.randrange(300)}".encode())


@LOG_AND_TABLES
@pytest.mark.parametrize("known", [False, True])
def test_a_table_joins_while_every_write_transaction_is_old(consumer: Consumer, db: Connection, known: bool) -> None:
    """The stream passes the point of the copy long before the point is known; the table joins at a later one."""
    for table in ("early", "late", "other"):
        db.execute(TABLE.format(table).encode())
    add(db, "early", "other", *(["late"] if known else []))
    consumer.start()
    if known:
        db.execute("ALTER PUBLICATION pg_trickle DROP TABLE late; UPDATE late SET v = 77 WHERE id % 50 = 0")
    with writing(consumer.url, slow, sessions=3), writing(consumer.url, lonely, sessions=1, pause_s=0.005):
        time.sleep(0.5)
        began = consumer.log.read_text().count("table captured table=public.late")
        add(db, "late")
        until(lambda: consumer.log.read_text().count("table captured table=public.late") > began, "joined", 15)
        time.sleep(1.2)
    check(consumer, ["public.early", "public.late", "public.other"])


def test_a_table_joins_a_server_that_became_idle(consumer: Consumer, db: Connection) -> None:
    """Nothing moves the log while the copy waits for the stream: then a message of the consumer does."""
    db.execute(TABLE.format("early").encode())
    db.execute(TABLE.format("late").encode())
    add(db, "early")
    consumer.start()
    with connect(consumer.url) as other:
        other.execute("BEGIN; INSERT INTO late VALUES (1000, 1)")
        add(db, "late")
        time.sleep(1)
        other.execute("COMMIT")
    captured(consumer, 2)
    check(consumer, ["public.early", "public.late"])


def test_a_long_transaction_delays_the_capture_and_nothing_else(consumer: Consumer, db: Connection) -> None:
    db.execute(TABLE.format("early").encode())
    db.execute(TABLE.format("late").encode())
    add(db, "early")
    consumer.start()
    with connect(consumer.url) as other:
        # It began before the publication changed, so its rows can only come from the snapshot.
        other.execute("BEGIN; INSERT INTO late VALUES (1000, 1); UPDATE late SET v = 5 WHERE id < 10")
        add(db, "late")
        db.execute("INSERT INTO early VALUES (1000, 1)")
        assert any(row.values[0] == "1000" for row in consumer.caught_up().rows["public.early"])
        # The stream has passed the capture's LSN by the time it is found, so the capture must begin again.
        with writing(consumer.url, churn, sessions=2, pause_s=0.002):
            time.sleep(0.8)
            assert consumer.metric("pg_trickle_cdc_captured_tables") == 1
            other.execute("COMMIT")
            captured(consumer, 2)
    db.execute("DELETE FROM late WHERE id = 1000")
    check(consumer, ["public.early", "public.late"])


def test_a_table_made_again_is_captured_again(consumer: Consumer, db: Connection) -> None:
    db.execute(TABLE.format("early").encode())
    add(db, "early")
    consumer.start()
    db.execute("UPDATE early SET v = 1 WHERE id = 1")
    db.execute("DROP TABLE early; CREATE TABLE early (id int PRIMARY KEY, name text)")
    db.execute("INSERT INTO early VALUES (1, 'new')")
    add(db, "early")
    until(lambda: len(consumer.caught_up().captures) == 2, "captured again")
    db.execute("INSERT INTO early VALUES (2, 'newer')")
    content = check(consumer, ["public.early"])
    (truncate,) = [row for row in content.rows["public.early"] if row.op == "T"]
    assert truncate.snapshot and truncate.seq == 0


@pytest.mark.parametrize("running", [True, False])
def test_a_table_that_left_the_publication_and_came_back(
    make_consumer: MakeConsumer, db: Connection, running: bool
) -> None:
    consumer = make_consumer()
    db.execute(TABLE.format("early").encode())
    add(db, "early")
    consumer.start()
    consumer.caught_up()
    if not running:
        assert consumer.stop() == 0
    db.execute("ALTER PUBLICATION pg_trickle DROP TABLE early")
    db.execute("DELETE FROM early WHERE id < 100; INSERT INTO early VALUES (500, 5)")
    add(db, "early")
    if not running:
        consumer.start()
    until(lambda: len(consumer.caught_up().captures) == 2, "captured again")
    db.execute("UPDATE early SET v = 9 WHERE id = 500")
    check(consumer, ["public.early"])


@MODES
def test_killed_while_copying(consumer: Consumer, db: Connection) -> None:
    """Nothing of an unfinished capture is visible, and the next attempt is complete."""
    db.execute(TABLE.format("early").encode())
    db.execute("INSERT INTO early SELECT g, 0 FROM generate_series(1000, 80000) g")
    db.execute(TABLE.format("late").encode())
    add(db, "early", "late")
    for pause_s in (0.0, 0.1):
        consumer.start(wait=False)
        until(lambda: consumer.metric("pg_trickle_cdc_captured_rows_total") > 0, "copying")
        time.sleep(pause_s)
        consumer.kill()
        db.execute("UPDATE early SET v = v + 1 WHERE id < 10")
    consumer.start()
    db.execute("UPDATE late SET v = v + 1 WHERE id < 10")
    check(consumer, ["public.early", "public.late"])


def test_killed_between_two_captures(consumer: Consumer, db: Connection) -> None:
    """The first table's capture remains, the second is captured again at a later LSN."""
    db.execute(TABLE.format("early").encode())
    db.execute(TABLE.format("late").encode())
    db.execute("INSERT INTO late SELECT g, 0 FROM generate_series(1000, 10000) g")
    consumer.start()
    with writing(consumer.url, churn, sessions=2, pause_s=0.005):
        time.sleep(0.3)
        add(db, "early", "late")
        until(lambda: "table captured table=public.early" in consumer.log.read_text(), "first capture")
        time.sleep(0.1)
        consumer.kill()
        consumer.start()
        captured(consumer, 2)
        time.sleep(0.3)
    check(consumer, ["public.early", "public.late"])


def test_filters_and_column_lists(consumer: Consumer, db: Connection) -> None:
    if db.info.server_version < 150000:
        pytest.skip("PostgreSQL 14 has neither")
    db.execute("CREATE TABLE t (id int PRIMARY KEY, v int, hidden text)")
    db.execute("INSERT INTO t SELECT g, g, 'secret' FROM generate_series(1, 10) g")
    db.execute("ALTER PUBLICATION pg_trickle ADD TABLE t (id, v) WHERE (id > 5)")
    consumer.start()
    db.execute("INSERT INTO t VALUES (20, 20, 'secret'), (0, 0, 'secret')")
    db.execute("UPDATE t SET id = -1 WHERE id = 20; DELETE FROM t WHERE id = 6")
    rows = by_stamp(consumer.caught_up().rows["public.t"])
    assert {row.columns for row in rows} == {("id", "v")}
    assert sorted(int(image[0] or 0) for image in replay(rows)) == [7, 8, 9, 10]


def test_several_publications(make_consumer: MakeConsumer, db: Connection) -> None:
    consumer = make_consumer(publications="pg_trickle,second one")
    db.execute(TABLE.format("early").encode())
    db.execute(TABLE.format("late").encode())
    add(db, "early")
    consumer.start()
    db.execute('ALTER PUBLICATION "second one" ADD TABLE late, early')
    db.execute("SELECT pg_logical_emit_message(true, 'pg_trickle', 'capture')")
    captured(consumer, 2)
    db.execute("UPDATE early SET v = 2; UPDATE late SET v = 2")
    content = check(consumer, ["public.early", "public.late"])
    assert len(content.captures) == 2


def test_a_new_copy_empties_every_partition(make_consumer: MakeConsumer, db: Connection) -> None:
    """A reader that lags in one of them must not mistake old rows for new ones."""
    consumer = make_consumer(topic_partitions=3)
    db.execute(TABLE.format("early").encode())
    add(db, "early")
    consumer.start()
    consumer.caught_up()
    db.execute("ALTER PUBLICATION pg_trickle DROP TABLE early")
    add(db, "early")
    until(lambda: len(consumer.caught_up().captures) == 2, "captured again")
    content = check(consumer, ["public.early"])
    copies = [row for row in content.rows["public.early"] if row.op == "T" and row.snapshot]
    assert {row.partition for row in copies} == {0, 1, 2}
    assert len({(row.lsn, row.seq) for row in copies}) == 1
    named = content.progress[-1]["end_offsets"]
    assert [set(map(int, partitions)) for partitions in named.values()] == [{0, 1, 2}]
