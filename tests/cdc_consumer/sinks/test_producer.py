"""Transactions of one id: offsets of delivered records, none of aborted ones, and only one writer."""

from __future__ import annotations

import pytest

from cdc_consumer.errors import Fenced, OversizeMessage
from cdc_consumer.health import Health
from cdc_consumer.metrics import Metrics
from cdc_consumer.settings import ConsumerSettings
from cdc_consumer.sinks.producer import TransactionalProducer
from cdc_consumer.sinks.topics import Topics
from tests.cdc_consumer.sinks.records import TABLE


def make(settings: ConsumerSettings) -> TransactionalProducer:
    return TransactionalProducer(settings, Topics(settings), lambda: None, Metrics(Health()))


def test_delivered_offsets(settings: ConsumerSettings) -> None:
    topic = Topics(settings.model_copy(update={"topic_partitions": 2})).ensure_table(TABLE)
    producer = make(settings)
    producer.begin()
    producer.begin()
    for partition in (0, 1, 1):
        producer.produce(topic, b"row", None, partition)
    assert producer.drain() == {topic: {0: 1, 1: 2}}
    assert producer.drain() == {}
    producer.commit("committing")
    assert not producer.open


def test_an_undone_transaction_leaves_no_offsets(settings: ConsumerSettings) -> None:
    topic = Topics(settings).ensure_table(TABLE)
    producer = make(settings)
    producer.begin()
    producer.produce(topic, b"row", None, 0)
    producer.drain()
    producer.abort()
    assert not producer.open
    producer.begin()
    producer.produce(topic, b"row", None, 0)
    # After the aborted row and its abort marker.
    assert producer.drain() == {topic: {0: 3}}
    producer.commit("committing")


def test_a_new_writer_fences_the_old_one(settings: ConsumerSettings) -> None:
    topic = Topics(settings).ensure_table(TABLE)
    old = make(settings)
    old.begin()
    old.produce(topic, b"row", None, 0)
    old.drain()
    make(settings)
    with pytest.raises(Fenced) as raised:
        old.commit("committing")
    assert raised.value.retryable


def test_a_row_that_is_too_long_is_named_with_its_size(settings: ConsumerSettings) -> None:
    topic = Topics(settings).ensure_table(TABLE)
    producer = make(settings)
    producer.begin()
    with pytest.raises(OversizeMessage, match=f"2000000 bytes does not fit into topic {topic}"):
        producer.produce(topic, bytes(2_000_000), None, 0)
    producer.abort()
