"""The real program starts on a topic with 3 000 000 progress records."""

from __future__ import annotations

import os
import time

import confluent_kafka
import pytest
from confluent_kafka import Producer

from shared_schema.progress import CheckpointPlace, Progress, decode_progress
from shared_schema.progress_topic import READER_OPTIONS, find_last
from tests.cdc_consumer.conftest import MakeConsumer
from tests.cdc_consumer.harness import Connection, check

RECORDS = 3_000_000
LIMIT_S = 10.0


@pytest.mark.skipif(not os.environ.get("PG_TRICKLE_LONG_TESTS"), reason="many records: PG_TRICKLE_LONG_TESTS")
def test_the_consumer_is_ready_soon_on_a_long_topic(make_consumer: MakeConsumer, db: Connection) -> None:
    """The records repeat its own last one, as an idle consumer would have written them."""
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
    assert producer.flush(300) == 0
    db.execute("INSERT INTO t VALUES (2)")
    began = time.monotonic()
    consumer.start()
    took_s = time.monotonic() - began
    print(f"{RECORDS} records: ready after {took_s:.1f} s")
    assert took_s < LIMIT_S
    check(consumer, ["public.t"])
