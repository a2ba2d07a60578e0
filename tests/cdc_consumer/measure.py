"""`python -m tests.cdc_consumer.measure`: commit-to-topic latency and drain rate on embedded servers of its own."""

from __future__ import annotations

import statistics
import threading
import time
from pathlib import Path
from typing import Any

from confluent_kafka import TopicPartition

from deploy.local.kafka import Kafka
from deploy.local.postgres import Postgres
from tests.cdc_consumer.harness import Connection, Consumer, connect, until
from tests.cdc_consumer.topic_reader import open_reader
from tests.fixtures.choice import server_folder

COMMITS, RATE_PER_S = 300, 20
SCHEMA = """
CREATE PUBLICATION pg_trickle;
CREATE TABLE narrow (id int PRIMARY KEY, v text);
CREATE TABLE medium (id int PRIMARY KEY, a int, b int, c text, d text, e numeric(12,2), f timestamptz, g bool);
ALTER TABLE medium REPLICA IDENTITY FULL;
ALTER PUBLICATION pg_trickle ADD TABLE narrow, medium
"""
DRAINS = {
    "narrow insert": (200_000, "INSERT INTO narrow SELECT g, 'v' || g FROM generate_series(1, 200000) g"),
    "8-column insert": (
        100_000,
        "INSERT INTO medium SELECT g, g, g, 'c', 'd', g, now(), true FROM generate_series(1, 100000) g",
    ),
    "8-column update FULL": (50_000, "UPDATE medium SET a = a + 1 WHERE id <= 50000"),
}


def latencies_ms(consumer: Consumer, db: Connection) -> list[float]:
    """Milliseconds from the commit's return to a read_committed reader's sight."""
    reader, seen, stop = open_reader(consumer.bootstrap), list[float](), threading.Event()
    place = TopicPartition(f"{consumer.prefix}.public.narrow", 0)
    reader.list_topics(place.topic)
    reader.assign([TopicPartition(place.topic, 0, reader.get_watermark_offsets(place)[1])])

    def read() -> None:
        while not stop.is_set():
            message: Any = reader.poll(0.2)
            if message is not None and message.error() is None:
                seen.append(time.monotonic())

    thread, sent = threading.Thread(target=read), list[float]()
    thread.start()
    for number in range(COMMITS):
        db.execute("INSERT INTO narrow VALUES (%s, 'x')", (-number - 1,))
        sent.append(time.monotonic())
        time.sleep(1 / RATE_PER_S)
    until(lambda: len(seen) >= COMMITS, "all seen", 10)
    stop.set()
    thread.join()
    reader.close()
    return sorted((b - a) * 1000 for a, b in zip(sent, seen, strict=True))


def drained_per_s(consumer: Consumer, db: Connection, statement: str, events: int) -> float:
    """Events per second of a consumer that starts when they are all in the log, its start included."""
    assert consumer.stop() == 0
    db.execute(statement.encode())
    row = db.execute("SELECT pg_current_wal_lsn()").fetchone()
    query = "SELECT confirmed_flush_lsn >= %s::pg_lsn FROM pg_replication_slots WHERE slot_name = %s"
    began = time.monotonic()
    consumer.start(wait=False)
    until(lambda: row and db.execute(query, (row[0], consumer.prefix)).fetchone() == (True,), "drained", 300)
    return events / (time.monotonic() - began)


def main() -> None:
    """Print the figures."""
    with server_folder("measure-postgres") as a, server_folder("measure-kafka") as b:
        postgres, kafka = Postgres(a, durable=False), Kafka(b)
        postgres.start()
        kafka.start()
        consumer = Consumer(postgres.url, kafka.bootstrap, "measure", Path(b))
        try:
            with connect(postgres.url) as db:
                db.execute(SCHEMA)
                consumer.start()
                ms = latencies_ms(consumer, db)
                p50, p95 = statistics.median(ms), ms[-COMMITS // 20]
                print(f"latency at {RATE_PER_S} commits/s: p50 {p50:.0f} ms, p95 {p95:.0f} ms")
                for name, (events, statement) in DRAINS.items():
                    print(f"{name}: {drained_per_s(consumer, db, statement, events):.0f} events/s")
        finally:
            consumer.end()
            kafka.stop()
            postgres.stop()


if __name__ == "__main__":
    main()
