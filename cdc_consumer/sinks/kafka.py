"""The transactional producer: change rows in, whole commits and their progress record out, all or nothing.

One Kafka transaction is open from the first row until `publish`.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

from confluent_kafka import KafkaException

from cdc_consumer.change_rows.copy_lines import CopyEncoder
from cdc_consumer.change_rows.encode import TransactionEncoder
from cdc_consumer.change_rows.generate import EncodedRow
from cdc_consumer.change_rows.split import TableReader
from cdc_consumer.metrics import Metrics
from cdc_consumer.pgoutput.messages import Begin
from cdc_consumer.settings import ConsumerSettings
from cdc_consumer.sinks.producer import TransactionalProducer
from cdc_consumer.sinks.progress import read_schema
from cdc_consumer.sinks.schemas import SchemaRegistrar
from cdc_consumer.sinks.sink import Write
from cdc_consumer.sinks.topics import Topics
from shared_schema import control
from shared_schema.avro import ChangeCodec, codec
from shared_schema.change_row import ChangeRow
from shared_schema.control import ControlRecord
from shared_schema.lsn import Lsn
from shared_schema.progress import Capture, Offsets, Progress
from shared_schema.table_schema import TableSchema
from shared_schema.topics import control_topic, progress_topic

REPORTED_BYTES = 100_000
"""Rows of this size are reported on one by one: the broker may refuse them for it, and that must be said."""


@dataclass(slots=True)
class Channel:
    """A topic in the open transaction.

    The last row of each partition is held back until the end, so that only its delivery is reported on: that gives the
    partition's end, and a delivery that failed before it makes the commit fail.
    """

    topic: str
    partitions: int
    held: dict[int, tuple[bytes | None, bytes]] = field(default_factory=dict)


class TopicRowWriter:
    """Rows of one schema version on their way to a topic."""

    def __init__(
        self, publisher: KafkaSink, topics: Topics, channel: Channel, codec: ChangeCodec, header: bytes
    ) -> None:
        self.write: Write = partial(publisher.write, channel)
        self.write_all: Callable[[list[EncodedRow]], None] = partial(publisher.write_all, channel)
        self._publisher = publisher
        self._topics = topics
        self._channel = channel
        self._codec = codec
        self._header = header

    def redirect(self, write: Write) -> TopicRowWriter:
        """Encodes for the topic, writes elsewhere."""
        other = TopicRowWriter(self._publisher, self._topics, self._channel, self._codec, self._header)
        other.write, other.write_all = write, partial(_each, write)
        return other

    def encoder(self, reader: TableReader, begin: Begin) -> TransactionEncoder:
        """Generated functions that write Avro."""
        return TransactionEncoder(reader, self._header, begin)

    def copier(self, at: Lsn, now_us: int) -> CopyEncoder:
        """Generated functions that write Avro."""
        return CopyEncoder(self._codec, self._header, at, now_us)

    def append(self, row: ChangeRow) -> None:
        """The table-driven way."""
        key = None if row.values is None else self._codec.encode_key(row.values)
        self.write(key, self._header + self._codec.encode_body(row))

    def empty(self, row: ChangeRow) -> None:
        """Into every partition, with one stamp: so the next progress names them all, and none is read late."""
        self._publisher.write_everywhere(self._channel, self._header + self._codec.encode_body(row))

    def used(self) -> bool:
        """Whether the topic ever held a record."""
        return self._topics.used(self._channel.topic)


class KafkaSink:
    """Writes the change rows of one slot."""

    def __init__(self, settings: ConsumerSettings, topics: Topics, idle: Callable[[], None], metrics: Metrics) -> None:
        self._topics = topics
        self._schemas = SchemaRegistrar(settings)
        self._settings = settings
        self._slot = settings.slot
        self._progress_topic = progress_topic(settings.topic_prefix)
        self._control_topic = control_topic(settings.topic_prefix)
        self._control_end = 0
        self._ends: Offsets = {}
        self._channels: dict[str, Channel] = {}
        self._held: list[Channel] = []
        self._producer = TransactionalProducer(settings, topics, idle, metrics)

    @property
    def transaction_limit_s(self) -> float | None:
        """The broker ends transactions that last too long."""
        return float(self._settings.transaction_max_s)

    @property
    def untouched(self) -> bool:
        """Whether the progress topic never had a record."""
        return self._topics.end_offset(self._progress_topic, 0) == 0

    def remember(self, progress: Progress) -> None:
        """Take over the end offsets of the last progress record: every later one names all partitions."""
        self._ends = _later(progress.end_offsets, self._ends)
        self._control_end = max(progress.control_end, self._control_end)

    def control(self, record: ControlRecord) -> None:
        """Add a control record to the open Kafka transaction."""
        self._producer.begin()
        self._producer.produce(self._control_topic, control.encode_control(self._slot, record), None, 0)

    def schema(self, fingerprint: str) -> TableSchema | None:
        """A schema version an earlier instance wrote with."""
        return read_schema(self._settings, fingerprint)

    def row_writer(self, schema: TableSchema) -> TopicRowWriter:
        """Where rows of a schema version go; their schema is on its topic when this returns."""
        topic, written = self._topics.ensure_table(schema.table), codec(schema)
        header = self._schemas.ensure(written, topic)
        channel = self._channels.get(topic)
        if channel is None:
            channel = self._channels[topic] = Channel(topic, self._topics.partitions(topic))
        return TopicRowWriter(self, self._topics, channel, written, header)

    def write(self, channel: Channel, key: bytes | None, value: bytes) -> None:
        """Add an encoded row to the open Kafka transaction, opening one if needed."""
        held, partition = channel.held, 0
        if channel.partitions > 1 and key:
            partition = zlib.crc32(key) % channel.partitions
        if not held:
            self._hold(channel)
        elif (row := held.get(partition)) is not None:
            self._send(channel.topic, partition, [row])
        held[partition] = key, value

    def write_all(self, channel: Channel, rows: list[EncodedRow]) -> None:
        """The same for several."""
        if channel.partitions > 1:
            for key, value in rows:
                self.write(channel, key, value)
            return
        if not channel.held:
            self._hold(channel)
        else:
            rows = [channel.held[0], *rows]
        channel.held[0] = rows[-1]
        self._send(channel.topic, 0, rows[:-1])

    def _hold(self, channel: Channel) -> None:
        self._producer.begin()
        self._held.append(channel)

    def _send(self, topic: str, partition: int, rows: list[EncodedRow]) -> None:
        """The loop that every row goes through."""
        offer, report = self._producer.offer, self._producer.delivered
        for key, value in rows:
            try:
                offer(topic, value, key, partition, report if len(value) >= REPORTED_BYTES else None)
            except (BufferError, KafkaException):
                # Nothing was taken: wait for room, or say what is wrong.
                self._producer.produce(topic, value, key, partition)

    def write_everywhere(self, channel: Channel, value: bytes) -> None:
        """Add an encoded row without a key to every partition of the topic, behind what is held back there."""
        self._producer.begin()
        for partition in range(channel.partitions):
            if (row := channel.held.get(partition)) is not None:
                self._producer.produce(channel.topic, row[1], row[0], partition)
                # Reported on twice is harmless; the second place is the later one.
                channel.held[partition] = None, value
            else:
                self._producer.produce(channel.topic, value, None, partition)

    def publish(self, progress: Callable[[Offsets], Progress] | None, captures: tuple[Capture, ...] = ()) -> None:
        """End the transaction with its captures and its progress record; returns when it is committed.

        Without progress its end offsets go into the next record: a reader learns from there how far to read.
        """
        self._producer.begin()
        self._release()
        self._producer.drain()
        records: list[Capture | Progress] = [*captures]
        if progress is not None:
            # Not among the others: readers wait for those, and most do not read this one.
            written, self._producer.offsets = self._producer.offsets, {}
            self._control_end = written.pop(self._control_topic, {}).get(0, self._control_end)
            self._ends = _later(self._ends, written)
            records.append(replace(progress(self._ends), control_end=self._control_end))
        for record in records:
            self._producer.produce(self._progress_topic, record.encode(), record.key, 0)
        self._producer.commit("committing a transaction")

    def erase(self, keys: list[bytes]) -> None:
        """Delete progress records by their keys, in one transaction."""
        self._producer.begin()
        for key in keys:
            self._producer.produce(self._progress_topic, None, key, 0)
        self._producer.commit("erasing progress")

    def abort(self) -> None:
        """Undo what the open transaction holds; errors do not matter, an unfinished transaction is never read."""
        if not self._producer.open:
            return
        for channel in self._held:
            channel.held.clear()
        self._held.clear()
        self._producer.abort()

    def close(self) -> None:
        """Nothing is left behind but the transaction."""
        self.abort()

    def poll(self) -> None:
        """Take delivery reports that have come in."""
        self._producer.poll()

    def _release(self) -> None:
        for channel in self._held:
            for partition, (key, value) in channel.held.items():
                self._producer.produce(channel.topic, value, key, partition)
            channel.held.clear()
        self._held.clear()


def _each(write: Write, rows: list[EncodedRow]) -> None:
    for key, value in rows:
        write(key, value)


def _later(old: Offsets, new: Offsets) -> Offsets:
    """Both maps as one; a partition in both stands at the new offset."""
    return {topic: old.get(topic, {}) | new.get(topic, {}) for topic in old.keys() | new.keys()}
