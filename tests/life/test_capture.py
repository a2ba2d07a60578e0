"""Captures in production: tables join under load, and a table that Kafka cannot take concerns its own readers."""

from __future__ import annotations

import random
import time

import psycopg
import pytest
from psycopg import errors

from applier.refresh.check import check_stream_table
from deploy.local.stack import Stack
from shared_schema.table_schema import TableId
from tests.cdc_consumer.harness import Connection as Session
from tests.cdc_consumer.writers import writing

Connection = psycopg.Connection[tuple[object, ...]]


def create(db: Connection, name: str, query: str) -> None:
    db.execute("SELECT pgtrickle.create_stream_table(%s, %s)", (name, query))


def assert_equal(db: Connection, *names: str) -> None:
    for name in names:
        checked = check_stream_table(db, TableId("public", name))
        assert checked.equal, checked


def write_slowly(connection: Session, pick: random.Random) -> None:
    """Write to both tables in a transaction that is old when it commits."""
    key = pick.randrange(200)
    connection.execute(
        f"""
        BEGIN;
        INSERT INTO joined_first VALUES ({key}, 1) ON CONFLICT (id) DO UPDATE SET v = joined_first.v + 1;
        UPDATE joined_later SET v = v + 1 WHERE id = {pick.randrange(200)};
        SELECT pg_sleep(1);
        COMMIT
        """.encode()
    )


def write_fast(connection: Session, pick: random.Random) -> None:
    connection.execute(f"UPDATE joined_first SET v = v + 1 WHERE id = {200 + pick.randrange(50)}".encode())


def test_a_new_table_joins_while_every_write_transaction_is_old(stack: Stack, db: Connection) -> None:
    """The stream was always past the point of the copy before the copy was ready, so it never began."""
    for table in ("joined_first", "joined_later"):
        db.execute(f"CREATE TABLE {table} (id int PRIMARY KEY, v int)".encode())
        db.execute(f"INSERT INTO {table} SELECT i, 0 FROM generate_series(1, 250) i".encode())
    create(db, "of_joined_first", "SELECT count(*) AS n, sum(v) AS s FROM joined_first")
    url = stack.addresses.database_url
    with writing(url, write_slowly, sessions=3), writing(url, write_fast, sessions=1, pause_s=0.01):
        time.sleep(0.5)
        create(db, "of_joined_later", "SELECT count(*) AS n, sum(v) AS s FROM joined_later")
        # It joins after about two of these transactions, some seconds; the rest is for a busy machine.
        db.execute("SELECT pgtrickle.wait_for('of_joined_later', timeout => interval '120 s')")
    assert_equal(db, "of_joined_first", "of_joined_later")


def test_a_row_that_kafka_does_not_take_stops_the_readers_of_its_table(db: Connection) -> None:
    """One such row ended the consumer, again at every start, and with it every stream table."""
    db.execute("CREATE TABLE with_large (id int PRIMARY KEY, v text); INSERT INTO with_large VALUES (1, 'small')")
    db.execute("CREATE TABLE with_small (id int PRIMARY KEY); INSERT INTO with_small VALUES (1)")
    create(db, "of_large", "SELECT count(*) AS n FROM with_large")
    create(db, "of_small", "SELECT count(*) AS n FROM with_small")
    assert_equal(db, "of_large", "of_small")
    db.execute(
        "INSERT INTO with_large SELECT 2, string_agg(md5(g::text), '') FROM generate_series(1, 60000) g;"
        "INSERT INTO with_small VALUES (2)"
    )
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match=r"no longer captured.*does not fit"):
        db.execute("SELECT pgtrickle.wait_for('of_large', timeout => interval '60 s')")
    assert db.execute("SELECT n FROM of_large").fetchone() == (1,), "it stays at the last frontier that is right"
    assert_equal(db, "of_small")
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match=r"cannot be resumed: changes of .* does not fit"):
        db.execute("SELECT pgtrickle.resume_stream_table('of_large')")
    (found, *_) = db.execute(
        "SELECT error_class, still_there, remediation FROM pgtrickle.diagnose_errors('of_large')"
    ).fetchall()
    assert found[:2] == ("SourceStopped", True) and "restart pg-trickle-cdc" in str(found[2])
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match="no longer captured"):
        create(db, "of_large_too", "SELECT id FROM with_large")
        db.execute("SELECT pgtrickle.wait_for('of_large_too', timeout => interval '60 s')")
    db.execute("DROP TABLE IF EXISTS with_large CASCADE")
