"""A micro-batch comes to the driver in pieces of limited size: every message once, in the order of its partition."""

from __future__ import annotations

import json

import pyarrow as pa
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyspark.sql import DataFrame, SparkSession

from applier.ingest.pieces import MESSAGE_SCHEMA, LeftOut, read_pieces, split_left_out
from applier.ingest.stream import ClientOptions
from applier.spark.session import count_jobs
from tests.fixtures.kafka import KafkaBroker

Message = tuple[str, int, int, bytes | None]


def messages_of(pieces: list[pa.Table]) -> list[Message]:
    return [tuple(row.values()) for piece in pieces for row in piece.to_pylist()]


def test_what_did_not_fit_is_left_out_with_all_that_follows_it() -> None:
    rows: list[tuple[str, int, int, bytes | None, int | None]] = [
        ("a", 0, 7, b"x", 1),
        ("a", 0, 8, None, 9),
        ("a", 0, 9, None, None),
        ("a", 0, 11, b"y", 1),
        ("a", 1, 3, None, None),
        ("b", 0, 5, None, 2),
    ]
    messages = pa.table(
        [pa.array(column) for column in zip(*rows, strict=True)], ["topic", "partition", "offset", "value", "bytes"]
    )
    present, left_out = split_left_out(messages)
    assert messages_of([present]) == [("a", 0, 7, b"x"), ("a", 1, 3, None)]
    assert sorted(left_out, key=lambda each: each.topic) == [LeftOut("a", 0, 8, 11), LeftOut("b", 0, 5, 5)]


def batch_of(spark: SparkSession, kafka: KafkaBroker, *topics: str) -> DataFrame:
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", kafka.bootstrap)
    ends = json.dumps({topic: {"0": -1, "1": -1} for topic in topics})
    return reader.option("subscribe", ",".join(topics)).option("endingOffsets", ends).load()


def test_pieces_are_limited_and_whole(spark: SparkSession, kafka: KafkaBroker, topic_prefix: str) -> None:
    topics = [f"{topic_prefix}.{name}" for name in ("large", "mixed")]
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    for future in admin.create_topics([NewTopic(topic, 2) for topic in topics]).values():
        future.result()
    # Idempotent: a retry while the new topic gets its leader must not change the order.
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "compression.type": "lz4", "enable.idempotence": True})
    sent: dict[tuple[str, int], list[bytes | None]] = {}
    for i in range(60):
        # A value larger than a piece, small ones, and tombstones.
        size = 900_000 if i == 20 else 100_000 if i % 2 else 10
        value = None if i % 7 == 0 else bytes([i]) * size
        topic, partition = topics[i % 3 == 0], i % 2
        producer.produce(topic, value, key=b"k", partition=partition)
        sent.setdefault((topic, partition), []).append(value)
    assert producer.flush(20) == 0
    options: ClientOptions = {"bootstrap.servers": kafka.bootstrap}
    batch = batch_of(spark, kafka, *topics)
    for most, fewest_pieces in ((300_000, 10), (100_000_000, 1), (1, 40)):
        before = count_jobs(spark)
        pieces = list(read_pieces(batch, most, options))
        assert count_jobs(spark) == before + 1
        assert len(pieces) >= fewest_pieces and (most > 1 or len(pieces) < 61)
        found: dict[tuple[str, int], list[bytes | None]] = {}
        for topic, partition, offset, value in messages_of(pieces):
            assert offset == len(found.setdefault((topic, partition), []))
            found[topic, partition].append(value)
        assert found == sent
        for piece in pieces:
            assert piece.schema.equals(MESSAGE_SCHEMA)
            sizes = [len(value or b"") for value in piece["value"].to_pylist()]
            # The tasks of one micro-batch, two here, may each go beyond it by the message at hand.
            assert sum(sizes) - 2 * max(sizes, default=0) < most
