"""Modes sidecar and remote, where they differ from log: no Kafka, and no capture of their own buffer tables."""

from __future__ import annotations

import random
import time

import pytest

from cdc_consumer.settings import ConsumerSettings
from shared_schema.errors import SettingsError
from shared_schema.settings import load_settings
from tests.cdc_consumer.conftest import MakeConsumer
from tests.cdc_consumer.harness import Connection, Consumer, check, scalar, until
from tests.cdc_consumer.history import SCHEMA, TABLES, run_transaction

NO_KAFKA = "127.0.0.1:1"


def test_a_sidecar_of_all_tables_does_not_capture_its_own_writes(make_consumer: MakeConsumer, db: Connection) -> None:
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
    assert scalar(db, made) == len(TABLES)
    # Its own writes are streamed back to it and must end there: only heartbeats continue.
    published = consumer.metric("pg_trickle_cdc_publishes_total")
    rows = consumer.metric("pg_trickle_cdc_rows_total")
    time.sleep(1.5)
    assert consumer.metric("pg_trickle_cdc_publishes_total") - published <= 9
    assert consumer.metric("pg_trickle_cdc_rows_total") == rows


@pytest.mark.parametrize("mode", ["sidecar", "remote"], indirect=True)
def test_a_message_before_the_first_capture_does_not_keep_it_waiting(consumer: Consumer, db: Connection) -> None:
    """Its record is written in a transaction that ends with the first frontier, which waits for the capture."""
    db.execute(
        "CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1); ALTER PUBLICATION pg_trickle ADD TABLE t"
    )
    db.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (consumer.prefix,))
    db.execute("SELECT pg_logical_emit_message(true, 'app', 'early')")
    consumer.start(wait=False)
    until(lambda: consumer.metric("pg_trickle_cdc_captured_tables") == 1, "captured", 20)
    content = check(consumer, ["public.t"])
    assert [record["content"] for record in content.control if record.get("prefix") == "app"] == ["early"]


def test_remote_needs_a_target(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PG_TRICKLE_DATABASE_URL", "postgresql://h/db")
    with pytest.raises(SettingsError, match="target_url"):
        load_settings(ConsumerSettings, mode="remote")
