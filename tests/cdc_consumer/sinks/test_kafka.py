"""A Kafka transaction commits all of its rows or fails, although only the last of each partition is reported on."""

from __future__ import annotations

import secrets

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from cdc_consumer.errors import TopicError
from cdc_consumer.health import Health
from cdc_consumer.metrics import Metrics
from cdc_consumer.settings import ConsumerSettings
from cdc_consumer.sinks.kafka import KafkaSink, TopicRowWriter
from cdc_consumer.sinks.topics import Topics
from tests.cdc_consumer.sinks.records import TABLE, progress, schema
from tests.fixtures.kafka import KafkaBroker


@pytest.fixture
def publisher(settings: ConsumerSettings) -> KafkaSink:
    topics = Topics(settings)
    topics.ensure_control()
    return KafkaSink(settings, topics, lambda: None, Metrics(Health()))


def writer(kafka: KafkaBroker, prefix: str, publisher: KafkaSink, partitions: int) -> TopicRowWriter:
    """Create the topic of the table beforehand -> its writer."""
    topic = NewTopic(f"{prefix}.{TABLE}", num_partitions=partitions, config={"max.message.bytes": "5000"})
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_topics([topic])[topic.topic].result(20)
    return publisher.row_writer(schema())


def test_the_ends_of_all_partitions_are_known(kafka: KafkaBroker, topic_prefix: str, publisher: KafkaSink) -> None:
    to, topic = writer(kafka, topic_prefix, publisher, 3), f"{topic_prefix}.{TABLE}"
    for number in range(1000):
        to.write(b"%d" % number, b"value")
    first = publisher.flush().end_offsets[topic]
    publisher.commit([progress("slot")])
    to.write(b"1", b"value")
    second = publisher.flush().end_offsets[topic]
    publisher.commit([progress("slot")])
    assert sum(first.values()) == 1000
    # Only what was written since: one row, and the end marker of the first transaction.
    assert [second[p] - first[p] for p in second] == [2]


def test_ends_are_remembered_over_a_commit_without_progress(
    kafka: KafkaBroker, topic_prefix: str, publisher: KafkaSink
) -> None:
    to = writer(kafka, topic_prefix, publisher, 1)
    to.write(b"1", b"value")
    publisher.commit(())
    assert publisher.flush().end_offsets == {f"{topic_prefix}.{TABLE}": {0: 1}}


def test_a_lost_row_in_the_middle_fails_the_transaction(
    kafka: KafkaBroker, topic_prefix: str, publisher: KafkaSink
) -> None:
    to = writer(kafka, topic_prefix, publisher, 1)
    to.write(b"1", b"small")
    to.write(b"2", secrets.token_bytes(20_000))
    to.write(b"3", b"small")
    publisher._producer._producer.flush(10)
    with pytest.raises(TopicError):
        to.write(b"4", b"small")
        publisher.commit([progress("slot")])
    publisher.abort()


def test_a_lost_row_found_only_at_the_commit(kafka: KafkaBroker, topic_prefix: str, publisher: KafkaSink) -> None:
    to = writer(kafka, topic_prefix, publisher, 2)
    to.write(b"1", b"small")
    to.write(b"1", secrets.token_bytes(20_000))
    to.write(b"1", b"small")
    to.write(b"2", b"small")
    with pytest.raises(TopicError):
        publisher.commit([progress("slot")])
