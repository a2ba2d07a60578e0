"""The broker is down while a hot table is written: the server stays connected, memory stays small, nothing is lost."""

from __future__ import annotations

import json
import time
from pathlib import Path

from tests.cdc_consumer.conftest import MakeConsumer
from tests.cdc_consumer.harness import Connection, Consumer, check, until
from tests.fixtures.alerts import next_alert
from tests.fixtures.kafka import KafkaBroker

ROWS = 200_000
MORE_MB = 20.0
"""The ring and a batch in librdkafka; it is some 6 MB, and a queue without bounds would need 30."""

SCHEMA = """
CREATE TABLE hot (id int PRIMARY KEY, v text);
ALTER PUBLICATION pg_trickle ADD TABLE hot
"""


def memory_mb(consumer: Consumer) -> float:
    for line in Path(f"/proc/{consumer.process.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    raise AssertionError("no VmRSS")


def sender(db: Connection, consumer: Consumer) -> tuple[int, str]:
    row = db.execute(
        "SELECT active_pid, confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = %s",
        (consumer.prefix,),
    ).fetchone()
    assert row is not None
    return row[0], row[1]


def test_the_broker_is_away_while_a_hot_table_is_written(
    make_consumer: MakeConsumer, db: Connection, kafka: KafkaBroker, tmp_path: Path
) -> None:
    folder = tmp_path / "spill"
    folder.mkdir()
    consumer = make_consumer(
        ring_buffer_sources="public.hot", ring_buffer_slots=20_000, ring_spill_folder=folder, wal_sender_timeout_s=4
    )
    db.execute(SCHEMA)
    db.execute("LISTEN pg_trickle_alert")
    consumer.start()
    db.execute("INSERT INTO hot VALUES (0, 'first')")
    consumer.caught_up()
    until(lambda: consumer.metric("pg_trickle_cdc_hot_sources") == 1, "hot")
    calm_mb = memory_mb(consumer)
    kafka.stop()
    before = sender(db, consumer)
    try:
        for first in range(1, ROWS + 1, ROWS // 20):
            last = first + ROWS // 20 - 1
            db.execute(f"INSERT INTO hot SELECT g, 'v' || g FROM generate_series({first}, {last}) g".encode())
        until(lambda: consumer.metric("pg_trickle_cdc_spilled_bytes_total") > 5_000_000, "spilled")
        alert = next_alert(db, "spill_threshold_exceeded", consumer.prefix, 20)
        assert alert["severity"] == "warning" and alert["spill_bytes"] > 0 and alert["by"] == "pg-trickle-cdc"
        time.sleep(4.5)  # longer than the server waits for a sign of life
        # The same server process: it got status updates all the time, and nothing unpublished was acknowledged.
        assert sender(db, consumer) == before
        more_mb = memory_mb(consumer) - calm_mb
        print(f"{more_mb:.0f} MB more than {calm_mb:.0f} MB during the outage")
        assert more_mb < MORE_MB
        assert list(folder.iterdir()) == []
        assert consumer.get("/healthz")[0] == 200
        code, text = consumer.get("/readyz")
        assert code == 503 and "no Kafka broker answered" in text
        status = json.loads(consumer.command("status", "--json").stdout)
        assert "no Kafka broker answered" in status["blocked"] and status["active"] and status["frontier"] is None
        assert status["instance"]["ready"] is False
    finally:
        kafka.start()
    until(lambda: consumer.get("/readyz")[0] == 200, "ready again")
    until(lambda: consumer.metric('pg_trickle_cdc_retries_total{what="kafka"}') > 0, "retries are counted", 12)
    content = check(consumer, ["public.hot"])
    assert len(content.rows["public.hot"]) == ROWS + 1
    assert consumer.metric("pg_trickle_cdc_reconnects_total") == 0
    assert consumer.metric("pg_trickle_cdc_spill_bytes") == 0 == consumer.metric("pg_trickle_cdc_ring_frames")
    log = consumer.log.read_text()
    assert log.count("go to disk") == 1 and log.count("all changes from disk are processed") == 1


def test_stopped_while_the_broker_is_away(make_consumer: MakeConsumer, db: Connection, kafka: KafkaBroker) -> None:
    """Spilled frames are lost with the process, and the slot sends them again."""
    consumer = make_consumer(ring_buffer_sources="public.hot", ring_buffer_slots=1_000)
    db.execute(SCHEMA)
    consumer.start()
    db.execute("INSERT INTO hot VALUES (0, 'first')")
    until(lambda: consumer.metric("pg_trickle_cdc_hot_sources") == 1, "hot")
    kafka.stop()
    try:
        for first in range(1, 20_000, 1_000):
            db.execute(f"INSERT INTO hot SELECT g, 'v' FROM generate_series({first}, {first + 999}) g".encode())
        until(lambda: consumer.metric("pg_trickle_cdc_spill_bytes") > 0, "spilled")
        began = time.monotonic()
        assert consumer.stop() == 0
        print(f"ended in {time.monotonic() - began:.1f} s")
    finally:
        kafka.start()
    consumer.start()
    content = check(consumer, ["public.hot"])
    assert len(content.rows["public.hot"]) == 20_001
