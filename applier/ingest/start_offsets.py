"""The positions of the inbox and what Kafka still holds -> the offsets at which reading starts.

Retention deletes rows from the beginning of a topic. Rows that were deleted before they were read are lost, and the
rows after them have no meaning until the table is captured again: the T row of the capture removes everything before
it. So a partition that begins after the position that is needed is read from its beginning, and counts from that T row.
Without such a capture nothing is known of that table until it is copied again; the others go on.

The progress topic is read from a checkpoint on: that of the last record up to the traces' frontier, or a later one if
too many records follow it. Records in between are not needed, they only let the frontier advance in smaller steps.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import closing
from dataclasses import dataclass, field
from typing import assert_never

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import EarliestSpec, OffsetSpec

from applier.errors import StreamLost
from applier.ingest.inbox import Lost, Skipped
from applier.ingest.stream import client_options, reaching_kafka
from applier.settings import ApplierSettings
from shared_schema.lsn import Lsn
from shared_schema.progress import Capture, Checkpoint, CheckpointPlace, Offsets, Progress, later_offsets
from shared_schema.progress_topic import (
    READER_OPTIONS,
    FoundRecord,
    complete_record,
    find_frontier,
    find_last,
    read_records,
    topic_range,
)
from shared_schema.table_schema import TableId
from shared_schema.topics import progress_topic, table_of_topic

REQUEST_TIMEOUT_S = 30.0

MAX_RECORDS = 20_000
"""Progress records that are read at a start, besides those since their checkpoint: that takes about a second."""


@dataclass
class StartOffsets:
    """Per partition the offset to read from, and the partitions of which rows are missing: a capture replaces those
    that are `skipped`, and nothing those that are `lost`."""

    offsets: Offsets = field(default_factory=lambda: defaultdict(dict))
    skipped: list[Skipped] = field(default_factory=list)
    lost: list[Lost] = field(default_factory=list)

    def note_missing(self, at: tuple[str, int], table: TableId, first: int, capture: Lsn | None) -> None:
        """Note that the rows of a partition before offset `first` are missing; a capture replaces them, or nothing."""
        if capture is not None:
            self.skipped.append(Skipped(at, table, first, capture))
            return
        problem = (
            f"they were deleted from topic {at[0]} before they were read: the applier was down for longer than the"
            " topic's retention"
        )
        self.lost.append(Lost(at, table, first, problem))


@dataclass(frozen=True, slots=True)
class _ProgressContent:
    """What the progress topic says at its end, and where to read it from."""

    first: int
    ends: Offsets
    captures: dict[TableId, Lsn]


def find_start_offsets(settings: ApplierSettings, positions: Offsets, frontier: Lsn) -> StartOffsets:
    """Return where reading starts, for positions that are complete up to `frontier`; StreamLost when they are those of
    other topics."""
    prefix, options = settings.topic_prefix, client_options(settings)
    found, content = StartOffsets(), None
    if positions and not any(table_of_topic(prefix, topic) for topic in positions):
        raise StreamLost(
            f"the traces were read from other topics than those of prefix {prefix}, for example {min(positions)}",
            hint="set PG_TRICKLE_TOPIC_PREFIX back; to use other topics, drop the stream tables and choose another "
            "PG_TRICKLE_SLOT, which has its own traces",
        )
    reader = options | READER_OPTIONS | {"group.id": "pg-trickle-offsets"}
    with closing(Consumer(reader)) as consumer, reaching_kafka():
        for (topic, partition), first in _first_offsets(AdminClient(options), prefix).items():
            table = table_of_topic(prefix, topic)
            if table is None and topic not in positions:
                content = content or _read_progress(consumer, topic, frontier)
                found.offsets[topic][partition] = content.first
                continue
            needed = positions.get(topic, {}).get(partition, 0)
            found.offsets[topic][partition] = max(first, needed)
            # The progress topic is compacted: its beginning moves, but the newest record of every key remains.
            if table is not None and first > needed:
                content = content or _read_progress(consumer, progress_topic(prefix), frontier)
                # After the last row of a partition only the marker of its transaction follows, which is no loss.
                if content.ends.get(topic, {}).get(partition, first) > needed:
                    capture = content.captures.get(table, frontier)
                    found.note_missing((topic, partition), table, first, capture if capture > frontier else None)
    return found


def _first_offsets(admin: AdminClient, prefix: str) -> dict[tuple[str, int], int]:
    """Return the first offset of every partition of the tables and of the progress topic, in one request per broker."""
    partitions = [
        TopicPartition(topic, partition)
        for topic, metadata in admin.list_topics(timeout=REQUEST_TIMEOUT_S).topics.items()
        if topic == progress_topic(prefix) or table_of_topic(prefix, topic) is not None
        for partition in metadata.partitions
    ]
    if not partitions:
        return {}
    earliest: OffsetSpec = EarliestSpec()  # type: ignore[no-untyped-call]
    listed = admin.list_offsets(dict.fromkeys(partitions, earliest), request_timeout=REQUEST_TIMEOUT_S)
    return {(at.topic, at.partition): int(found.result().offset) for at, found in listed.items()}


def _read_progress(consumer: Consumer, topic: str, frontier: Lsn) -> _ProgressContent:
    """Find the newest record and the one to begin with."""
    first, end = topic_range(consumer, topic)
    newest = find_last(consumer, topic, lambda found: isinstance(found.record, Progress))
    if newest is None or not isinstance(newest.record, Progress):
        return _ProgressContent(first, {}, {})
    whole = complete_record(consumer, topic, newest, newest.record)
    if newest.record.checkpoint is None or whole is None:
        return _read_all(consumer, topic, first, end)
    captures = {capture.table: capture.snapshot_lsn for capture in whole.captures}
    begin = _find_first(consumer, topic, newest, frontier, first)
    return _ProgressContent(begin, whole.end_offsets, captures)


def _find_first(consumer: Consumer, topic: str, newest: FoundRecord, frontier: Lsn, first: int) -> int:
    """Return the offset of the checkpoint to begin with; not before offset `first`."""
    first = max(first, newest.offset - MAX_RECORDS)
    found = find_frontier(consumer, topic, frontier, first, newest.offset)
    return _checkpoint_offset(found or newest)


def _checkpoint_offset(found: FoundRecord) -> int:
    match found.record:
        case Progress(checkpoint=CheckpointPlace(offset=offset)):
            return offset
        case _:
            return found.offset


def _read_all(consumer: Consumer, topic: str, first: int, end: int) -> _ProgressContent:
    """Read a topic without checkpoints, which an older version or another applier wrote."""
    ends: Offsets = {}
    captures: dict[TableId, Lsn] = {}
    for found in read_records(consumer, topic, first, end):
        match found.record:
            case Progress(end_offsets=named):
                ends = later_offsets(ends, named)
            case Capture(table=table, snapshot_lsn=at):
                captures[table] = at
            case Checkpoint() | None:
                pass
            case _:
                assert_never(found.record)
    return _ProgressContent(first, ends, captures)
