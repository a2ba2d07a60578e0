"""Change-buffer tables in PostgreSQL: one writer, progress that drop-slot deletes, a session that is terminated."""

from __future__ import annotations

import random

import psycopg
import pytest

from cdc_consumer.errors import SourceError
from cdc_consumer.settings import ConsumerSettings
from cdc_consumer.sinks import postgres
from cdc_consumer.sinks.postgres import BufferSink
from shared_schema.settings import load_settings
from tests.cdc_consumer.conftest import MakeConsumer
from tests.cdc_consumer.harness import Connection, by_stamp, check, connect, scalar
from tests.cdc_consumer.history import SCHEMA, TABLES, run_transaction
from tests.cdc_consumer.sinks.records import progress

NO_KAFKA = "127.0.0.1:1"


def test_a_new_writer_fences_the_old_one(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PG_TRICKLE_DATABASE_URL", database)
    monkeypatch.setattr(postgres, "LOCK_WAIT_S", 0.2)
    settings = load_settings(ConsumerSettings, mode="sidecar", slot="slot")
    postgres.prepare_buffers(settings)
    old = BufferSink(settings, lambda: None)
    old.commit([progress("slot")])
    new = BufferSink(settings, lambda: None)
    with pytest.raises(SourceError):
        old.commit([progress("slot")])
    new.commit([progress("slot")])
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
    assert scalar(db, "SELECT count(*) FROM pgtrickle_changes.progress") == 0
    db.execute("UPDATE t SET id = 2")
    consumer.start()
    content = check(consumer, ["public.t"])
    # The buffer has rows of the previous slot, so it is emptied first.
    assert [row.op for row in by_stamp(content.rows["public.t"])] == ["I", "T", "I"]


def test_a_lost_target_is_waited_for(make_consumer: MakeConsumer, db: Connection) -> None:
    """The sink's session is terminated: no row is lost or duplicated."""
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
