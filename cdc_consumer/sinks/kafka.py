"""Writes change rows to Kafka: whole source commits and their progress record in one Kafka transaction.

A Kafka transaction is open from the first row until `commit`. The rows go through a `TopicChannel` per topic, the
`TransactionalProducer` waits for the broker, `Topics` creates and reads topics, `SchemaRegistrar` publishes schemas.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from cdc_consumer.change_rows.avro_bytes import restamp_message
from cdc_consumer.change_rows.copy_lines import CopyEncoder
from cdc_consumer.change_rows.encode import SlowEncoder, TransactionEncoder
from cdc_consumer.change_rows.generate import EncodedRow
from cdc_consumer.change_rows.split import TableReader
from cdc_consumer.metrics import Metrics
from cdc_consumer.pgoutput.messages import Begin
from cdc_consumer.settings import ConsumerSettings
from cdc_consumer.sinks.channel import TopicChannel
from cdc_consumer.sinks.producer import TransactionalProducer
from cdc_consumer.sinks.schemas import SchemaRegistrar
from cdc_consumer.sinks.sink import Delivered, RowWriter, SlotRecord, Write
from cdc_consumer.sinks.topics import Topics
from shared_schema import control
from shared_schema.avro import ChangeCodec, codec
from shared_schema.change_row import ChangeRow, Op, Stamp
from shared_schema.control import ControlRecord, LogMessage
from shared_schema.lsn import Lsn
from shared_schema.progress import Offsets, later_offsets
from shared_schema.table_schema import TableId, TableSchema
from shared_schema.topics import control_topic, progress_topic

CONTROL_BYTES = 900_000
"""A message that Kafka accepts with default settings."""


class TopicRowWriter:
    """Writes the rows of one schema version to a topic."""

    def __init__(self, topics: Topics, channel: TopicChannel, codec: ChangeCodec, header: bytes) -> None:
        self.write: Write = channel.write
        self.write_all: Callable[[list[EncodedRow]], None] = channel.write_all
        self._topics = topics
        self._channel = channel
        self._codec = codec
        self._header = header

    def redirect(self, write: Write) -> TopicRowWriter:
        """Return a writer that encodes for the topic but passes the rows to `write`."""
        other = TopicRowWriter(self._topics, self._channel, self._codec, self._header)
        other.write, other.write_all = write, partial(_each, write)
        return other

    def write_as(self, other: RowWriter, write: Write) -> Write:
        """Return a function that passes encoded rows to `write` with the header of another writer."""
        if not isinstance(other, TopicRowWriter):
            raise AssertionError("a sink has one kind of row writer")
        header, length = other._header, len(self._header)
        return lambda key, value: write(key, header + value[length:])

    def restamp(self, row: EncodedRow, stamp: Stamp) -> EncodedRow:
        """Return an encoded row with another stamp."""
        key, value = row
        return key, restamp_message(value, len(self._header), stamp.lsn.value, stamp.seq)

    def encoder(self, reader: TableReader, begin: Begin) -> TransactionEncoder | SlowEncoder:
        """Return the encoder for the rows of one transaction: generated functions that write Avro."""
        return TransactionEncoder(reader, self._header, begin) if reader.is_ordered else SlowEncoder()

    def copier(self, at: Lsn, now_us: int) -> CopyEncoder:
        """Return the encoder for copied rows: generated functions that write Avro."""
        return CopyEncoder(self._codec, self._header, at, now_us)

    def append(self, row: ChangeRow) -> None:
        """Encode a row by the table-driven path and write it."""
        key = None if row.values is None or row.op is Op.TRUNCATE else self._codec.encode_key(row.values)
        self.write(key, self._header + self._codec.encode_body(row))

    def append_truncate(self, row: ChangeRow) -> None:
        """Write the T row into every partition, with the same stamp.

        So the next progress record names all partitions, and no partition is read too late.
        """
        self._channel.write_everywhere(self._header + self._codec.encode_body(row))

    def is_used(self) -> bool:
        """Return whether the topic ever held a record."""
        return self._topics.is_used(self._channel.topic)


class KafkaSink:
    """Writes the change rows of one slot to Kafka topics."""

    def __init__(self, settings: ConsumerSettings, topics: Topics, idle: Callable[[], None], metrics: Metrics) -> None:
        self._topics = topics
        topics.look()
        self._schemas = SchemaRegistrar(settings)
        self._slot = settings.slot
        self._limit_s = float(settings.transaction_max_s)
        self._progress_topic = progress_topic(settings.topic_prefix)
        self._control_topic = control_topic(settings.topic_prefix)
        self._control_end = 0
        self._ends: Offsets = {}
        """Of the partitions written since the last `flush`."""
        self._channels: dict[str, TopicChannel] = {}
        self._producer = TransactionalProducer(settings, topics, idle, metrics)
        # After the previous writer was fenced: nobody else writes there from now on.
        self._progress_begin = topics.end_offset(self._progress_topic, 0)

    @property
    def transaction_limit_s(self) -> float | None:
        """How long a Kafka transaction may last: the broker aborts longer ones."""
        return self._limit_s

    def prepare(self, tables: Sequence[TableId]) -> None:
        """Create the topics that are missing, with one request."""
        self._topics.create_tables(tables)

    def row_writer(self, schema: TableSchema) -> TopicRowWriter:
        """Return the writer for a schema version; the schemas topic holds the schema when this returns."""
        topic, written = self._topics.ensure_table(schema.table), codec(schema)
        header = self._schemas.ensure(written, topic)
        channel = self._channels.get(topic)
        if channel is None:
            channel = TopicChannel(self._producer, topic, self._topics.partitions(topic))
            self._channels[topic] = channel
        return TopicRowWriter(self._topics, channel, written, header)

    def control(self, record: ControlRecord) -> None:
        """Add a control record to the open Kafka transaction."""
        self._producer.begin()
        value = control.encode_control(self._slot, record)
        if len(value) > CONTROL_BYTES and isinstance(record, LogMessage):
            # Anybody may write a message to the log. One that is too large must not stop the stream.
            short = replace(record, content=b"", omitted_bytes=len(record.content))
            value = control.encode_control(self._slot, short)
        self._producer.produce(self._control_topic, value, None, 0)

    def flush(self) -> Delivered:
        """Wait until every row is delivered -> the end offsets of all partitions written since the last call."""
        self._drain()
        ends, self._ends = self._ends, {}
        return Delivered(ends, self._control_end, max(self._progress_begin, self._producer.progress_end))

    def _drain(self) -> None:
        for channel in self._channels.values():
            channel.release()
        written = self._producer.drain()
        # The control topic is not among the end offsets: readers wait for those, and most do not read this topic.
        self._control_end = written.pop(self._control_topic, {}).get(0, self._control_end)
        if written:
            self._ends = later_offsets(self._ends, written)

    def commit(self, records: Sequence[SlotRecord]) -> None:
        """Write the records to the progress topic and commit; returns when the transaction is committed."""
        self._producer.begin()
        self._drain()
        for record in records:
            self._producer.produce(self._progress_topic, record.encode(), record.key, 0)
        self._producer.commit("committing a transaction")

    def abort(self) -> None:
        """Abort the open transaction. Errors do not matter: an unfinished transaction is never read."""
        if not self._producer.open:
            return
        for channel in self._channels.values():
            channel.drop()
        self._producer.abort()

    def poll(self) -> None:
        """Process delivery reports that have arrived."""
        self._producer.poll()

    def close(self) -> None:
        """Abort the open transaction."""
        self.abort()


def _each(write: Write, rows: list[EncodedRow]) -> None:
    for key, value in rows:
        write(key, value)
