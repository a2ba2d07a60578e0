"""Writes change rows to Kafka: whole source commits and their progress record in one Kafka transaction.

A Kafka transaction is open from the first row until `publish`.
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
"""Rows of this size get a delivery report each: the broker may reject a row for its size, and the error must say so."""


@dataclass(slots=True)
class Channel:
    """A topic in the open transaction.

    The last row of each partition is held back until the end of the transaction, and only this row gets a delivery
    report. The report gives the partition's end offset. If the delivery of an earlier row failed, the commit fails.
    """

    topic: str
    partitions: int
    held: dict[int, tuple[bytes | None, bytes]] = field(default_factory=dict)


class TopicRowWriter:
    """Writes the rows of one schema version to a topic."""

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
        """Return a writer that encodes for the topic but passes the rows to `write`."""
        other = TopicRowWriter(self._publisher, self._topics, self._channel, self._codec, self._header)
        other.write, other.write_all = write, partial(_each, write)
        return other

    def encoder(self, reader: TableReader, begin: Begin) -> TransactionEncoder:
        """Return the encoder for the rows of one transaction: generated functions that write Avro."""
        return TransactionEncoder(reader, self._header, begin)

    def copier(self, at: Lsn, now_us: int) -> CopyEncoder:
        """Return the encoder for copied rows: generated functions that write Avro."""
        return CopyEncoder(self._codec, self._header, at, now_us)

    def append(self, row: ChangeRow) -> None:
        """Encode a row by the table-driven path and write it."""
        key = None if row.values is None else self._codec.encode_key(row.values)
        self.write(key, self._header + self._codec.encode_body(row))

    def append_truncate(self, row: ChangeRow) -> None:
        """Write the T row into every partition, with the same stamp.

        So the next progress record names all partitions, and no partition is read too late.
        """
        self._publisher.write_everywhere(self._channel, self._header + self._codec.encode_body(row))

    def is_used(self) -> bool:
        """Return whether the topic ever held a record."""
        return self._topics.is_used(self._channel.topic)


class KafkaSink:
    """Writes the change rows of one slot to Kafka topics."""

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
        """How long a Kafka transaction may last: the broker aborts longer ones."""
        return float(self._settings.transaction_max_s)

    @property
    def is_empty(self) -> bool:
        """Whether the progress topic never held a record."""
        return self._topics.end_offset(self._progress_topic, 0) == 0

    def restore_offsets(self, progress: Progress) -> None:
        """Take over the end offsets of the last progress record, because every later one names all partitions."""
        self._ends = _later(progress.end_offsets, self._ends)
        self._control_end = max(progress.control_end, self._control_end)

    def control(self, record: ControlRecord) -> None:
        """Add a control record to the open Kafka transaction."""
        self._producer.begin()
        self._producer.produce(self._control_topic, control.encode_control(self._slot, record), None, 0)

    def schema(self, fingerprint: str) -> TableSchema | None:
        """Return a schema version that an earlier instance used; None if it cannot be found."""
        return read_schema(self._settings, fingerprint)

    def row_writer(self, schema: TableSchema) -> TopicRowWriter:
        """Return the writer for a schema version; the schemas topic holds the schema when this returns."""
        topic, written = self._topics.ensure_table(schema.table), codec(schema)
        header = self._schemas.ensure(written, topic)
        channel = self._channels.get(topic)
        if channel is None:
            channel = self._channels[topic] = Channel(topic, self._topics.partitions(topic))
        return TopicRowWriter(self, self._topics, channel, written, header)

    def write(self, channel: Channel, key: bytes | None, value: bytes) -> None:
        """Add an encoded row to the open Kafka transaction; open one if needed."""
        held, partition = channel.held, 0
        if channel.partitions > 1 and key:
            partition = zlib.crc32(key) % channel.partitions
        if not held:
            self._hold(channel)
        elif (row := held.get(partition)) is not None:
            self._send(channel.topic, partition, [row])
        held[partition] = key, value

    def write_all(self, channel: Channel, rows: list[EncodedRow]) -> None:
        """Add several encoded rows to the open Kafka transaction."""
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
        """Pass rows to the producer. Every row goes through this loop, so it must be fast."""
        offer, report = self._producer.offer, self._producer.delivered
        for key, value in rows:
            try:
                offer(topic, value, key, partition, report if len(value) >= REPORTED_BYTES else None)
            except (BufferError, KafkaException):
                # The producer did not accept the row: wait for room, or raise the typed error.
                self._producer.produce(topic, value, key, partition)

    def write_everywhere(self, channel: Channel, value: bytes) -> None:
        """Add an encoded row without a key to every partition of the topic, after the row that is held back there."""
        self._producer.begin()
        for partition in range(channel.partitions):
            if (row := channel.held.get(partition)) is not None:
                self._producer.produce(channel.topic, row[1], row[0], partition)
                # Two delivery reports for one partition are harmless; the second one has the larger offset.
                channel.held[partition] = None, value
            else:
                self._producer.produce(channel.topic, value, None, partition)

    def publish(self, progress: Callable[[Offsets], Progress] | None, captures: tuple[Capture, ...] = ()) -> None:
        """Write captures and the progress record, and commit; returns when the transaction is committed.

        Without progress the end offsets go into the next progress record, which tells readers how far to read.
        """
        self._producer.begin()
        self._release()
        self._producer.drain()
        records: list[Capture | Progress] = [*captures]
        if progress is not None:
            # The control topic is not among the end offsets: readers wait for those, and most do not read this topic.
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
        """Abort the open transaction. Errors do not matter: an unfinished transaction is never read."""
        if not self._producer.open:
            return
        for channel in self._held:
            channel.held.clear()
        self._held.clear()
        self._producer.abort()

    def close(self) -> None:
        """Abort the open transaction."""
        self.abort()

    def poll(self) -> None:
        """Process delivery reports that have arrived."""
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
    """Merge both maps; for a partition that is in both, the new offset counts."""
    return {topic: old.get(topic, {}) | new.get(topic, {}) for topic in old.keys() | new.keys()}
