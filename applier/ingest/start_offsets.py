"""Where to begin to read: what of the topics is still there, and what makes up for what is not.

Retention deletes from a topic's beginning. Rows that were deleted before they were read are gone, and nothing after
them means anything until the table is captured anew: its T row ends whatever was there. So a partition that begins
behind the position it is needed from is read from its beginning on, and counts from that T row.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import closing
from dataclasses import dataclass, field

from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient

from applier.errors import Infrastructure, StreamLost
from applier.ingest.inbox import LOAD_AGAIN, Skipped
from applier.ingest.stream import client_options, reaching_kafka
from applier.settings import ApplierSettings
from shared_schema import progress
from shared_schema.lsn import Lsn
from shared_schema.progress import Offsets
from shared_schema.table_schema import TableId
from shared_schema.topics import progress_topic, table_of_topic

ASK_S = 30.0


@dataclass
class StartOffsets:
    """Per partition the offset to read from, and where that is not where it should be."""

    offsets: Offsets = field(default_factory=lambda: defaultdict(dict))
    skipped: list[Skipped] = field(default_factory=list)


@dataclass
class _Told:
    """What the progress topic says now."""

    ends: Offsets
    captured: dict[TableId, Lsn]

    def note(self, record: progress.Progress | progress.Capture) -> None:
        match record:
            case progress.Progress(end_offsets=ends):
                for name, partitions in ends.items():
                    self.ends[name].update(partitions)
            case progress.Capture(table=table, snapshot_lsn=at):
                self.captured[table] = at


def find_start_offsets(settings: ApplierSettings, positions: Offsets, frontier: Lsn) -> StartOffsets:
    """Positions to read from, complete up to `frontier` -> where reading begins; StreamLost when that is no use."""
    prefix, options = settings.topic_prefix, client_options(settings)
    found, told = StartOffsets(), None
    if positions and not any(table_of_topic(prefix, topic) for topic in positions):
        raise StreamLost(
            f"the traces are of other topics than those of prefix {prefix}, of {min(positions)} for example",
            hint="set PG_TRICKLE_TOPIC_PREFIX back; for other topics drop the stream tables and choose another "
            "PG_TRICKLE_SLOT, which has traces of its own",
        )
    reader = {"group.id": "pg-trickle-offsets", "isolation.level": "read_committed", "enable.partition.eof": True}
    with closing(Consumer(options | reader)) as consumer, reaching_kafka():
        for topic, metadata in AdminClient(options).list_topics(timeout=ASK_S).topics.items():
            table = table_of_topic(prefix, topic)
            if table is None and topic != progress_topic(prefix):
                continue
            for partition in metadata.partitions:
                first, _ = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=ASK_S)
                wanted = positions.get(topic, {}).get(partition, 0)
                found.offsets[topic][partition] = max(first, wanted)
                # The progress topic is compacted: its beginning moves, but the newest record of every key stays.
                if table is not None and first > wanted:
                    told = told or _read(consumer, progress_topic(prefix))
                    # Behind the last row of a partition there is the mark of its transaction, which is nothing to miss.
                    if told.ends.get(topic, {}).get(partition, first) > wanted:
                        until = _captured_since(told, table, topic, frontier)
                        found.skipped.append(Skipped((topic, partition), table, first, until))
    return found


def _captured_since(told: _Told, table: TableId, topic: str, frontier: Lsn) -> Lsn:
    captured = told.captured.get(table)
    if captured is None or captured <= frontier:
        raise StreamLost(
            f"change rows of {table} were deleted from topic {topic} before they were read: its retention is shorter "
            "than the applier was away",
            hint=LOAD_AGAIN,
        )
    return captured


def _read(consumer: Consumer, topic: str) -> _Told:
    """The progress topic to where it ends now: one that is written to all the time has no end."""
    told = _Told(defaultdict(dict), {})
    _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=ASK_S)
    consumer.assign([TopicPartition(topic, 0, 0)])
    while (message := consumer.poll(ASK_S)) is not None:
        if (error := message.error()) is not None:
            if error.code() == KafkaError._PARTITION_EOF:
                return told
            raise Infrastructure(f"{topic} could not be read: {error.str()}")
        if (value := message.value()) is not None:
            told.note(progress.decode_progress(value))
        if (message.offset() or 0) >= end - 1:
            return told
    raise Infrastructure(f"{topic} could not be read within {ASK_S:.0f} s")
