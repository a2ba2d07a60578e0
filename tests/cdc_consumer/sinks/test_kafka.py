"""A Kafka transaction commits all of its rows or fails, although only the last of each partition is reported on."""

from __future__ import annotations

import secrets

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from cdc_consumer.errors import TopicError
from cdc_consumer.metrics import Metrics
from cdc_consumer.settings import ConsumerSettings
from cdc_consumer.sinks.kafka import Channel, KafkaSink
from cdc_consumer.sinks.topics import Topics
from shared_schema.progress import Offsets, Progress
from tests.cdc_consumer.sinks import records
from tests.fixtures.kafka import KafkaBroker


@pytest.fixture
def publisher(settings: ConsumerSettings) -> KafkaSink:
    topics = Topics(settings)
    topics.ensure_control()
    return KafkaSink(settings, topics, lambda: None, Metrics())


def channel(kafka: KafkaBroker, prefix: str, partitions: int) -> Channel:
    topic = NewTopic(f"{prefix}.public.t", num_partitions=partitions, config={"max.message.bytes": "5000"})
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_topics([topic])[topic.topic].result(20)
    return Channel(topic.topic, partitions)


def progress(offsets: Offsets) -> Progress:
    return records.progress("slot", offsets=offsets)


def test_the_ends_of_all_partitions_are_known(kafka: KafkaBroker, topic_prefix: str, publisher: KafkaSink) -> None:
    to, reported = channel(kafka, topic_prefix, 3), list[Offsets]()

    def ends(offsets: Offsets) -> Progress:
        reported.append({topic: dict(of) for topic, of in offsets.items()})
        return progress(offsets)

    for number in range(1000):
        publisher.write(to, b"%d" % number, b"value")
    publisher.publish(ends)
    publisher.write(to, b"1", b"value")
    publisher.publish(ends)
    assert sum(reported[0][to.topic].values()) == 1000
    moved = [p for p in range(3) if reported[1][to.topic][p] != reported[0][to.topic][p]]
    # One row, and the end marker of the first transaction.
    assert [reported[1][to.topic][p] - reported[0][to.topic][p] for p in moved] == [2]


def test_a_lost_row_in_the_middle_fails_the_transaction(
    kafka: KafkaBroker, topic_prefix: str, publisher: KafkaSink
) -> None:
    to = channel(kafka, topic_prefix, 1)
    publisher.write(to, b"1", b"small")
    publisher.write(to, b"2", secrets.token_bytes(20_000))
    publisher.write(to, b"3", b"small")
    publisher._producer._producer.flush(10)
    with pytest.raises(TopicError):
        publisher.write(to, b"4", b"small")
        publisher.publish(progress)
    publisher.abort()


def test_a_lost_row_found_only_at_the_commit(kafka: KafkaBroker, topic_prefix: str, publisher: KafkaSink) -> None:
    to = channel(kafka, topic_prefix, 2)
    publisher.write(to, b"1", b"small")
    publisher.write(to, b"1", secrets.token_bytes(20_000))
    publisher.write(to, b"1", b"small")
    publisher.write(to, b"2", b"small")
    with pytest.raises(TopicError):
        publisher.publish(progress)
