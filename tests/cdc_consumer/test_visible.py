"""What an operator sees: every documented metric changes; logs and errors never contain values of a row."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

from cdc_consumer.health import Health
from cdc_consumer.metrics import Metrics
from cdc_consumer.wal.diagnosis import diagnose_postgres
from tests.cdc_consumer.conftest import MakeConsumer
from tests.cdc_consumer.harness import Connection, Consumer, connect, until
from tests.cdc_consumer.test_refused_tables import stopped
from tests.fixtures.alerts import next_alert

GUIDE = Path(__file__).parents[2] / "docs" / "cdc.md"
SECRET = "Tr0ub4dor"


def test_the_guide_names_every_metric() -> None:
    named = set(re.findall(r"^\| `(pg_trickle_(?:cdc|alerts)_\w+)`", GUIDE.read_text(), re.MULTILINE))
    kept = {
        f"{family.name}_total" if family.type == "counter" else family.name
        for family in Metrics(Health()).registry.collect()
    }
    assert named == kept


def value(consumer: Consumer, name: str) -> float:
    return consumer.metric(f"pg_trickle_cdc_{name}")


def test_metrics_move(make_consumer: MakeConsumer, db: Connection) -> None:
    consumer = make_consumer(heartbeat_ms=300)
    db.execute("CREATE TABLE seen (id int PRIMARY KEY, v text); ALTER PUBLICATION pg_trickle ADD TABLE seen")
    consumer.start()
    db.execute("INSERT INTO seen SELECT g, 'v' FROM generate_series(1, 500) g")
    db.execute("UPDATE seen SET v = 'w' WHERE id <= 100")
    consumer.caught_up()
    assert value(consumer, 'rows_total{op="I",table="public.seen"}') == 600
    assert value(consumer, 'rows_total{op="D",table="public.seen"}') == 100
    assert value(consumer, "messages_total") >= 600 and value(consumer, "poll_seconds_count") > 0
    assert value(consumer, "transactions_total") >= 2 and value(consumer, "publishes_total") >= 2
    row = db.execute("SELECT pg_current_wal_lsn() - '0/0'").fetchone()
    assert row is not None
    until(lambda: value(consumer, "acknowledged_lsn") >= int(row[0]), "an idle position is acknowledged")
    assert value(consumer, "received_lsn") >= value(consumer, "published_lsn") == value(consumer, "acknowledged_lsn")
    until(lambda: value(consumer, "slot_confirmed_flush_lsn") >= int(row[0]), "the slot is looked at")
    assert 0 < value(consumer, "slot_restart_lsn") <= value(consumer, "slot_confirmed_flush_lsn")
    assert value(consumer, "slot_retained_bytes") >= value(consumer, "slot_unconfirmed_bytes")
    assert value(consumer, 'slot_wal_status{status="reserved"}') == 1 and value(consumer, "slot_safe_bytes") == -1
    with connect(consumer.url) as other:
        other.execute("BEGIN; INSERT INTO seen VALUES (-1)")
        until(lambda: value(consumer, "slot_oldest_transaction_seconds") > 0, "an open transaction shows")
    for gauge in ("ready", "source_reachable", "sink_reachable", "captured_tables"):
        assert value(consumer, gauge) == 1, gauge
    assert value(consumer, "ring_slots") == 65_536 and value(consumer, "last_transaction_id") > 0
    assert abs(value(consumer, "last_message_timestamp_seconds") - time.time()) < 60
    for gauge in (
        "copying_tables",
        "spool_bytes",
        "lag_seconds",
        "unacknowledged_commits",
        "behind",
        "standby",
        "ring_frames",
        "spill_bytes",
    ):
        # A beat may be on its way at this moment.
        until(lambda g=gauge: value(consumer, g) == 0, gauge)


def test_the_lag_of_the_slot_is_reported_as_it_grows(make_consumer: MakeConsumer, db: Connection) -> None:
    consumer = make_consumer(mode="sidecar", slot_lag_warning_threshold_mb=1, slot_lag_critical_threshold_mb=4)
    db.execute("CREATE TABLE waiting (id int PRIMARY KEY); ALTER PUBLICATION pg_trickle ADD TABLE waiting")
    consumer.start()
    db.execute("INSERT INTO waiting VALUES (0)")
    consumer.caught_up()
    db.execute("LISTEN pg_trickle_alert")
    with connect(consumer.url) as sink:
        # What the consumer publishes waits.
        sink.execute("BEGIN; LOCK TABLE pgtrickle_changes.progress")
        for row, severity in enumerate(("warning", "critical"), 1):
            db.execute("INSERT INTO waiting VALUES (%s)", (row,))
            db.execute("SELECT pg_logical_emit_message(false, 'x', repeat('x', 1000000)) FROM generate_series(1, 3)")
            alert = next_alert(db, "slot_lag_warning", f'"{severity}"', 20)
            assert alert["slot"] == consumer.prefix and alert["lag_bytes"] > row * 2_900_000
    # It is counted right after it is sent.
    until(lambda: consumer.metric('pg_trickle_alerts_total{event="slot_lag_warning"}') == 2, "both are counted")
    assert 'pg_trickle_alerts_total{event="applier_silent"} 0.0' in consumer.get("/metrics")[1]


def test_no_value_of_a_row_is_logged(make_consumer: MakeConsumer, db: Connection) -> None:
    consumer = make_consumer(log_format="json", log_level="debug")
    db.execute(
        f"""
        CREATE TABLE quiet (id text PRIMARY KEY, v text, n int);
        ALTER TABLE quiet REPLICA IDENTITY FULL;
        INSERT INTO quiet VALUES ('{SECRET}', '{SECRET}', 1);
        ALTER PUBLICATION pg_trickle ADD TABLE quiet
        """
    )
    consumer.start()
    db.execute(f"UPDATE quiet SET id = '{SECRET}2', v = 'x{SECRET}'; DELETE FROM quiet")
    consumer.caught_up()
    # Also when a row is the reason why its table is stopped.
    db.execute(f"INSERT INTO quiet VALUES ('{SECRET}', repeat('{SECRET}', 200000), 1)")
    reason = stopped(consumer, "quiet")
    assert consumer.stop() == 0
    text = consumer.log.read_text()
    assert "message.max.bytes" in reason and SECRET not in reason + text
    lines = text.splitlines()
    assert lines and all({"time", "level", "event"} <= json.loads(line).keys() for line in lines)


def test_what_the_server_says_about_a_value_is_not_repeated() -> None:
    error = diagnose_postgres("22P02", f'invalid input syntax for type integer: "{SECRET}"')
    assert SECRET not in str(error) and "22P02" in error.problem and error.hint
