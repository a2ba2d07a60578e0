"""Topics use the broker's clock: a program whose own clock is ahead is not refused."""

from __future__ import annotations

import time

from confluent_kafka import KafkaError, Message, Producer

from tests.cdc_consumer.harness import Connection, Consumer

DAY_MS = 86_400_000


def test_a_message_from_the_future_is_accepted(consumer: Consumer, db: Connection) -> None:
    db.execute(
        "CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1); ALTER PUBLICATION pg_trickle ADD TABLE t"
    )
    consumer.start()
    refused: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            refused.append(error)

    producer = Producer({"bootstrap.servers": consumer.bootstrap})
    ahead = int(time.time() * 1000) + DAY_MS
    for topic in ("public.t", "progress", "schemas", "control", "beats"):
        producer.produce(f"{consumer.prefix}.{topic}", b"v", b"k", timestamp=ahead, on_delivery=delivered)
    assert producer.flush(30) == 0
    assert refused == []
