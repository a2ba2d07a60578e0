"""The real program starts on a topic with many progress records; 3 000 000 with PG_TRICKLE_LONG_TESTS."""

from __future__ import annotations

import os
import time

from confluent_kafka import Producer

from shared_schema.progress import CheckpointPlace, Progress, decode_progress
from shared_schema.progress_topic import READER_OPTIONS, find_last
from tests.cdc_consumer.conftest import MakeConsumer
from tests.cdc_consumer.harness import Connection, check

RECORDS = 3_000_000 if os.environ.get("PG_TRICKLE_LONG_TESTS") else 50_000
LIMIT_S = 10.0


def test_the_consumer_is_ready_soon_on_a_long_topic(make_consumer: MakeConsumer, db: Connection) -> None:
    """The records repeat its own last one, as an idle consumer would have written them."""
    import confluent_kafka

    db.execute(
        "CREATE TABLE t (id int PRIMARY KEY); ALTER PUBLICATION pg_trickle ADD TABLE t; INSERT INTO t VALUES (1)"
    )
    consumer = make_consumer(heartbeat_ms=300)
    consumer.start()
    check(consumer, ["public.t"])
    assert consumer.stop() == 0
    topic = f"{consumer.prefix}.progress"
    reader = confluent_kafka.Consumer({"bootstrap.servers": consumer.bootstrap, "group.id": "test", **READER_OPTIONS})
    newest = find_last(reader, topic, lambda found: isinstance(found.record, Progress))
    reader.close()
    assert newest is not None and isinstance(newest.record, Progress)
    assert isinstance(newest.record.checkpoint, CheckpointPlace)
    value, key = newest.record.encode(), newest.record.key
    assert decode_progress(value) == newest.record
    producer = Producer({"bootstrap.servers": consumer.bootstrap, "compression.type": "lz4", "linger.ms": 50})
    for number in range(RECORDS):
        while True:
            try:
                producer.produce(topic, value, key, 0)
                break
            except BufferError:
                producer.poll(0.1)
        if number % 10_000 == 0:
            producer.poll(0)
    assert producer.flush(120) == 0
    db.execute("INSERT INTO t VALUES (2)")
    began = time.monotonic()
    consumer.start()
    took_s = time.monotonic() - began
    print(f"{RECORDS} records: ready after {took_s:.1f} s")
    assert took_s < LIMIT_S
    check(consumer, ["public.t"])
