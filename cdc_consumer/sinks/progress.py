"""Reads the progress topic, returns the last published state of a slot, from which a restart resumes.

The newest record of the slot is searched from the end of the topic. It names its checkpoint, and both together are the
state. A topic whose newest record has no checkpoint was written by an older version: it is read from its beginning.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import Consumer, KafkaException

from cdc_consumer.settings import ConsumerSettings
from cdc_consumer.sinks.failures import diagnose_kafka, kafka_error
from cdc_consumer.sinks.sink import StoredState
from cdc_consumer.sinks.topics import client_options
from shared_schema.avro import codec, parse_table_schema
from shared_schema.progress import Capture, Checkpoint, Progress, ProgressRecord
from shared_schema.progress_topic import (
    ANSWER_S,
    READER_OPTIONS,
    FoundRecord,
    complete_record,
    find_last,
    read_messages,
    read_records,
    topic_range,
)
from shared_schema.table_schema import TableSchema
from shared_schema.topics import progress_topic, schemas_topic

READING = "reading the progress topic"

READ_TIMEOUT_S = ANSWER_S


def read_topic_state(settings: ConsumerSettings, patience_s: float = READ_TIMEOUT_S) -> StoredState:
    """Return the committed state of the slot; empty if there is no topic."""
    topic, slot = progress_topic(settings.topic_prefix), settings.slot
    with _reading(settings, READING) as consumer:
        # The metadata request comes first: a consumer that does not know the partition's leader waits half a second.
        if consumer.list_topics(topic, timeout=patience_s).topics[topic].error is not None:
            return StoredState()
        other_slot = _find_other_slot(consumer, topic, slot)
        own = find_last(consumer, topic, lambda found: _is_of_slot(found, slot))
        if own is None or not isinstance(own.record, Progress):
            # Records before the tombstone of a dropped slot are void.
            first = own.offset if own is not None else 0
            return _fold(consumer, topic, slot, first, other_slot)
        whole = complete_record(consumer, topic, own, own.record)
        if own.record.checkpoint is None or whole is None:
            return _fold(consumer, topic, slot, 0, other_slot)
        captures = {capture.table: capture for capture in whole.captures}
        parts = [Checkpoint(slot, 0, part, 0, {}, {}, ()).key for part in range(own.record.checkpoint.parts)]
        keys = (whole.key, *(capture.key for capture in whole.captures), *parts)
        return StoredState(whole, captures, keys, other_slot)


def _is_of_slot(found: FoundRecord, slot: str) -> bool:
    """Return whether a record is the progress of a slot, or the tombstone that erased it."""
    return found.key == slot.encode()


def _find_other_slot(consumer: Consumer, topic: str, slot: str) -> str | None:
    """Return the slot of the newest progress if that is another slot and was not dropped."""
    newest = find_last(consumer, topic, lambda found: isinstance(found.record, Progress))
    if newest is None or not isinstance(newest.record, Progress) or newest.record.slot == slot:
        return None
    # The other slot may go on meanwhile, so that a later record of its key need not be the tombstone.
    last = newest
    for found in _later(consumer, topic, newest):
        last = found if found.key == newest.key else last
    return None if last.record is None else newest.record.slot


def _later(consumer: Consumer, topic: str, found: FoundRecord) -> Iterator[FoundRecord]:
    return read_records(consumer, topic, found.offset + 1, topic_range(consumer, topic)[1])


def is_in_doubt(settings: ConsumerSettings) -> bool:
    """Return whether the progress topic ends with transactions that readers do not see yet.

    The broker confirms a commit before it writes the markers into the partitions. So for a moment, or until a failed
    broker has restarted, the last record is stored but cannot be read.
    """
    readable, written = (_end(settings, isolation) for isolation in ("read_committed", "read_uncommitted"))
    return readable < written


def _end(settings: ConsumerSettings, isolation: str) -> int:
    topic = progress_topic(settings.topic_prefix)
    with _reading(settings, READING, isolation) as consumer:
        return topic_range(consumer, topic)[1]


@contextmanager
def _reading(settings: ConsumerSettings, doing: str, isolation: str = "read_committed") -> Iterator[Consumer]:
    """Open a consumer; its errors become typed errors, and `doing` says what it did."""
    group = {"group.id": f"pg-trickle-cdc-{settings.slot}", "isolation.level": isolation}
    consumer = Consumer({**client_options(settings), **READER_OPTIONS, **group})
    try:
        yield consumer
    except KafkaException as exception:
        raise diagnose_kafka(kafka_error(exception), doing) from exception
    finally:
        consumer.close()


def read_schema(settings: ConsumerSettings, fingerprint: str) -> TableSchema | None:
    """Return the schema version with this fingerprint from the schemas topic, under any key; None if there is none."""
    for text in _values(settings, schemas_topic(settings.topic_prefix)):
        found = parse_table_schema(json.loads(text))
        if codec(found).id.hex() == fingerprint:
            return found
    return None


def _values(settings: ConsumerSettings, topic: str) -> Iterator[bytes]:
    with _reading(settings, f"reading {topic}") as consumer:
        if consumer.list_topics(topic, timeout=READ_TIMEOUT_S).topics[topic].error is not None:
            return
        for message in read_messages(consumer, topic, *topic_range(consumer, topic)):
            if (value := message.value()) is not None:
                yield value


def _fold(consumer: Consumer, topic: str, slot: str, first: int, other_slot: str | None) -> StoredState:
    """Read all records from offset `first` on; the newest of each key counts."""
    records: dict[bytes, ProgressRecord] = {}
    begin, end = topic_range(consumer, topic)
    for found in read_records(consumer, topic, max(first, begin), end):
        if found.record is None:
            records.pop(found.key, None)
        elif found.record.slot == slot:
            records[found.key] = found.record
    progress = next((r for r in records.values() if isinstance(r, Progress)), None)
    captures = {r.table: r for r in records.values() if isinstance(r, Capture)}
    return StoredState(progress, captures if progress else {}, tuple(records), other_slot)
