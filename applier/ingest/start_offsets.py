"""The positions of the inbox and what Kafka still holds -> the offsets at which reading starts.

Retention deletes rows from the beginning of a topic. Rows that were deleted before they were read are lost, and the
rows after them have no meaning until the table is captured again: the T row of the capture removes everything before
it. So a partition that begins after the position that is needed is read from its beginning, and counts from that T row.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import closing
from dataclasses import dataclass, field

from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient

from applier.errors import Infrastructure, StreamLost
from applier.ingest.inbox import COPY_AGAIN, Skipped
from applier.ingest.stream import client_options, reaching_kafka
from applier.settings import ApplierSettings
from shared_schema import progress
from shared_schema.lsn import Lsn
from shared_schema.progress import Offsets
from shared_schema.table_schema import TableId
from shared_schema.topics import progress_topic, table_of_topic

REQUEST_TIMEOUT_S = 30.0


@dataclass
class StartOffsets:
    """Per partition the offset to read from, and the partitions of which rows are missing."""

    offsets: Offsets = field(default_factory=lambda: defaultdict(dict))
    skipped: list[Skipped] = field(default_factory=list)


@dataclass
class _ProgressContent:
    """The content of the progress topic: end offsets and captures."""

    ends: Offsets
    captures: dict[TableId, Lsn]

    def note(self, record: progress.Progress | progress.Capture) -> None:
        match record:
            case progress.Progress(end_offsets=ends):
                for name, partitions in ends.items():
                    self.ends[name].update(partitions)
            case progress.Capture(table=table, snapshot_lsn=at):
                self.captures[table] = at


def find_start_offsets(settings: ApplierSettings, positions: Offsets, frontier: Lsn) -> StartOffsets:
    """Return where reading starts, for positions that are complete up to `frontier`; StreamLost when rows are missing
    and no capture replaces them."""
    prefix, options = settings.topic_prefix, client_options(settings)
    found, content = StartOffsets(), None
    if positions and not any(table_of_topic(prefix, topic) for topic in positions):
        raise StreamLost(
            f"the traces were read from other topics than those of prefix {prefix}, for example {min(positions)}",
            hint="set PG_TRICKLE_TOPIC_PREFIX back; to use other topics, drop the stream tables and choose another "
            "PG_TRICKLE_SLOT, which has its own traces",
        )
    reader = {"group.id": "pg-trickle-offsets", "isolation.level": "read_committed", "enable.partition.eof": True}
    with closing(Consumer(options | reader)) as consumer, reaching_kafka():
        for topic, metadata in AdminClient(options).list_topics(timeout=REQUEST_TIMEOUT_S).topics.items():
            table = table_of_topic(prefix, topic)
            if table is None and topic != progress_topic(prefix):
                continue
            for partition in metadata.partitions:
                first, _ = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=REQUEST_TIMEOUT_S)
                needed = positions.get(topic, {}).get(partition, 0)
                found.offsets[topic][partition] = max(first, needed)
                # The progress topic is compacted: its beginning moves, but the newest record of every key remains.
                if table is not None and first > needed:
                    content = content or _read_progress(consumer, progress_topic(prefix))
                    # After the last row of a partition only the marker of its transaction follows, which is no loss.
                    if content.ends.get(topic, {}).get(partition, first) > needed:
                        until = _find_capture(content, table, topic, frontier)
                        found.skipped.append(Skipped((topic, partition), table, first, until))
    return found


def _find_capture(content: _ProgressContent, table: TableId, topic: str, frontier: Lsn) -> Lsn:
    capture = content.captures.get(table)
    if capture is None or capture <= frontier:
        raise StreamLost(
            f"change rows of {table} were deleted from topic {topic} before they were read: the applier was down for "
            "longer than the topic's retention",
            hint=COPY_AGAIN,
        )
    return capture


def _read_progress(consumer: Consumer, topic: str) -> _ProgressContent:
    """Read the progress topic up to its current end: a topic that is written to all the time never ends."""
    content = _ProgressContent(defaultdict(dict), {})
    _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=REQUEST_TIMEOUT_S)
    consumer.assign([TopicPartition(topic, 0, 0)])
    while (message := consumer.poll(REQUEST_TIMEOUT_S)) is not None:
        if (error := message.error()) is not None:
            if error.code() == KafkaError._PARTITION_EOF:
                return content
            raise Infrastructure(f"{topic} could not be read: {error.str()}")
        if (value := message.value()) is not None:
            content.note(progress.decode_progress(value))
        if (message.offset() or 0) >= end - 1:
            return content
    raise Infrastructure(f"{topic} could not be read within {REQUEST_TIMEOUT_S:.0f} s")
