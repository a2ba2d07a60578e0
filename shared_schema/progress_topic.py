"""Finds records of a progress topic without reading all of it: the newest one from its end, an older one by frontier.

The topic may hold millions of records: compaction leaves the younger ones alone, so that readers see every frontier.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from shared_schema.checkpoints import CheckpointParts, complete_progress
from shared_schema.lsn import Lsn
from shared_schema.progress import Checkpoint, Progress, ProgressRecord, decode_progress

TAIL, TAIL_FACTOR = 500, 8
"""How many offsets before the end are read first, and how much more each time if nothing is found there."""

STEP = 1_000
"""A record that is searched by its frontier is found with this precision: each probe costs a request."""

ANSWER_S = 30.0
"""A broker that sends no record for so long is not available."""

READER_OPTIONS: dict[str, str | int | float | bool] = {
    "isolation.level": "read_committed",
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    "fetch.wait.max.ms": 10,
    # Few records are read at each place, so the client must not fetch many in advance.
    "queued.max.messages.kbytes": 4_096,
    "fetch.message.max.bytes": 65_536,
    "fetch.queue.backoff.ms": 5,
}
"""Options that a consumer must have for the functions here."""


@dataclass(frozen=True, slots=True)
class FoundRecord:
    """A record of the topic; `record` is None for a tombstone."""

    offset: int
    key: bytes
    record: ProgressRecord | None


def topic_range(consumer: Consumer, topic: str) -> tuple[int, int]:
    """Return the first offset of the topic and the one after the last committed record."""
    consumer.list_topics(topic, timeout=ANSWER_S)
    first, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=ANSWER_S)
    return int(first), int(end)


def read_records(consumer: Consumer, topic: str, first: int, end: int) -> Iterator[FoundRecord]:
    """Yield the records from offset `first` up to `end`, which is not included."""
    for message in read_messages(consumer, topic, first, end):
        value = message.value()
        record = None if value is None else decode_progress(value)
        yield FoundRecord(message.offset() or 0, message.key() or b"", record)


def read_messages(consumer: Consumer, topic: str, first: int, end: int) -> Iterator[Message]:
    """Yield the messages of a topic with one partition, from offset `first` up to `end`, which is not included."""
    if first >= end:
        return
    consumer.assign([TopicPartition(topic, 0, first)])
    for message in _messages(consumer):
        offset = message.offset() or 0
        if offset >= end:
            return
        yield message
        if offset == end - 1:
            return


def find_last(consumer: Consumer, topic: str, is_wanted: Callable[[FoundRecord], bool]) -> FoundRecord | None:
    """Return the newest record that is wanted; reads from the end of the topic, in growing steps."""
    first, end = topic_range(consumer, topic)
    size = TAIL
    while end > first:
        begin = max(first, end - size)
        wanted = [found for found in read_records(consumer, topic, begin, end) if is_wanted(found)]
        if wanted:
            return wanted[-1]
        end, size = begin, size * TAIL_FACTOR
    return None


def complete_record(consumer: Consumer, topic: str, found: FoundRecord, progress: Progress) -> Progress | None:
    """Return a progress record together with its checkpoint; None if the checkpoint is not on the topic any more."""
    place = progress.checkpoint
    if place is None:
        return progress
    parts = CheckpointParts()
    for part in read_records(consumer, topic, place.offset, found.offset):
        if isinstance(part.record, Checkpoint) and part.record.slot == progress.slot:
            parts.add(part.record)
            if (whole := parts.find(place)) is not None:
                return complete_progress(progress, whole)
    return None


def find_frontier(consumer: Consumer, topic: str, frontier: Lsn, first: int, last: int) -> FoundRecord | None:
    """Return a progress record up to `frontier`, less than two steps before the last such record.

    Looks at the offsets from `first` to `last`. If all records there are beyond the frontier, it is the first one.
    Frontiers of one slot only grow. Where they do not, because another slot wrote here before, the result is some
    record of the range, which is correct too: it only decides how many records are read.
    """
    before = _first_progress(consumer, topic, first, last + 1)
    low, high = first + STEP, last
    while before is not None and _is_up_to(before, frontier) and low <= high:
        middle = (low + high) // 2
        probe = _first_progress(consumer, topic, middle, last + 1)
        if probe is not None and _is_up_to(probe, frontier):
            before, low = probe, middle + STEP
        else:
            high = middle - STEP
    return before


def _is_up_to(found: FoundRecord, frontier: Lsn) -> bool:
    return isinstance(found.record, Progress) and found.record.frontier <= frontier


def _first_progress(consumer: Consumer, topic: str, first: int, end: int) -> FoundRecord | None:
    records = read_records(consumer, topic, first, end)
    return next((found for found in records if isinstance(found.record, Progress)), None)


def _messages(consumer: Consumer) -> Iterator[Message]:
    """Yield the messages of the one assigned partition up to its end."""
    deadline = time.monotonic() + ANSWER_S
    while True:
        message = consumer.poll(1.0)
        if message is None:
            if time.monotonic() >= deadline:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
            continue
        deadline = time.monotonic() + ANSWER_S
        if (error := message.error()) is None:
            yield message
        elif error.code() == KafkaError._PARTITION_EOF:
            return
        elif not error.retriable():
            raise KafkaException(error)
