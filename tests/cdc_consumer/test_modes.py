"""Modes sidecar and remote, where they are not the same as log: no Kafka, no feeding on oneself, one writer."""

from __future__ import annotations

import random
import time

import psycopg
import pytest

from cdc_consumer.errors import SourceError
from cdc_consumer.settings import ConsumerSettings
from cdc_consumer.sinks import postgres as buffers
from cdc_consumer.sinks.postgres import BufferSink
from shared_schema.errors import SettingsError
from shared_schema.lsn import Lsn
from shared_schema.progress import Offsets, Progress
from shared_schema.settings import load_settings
from tests.cdc_consumer.conftest import MakeConsumer
from tests.cdc_consumer.harness import Connection, by_stamp, check, connect, refused
from tests.cdc_consumer.history import SCHEMA, TABLES, run_transaction

NO_KAFKA = "127.0.0.1:1"


def one(db: Connection, query: str) -> object:
    row = db.execute(query.encode()).fetchone()
    assert row is not None
    return row[0]


def test_a_sidecar_of_all_tables_does_not_feed_on_itself(make_consumer: MakeConsumer, db: Connection) -> None:
    consumer = make_consumer(mode="sidecar", publications="everything", kafka_bootstrap=NO_KAFKA, heartbeat_ms=200)
    db.execute(SCHEMA)
    db.execute("DROP PUBLICATION pg_trickle; CREATE PUBLICATION everything FOR ALL TABLES")
    consumer.start()
    pick = random.Random(4)
    for _ in range(30):
        run_transaction(db, pick)
    check(consumer, TABLES)
    assert consumer.metric("pg_trickle_cdc_captured_tables") == len(TABLES)
    made = "SELECT count(*) FROM pg_tables WHERE schemaname = 'pgtrickle_changes' AND tablename LIKE 'changes%'"
    assert one(db, made) == len(TABLES)
    # What it writes comes back to it, and must end there: only heartbeats go on.
    published = consumer.metric("pg_trickle_cdc_publishes_total")
    rows = consumer.metric("pg_trickle_cdc_rows_total")
    time.sleep(1.5)
    assert consumer.metric("pg_trickle_cdc_publishes_total") - published <= 9
    assert consumer.metric("pg_trickle_cdc_rows_total") == rows


def test_a_retyped_column_keeps_old_and_new_values(make_consumer: MakeConsumer, db: Connection) -> None:
    consumer = make_consumer(mode="sidecar", kafka_bootstrap=NO_KAFKA)
    db.execute("CREATE TABLE t (id int PRIMARY KEY, v int); ALTER PUBLICATION pg_trickle ADD TABLE t")
    consumer.start()
    db.execute("INSERT INTO t VALUES (1, 7)")
    db.execute("ALTER TABLE t ALTER v TYPE text USING 'text ' || v; INSERT INTO t VALUES (2, 'eight')")
    db.execute("ALTER TABLE t RENAME v TO w; INSERT INTO t VALUES (3, 'nine')")
    consumer.caught_up()
    relid = one(db, "SELECT 't'::regclass::oid")
    found = db.execute(
        f"SELECT id, v__before_1, v, w, __pgt_version FROM pgtrickle_changes.changes_{relid} ORDER BY id".encode()
    ).fetchall()
    assert found == [(1, 7, None, None, 1), (2, None, "eight", None, 2), (3, None, None, "nine", 3)]


def test_types_of_the_buffer_columns(make_consumer: MakeConsumer, db: Connection) -> None:
    consumer = make_consumer(mode="sidecar", kafka_bootstrap=NO_KAFKA)
    db.execute(
        "CREATE DOMAIN price AS numeric(10,2) NOT NULL; CREATE TYPE mood AS ENUM ('sad');"
        "CREATE TABLE t (id int8 PRIMARY KEY, p price, c char(4), a int[], r int4range, m mood, ms mood[], k regclass);"
        "ALTER PUBLICATION pg_trickle ADD TABLE t"
    )
    consumer.start()
    relid = one(db, "SELECT 't'::regclass::oid")
    types = db.execute(
        "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = %s::regclass "
        "AND attnum > 0 AND attname NOT LIKE '\\_\\_%%' ORDER BY attnum",
        (f"pgtrickle_changes.changes_{relid}",),
    ).fetchall()
    assert dict(types) == {
        "id": "bigint",
        "p": "numeric(10,2)",
        "c": "character(4)",
        "a": "integer[]",
        "r": "int4range",
        "m": "text",
        "ms": "text",
        "k": "text",
    }


def test_a_column_with_a_name_of_ours_is_refused(make_consumer: MakeConsumer, db: Connection) -> None:
    consumer = make_consumer(mode="sidecar", kafka_bootstrap=NO_KAFKA)
    db.execute("CREATE TABLE t (id int PRIMARY KEY, __pgt_lsn int); ALTER PUBLICATION pg_trickle ADD TABLE t")
    text = refused(consumer)
    assert "__pgt_lsn" in text and "public.t" in text


def test_remote_needs_a_target(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PG_TRICKLE_DATABASE_URL", "postgresql://h/db")
    with pytest.raises(SettingsError, match="target_url"):
        load_settings(ConsumerSettings, mode="remote")


def progress(offsets: Offsets) -> Progress:
    return Progress("slot", "1", 1, Lsn(1), Lsn(2), offsets)


def test_a_new_writer_fences_the_old_one(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PG_TRICKLE_DATABASE_URL", database)
    monkeypatch.setattr(buffers, "LOCK_WAIT_S", 0.2)
    settings = load_settings(ConsumerSettings, mode="sidecar", slot="slot")
    buffers.prepare_buffers(settings)
    old = BufferSink(settings, lambda: None)
    old.publish(progress)
    new = BufferSink(settings, lambda: None)
    with pytest.raises(SourceError):
        old.publish(progress)
    new.publish(progress)
    old.close()
    new.close()
    with connect(database) as connection:
        assert connection.execute("SELECT count(*) FROM pgtrickle_changes.progress").fetchone() == (1,)


def test_drop_slot_forgets_the_buffers_progress(make_consumer: MakeConsumer, db: Connection) -> None:
    consumer = make_consumer(mode="sidecar", kafka_bootstrap=NO_KAFKA)
    db.execute(
        "CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1); ALTER PUBLICATION pg_trickle ADD TABLE t"
    )
    consumer.start()
    consumer.caught_up()
    assert consumer.command("status", "--json").returncode == 0
    assert consumer.stop() == 0
    assert consumer.command("drop-slot").returncode == 0
    assert one(db, "SELECT count(*) FROM pgtrickle_changes.progress") == 0
    db.execute("UPDATE t SET id = 2")
    consumer.start()
    content = check(consumer, ["public.t"])
    # The buffer held rows of the slot before, so they are emptied first.
    assert [row.op for row in by_stamp(content.rows["public.t"])] == ["I", "T", "I"]


def test_a_lost_target_is_waited_for(make_consumer: MakeConsumer, db: Connection) -> None:
    """The sink's session is cut: nothing is lost or doubled."""
    consumer = make_consumer(mode="sidecar", kafka_bootstrap=NO_KAFKA)
    db.execute(SCHEMA)
    consumer.start()
    pick = random.Random(9)
    for _ in range(3):
        for _ in range(10):
            run_transaction(db, pick)
        with psycopg.connect(consumer.url, autocommit=True) as admin:
            admin.execute(
                "SELECT pg_terminate_backend(l.pid) FROM pg_locks l "
                "WHERE l.locktype = 'advisory' AND l.database = (SELECT oid FROM pg_database WHERE datname = "
                "current_database())"
            )
    check(consumer, TABLES)
