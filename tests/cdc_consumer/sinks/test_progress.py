"""A restart reads back the committed records of its own slot, the last of each key, and schema versions."""

from __future__ import annotations

from typing import Any

import pytest

from cdc_consumer.health import Health
from cdc_consumer.metrics import Metrics
from cdc_consumer.settings import ConsumerSettings
from cdc_consumer.sinks import progress as progress_of_slot
from cdc_consumer.sinks.kafka import KafkaSink
from cdc_consumer.sinks.progress import is_in_doubt, read_schema, read_topic_state
from cdc_consumer.sinks.sink import StoredState, Tombstone
from cdc_consumer.sinks.topics import Topics
from shared_schema.avro import codec
from shared_schema.progress_topic import FoundRecord, find_last
from shared_schema.table_schema import Column
from tests.cdc_consumer.harness import until
from tests.cdc_consumer.sinks.records import TABLE, TEXT, capture, progress, schema


@pytest.fixture
def publisher(settings: ConsumerSettings) -> KafkaSink:
    topics = Topics(settings)
    topics.ensure_control()
    return KafkaSink(settings, topics, lambda: None, Metrics(Health()))


def committed(settings: ConsumerSettings) -> StoredState:
    """Return the stored state once the partition has the marker of the last transaction."""
    until(lambda: not is_in_doubt(settings), "decided")
    return read_topic_state(settings)


def test_nothing_there(settings: ConsumerSettings) -> None:
    assert read_topic_state(settings) == StoredState()
    assert read_schema(settings, "00") is None


def test_the_last_record_of_each_key(settings: ConsumerSettings, publisher: KafkaSink) -> None:
    slot = settings.slot
    publisher.commit([capture(slot)])
    void = committed(settings)
    assert void.progress is None and void.captures == {} and void.keys == (capture(slot).key,)
    for frontier in (5, 9):
        publisher.commit([progress(slot, frontier)])
    publisher.commit([progress("another", 70)])
    state = committed(settings)
    assert state.progress == progress(slot, 9) and state.captures == {TABLE: capture(slot)}
    publisher.commit([Tombstone(capture(slot).key)])
    assert committed(settings).captures == {}
    publisher.close()


def test_another_slot_that_goes_on_meanwhile_is_seen(
    settings: ConsumerSettings, publisher: KafkaSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its next progress comes after its newest one was found and before what follows that one is read."""
    another = progress("another", 70)
    publisher.commit([another])
    assert committed(settings).other_slot == "another"
    rest = iter([progress("another", 71)])

    def find_then_go_on(*of: Any) -> FoundRecord | None:
        found = find_last(*of)
        for record in rest:
            publisher.commit([record])
            until(lambda: not is_in_doubt(settings), "decided")
        return found

    monkeypatch.setattr(progress_of_slot, "find_last", find_then_go_on)
    assert read_topic_state(settings).other_slot == "another"
    publisher.commit([Tombstone(another.key)])
    assert committed(settings).other_slot is None
    publisher.close()


def test_what_is_not_committed_is_not_read_but_known_of(settings: ConsumerSettings, publisher: KafkaSink) -> None:
    publisher.commit([progress(settings.slot, 5)])
    committed(settings)
    later, producer = progress(settings.slot, 9), publisher._producer
    producer.begin()
    producer.produce(f"{settings.topic_prefix}.progress", later.encode(), later.key, 0)
    producer.drain()
    assert is_in_doubt(settings)
    assert read_topic_state(settings).progress == progress(settings.slot, 5)
    publisher.abort()
    assert committed(settings).progress == progress(settings.slot, 5)


def test_schema_versions_by_fingerprint(settings: ConsumerSettings, publisher: KafkaSink) -> None:
    versions = schema(), schema(Column("v", TEXT))
    for version in versions:
        publisher.row_writer(version)
    assert [read_schema(settings, codec(version).id.hex()) for version in versions] == list(versions)
    assert read_schema(settings, "00") is None
