"""The transactional producer: change rows in, whole commits and their progress record out, all or nothing.

One Kafka transaction is open from the first row until `publish`. Nothing here blocks for more than a second without
calling `idle`, which keeps the replication connection alive while a broker is slow or away.
"""

from __future__ import annotations

import threading
import time
import zlib
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import partial

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from cdc_consumer.change_rows.copied import CopyEncoder
from cdc_consumer.change_rows.encode import TransactionEncoder
from cdc_consumer.change_rows.generate import One
from cdc_consumer.change_rows.split import TableReader
from cdc_consumer.errors import OversizeMessage, TopicError
from cdc_consumer.pgoutput.messages import Begin
from cdc_consumer.settings import ConsumerSettings
from cdc_consumer.sinks.failures import diagnose, kafka_error, may_try_again
from cdc_consumer.sinks.progress import read_schema
from cdc_consumer.sinks.schemas import SchemaRegistrar
from cdc_consumer.sinks.topics import Topics, client_options
from shared_schema import control
from shared_schema.avro import ChangeCodec, codec
from shared_schema.change_row import ChangeRow
from shared_schema.control import ControlRecord
from shared_schema.lsn import Lsn
from shared_schema.progress import Capture, Offsets, Progress
from shared_schema.table_schema import TableSchema
from shared_schema.topics import control_topic, progress_topic

TRANSACTION_TIMEOUT_MS = 900_000
"""The longest a broker allows by default; a source commit that takes longer to send cannot be published."""

STEP_S = 0.01
"""How long one wait may last before `idle` is called again: the server's data are taken in meanwhile."""


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


class TopicOutlet:
    """Rows of one schema version on their way to a topic."""

    def __init__(
        self, publisher: Publisher, topics: Topics, channel: Channel, codec: ChangeCodec, header: bytes
    ) -> None:
        self.write = partial(publisher.write, channel)
        self.write_all = partial(publisher.write_all, channel)
        self._publisher = publisher
        self._topics = topics
        self._channel = channel
        self._codec = codec
        self._header = header

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


class Publisher:
    """Writes the change rows of one slot."""

    def __init__(self, settings: ConsumerSettings, topics: Topics, idle: Callable[[], None]) -> None:
        self._topics = topics
        self._idle = idle
        self._schemas = SchemaRegistrar(settings)
        self._settings = settings
        self._slot = settings.slot
        self._progress_topic = progress_topic(settings.topic_prefix)
        self._control_topic = control_topic(settings.topic_prefix)
        self._control_end = 0
        self._open = False
        self._offsets: Offsets = {}
        self._ends: Offsets = {}
        self._failed: KafkaError | None = None
        self._channels: dict[str, Channel] = {}
        self._held: list[Channel] = []
        self._producer = Producer(
            {
                "queue.buffering.max.messages": 100_000,
                "queue.buffering.max.kbytes": 65_536,
                "linger.ms": 5,
                "compression.type": "lz4",
                **client_options(settings),
                "transactional.id": settings.transactional_id,
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                "acks": "all",
                "enable.idempotence": True,
            }
        )
        self._complete(self._producer.init_transactions, "taking over the slot's transactions")

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
        self._begin()
        self._produce(self._control_topic, control.encode(self._slot, record), None, 0)

    def schema(self, fingerprint: str) -> TableSchema | None:
        """A schema version an earlier instance wrote with."""
        return read_schema(self._settings, fingerprint)

    def outlet(self, schema: TableSchema) -> TopicOutlet:
        """Where rows of a schema version go; their schema is on its topic when this returns."""
        topic, written = self._topics.ensure_table(schema.table), codec(schema)
        header = self._schemas.ensure(written, topic)
        channel = self._channels.get(topic)
        if channel is None:
            channel = self._channels[topic] = Channel(topic, self._topics.partitions(topic))
        return TopicOutlet(self, self._topics, channel, written, header)

    def write(self, channel: Channel, key: bytes | None, value: bytes) -> None:
        """Add an encoded row to the open Kafka transaction, opening one if needed."""
        held, partition = channel.held, 0
        if channel.partitions > 1 and key:
            partition = zlib.crc32(key) % channel.partitions
        if not held:
            self._begin()
            self._held.append(channel)
        elif (row := held.get(partition)) is not None:
            large = len(row[1]) >= REPORTED_BYTES
            try:
                self._producer.produce(channel.topic, row[1], row[0], partition, self._delivered if large else None)
            except (BufferError, KafkaException):
                # Nothing was taken: wait for room, or say what is wrong.
                self._produce(channel.topic, row[1], row[0], partition)
        held[partition] = key, value

    def write_all(self, channel: Channel, rows: list[One]) -> None:
        """The same for several: the loop that every INSERT of a busy table goes through."""
        if channel.partitions > 1:
            for key, value in rows:
                self.write(channel, key, value)
            return
        produce, topic = self._producer.produce, channel.topic
        *rows, last = [channel.held[0], *rows] if channel.held else rows
        if not channel.held:
            self._begin()
            self._held.append(channel)
        for key, value in rows:
            try:
                produce(topic, value, key, 0, self._delivered if len(value) >= REPORTED_BYTES else None)
            except (BufferError, KafkaException):
                self._produce(topic, value, key, 0)
        channel.held[0] = last

    def write_everywhere(self, channel: Channel, value: bytes) -> None:
        """Add an encoded row without a key to every partition of the topic, behind what is held back there."""
        self._begin()
        for partition in range(channel.partitions):
            if (row := channel.held.get(partition)) is not None:
                self._produce(channel.topic, row[1], row[0], partition)
                # Reported on twice is harmless; the second place is the later one.
                channel.held[partition] = None, value
            else:
                self._produce(channel.topic, value, None, partition)

    def publish(self, progress: Callable[[Offsets], Progress] | None, captures: tuple[Capture, ...] = ()) -> None:
        """End the transaction with its captures and its progress record; returns when it is committed.

        Without progress its end offsets go into the next record: a reader learns from there how far to read.
        """
        self._begin()
        self._release()
        self._drain()
        records: list[Capture | Progress] = [*captures]
        if progress is not None:
            # Not among the others: readers wait for those, and most do not read this one.
            self._control_end = self._offsets.pop(self._control_topic, {}).get(0, self._control_end)
            self._ends = _later(self._ends, self._offsets)
            records.append(replace(progress(self._ends), control_end=self._control_end))
        for record in records:
            self._produce(self._progress_topic, record.encode(), record.key, 0)
        self._complete(self._producer.commit_transaction, "committing a transaction")
        self._open = False
        if progress is not None:
            self._offsets = {}

    def erase(self, keys: list[bytes]) -> None:
        """Delete progress records by their keys, in one transaction."""
        self._begin()
        for key in keys:
            self._produce(self._progress_topic, None, key, 0)
        self._complete(self._producer.commit_transaction, "erasing progress")
        self._open, self._offsets = False, {}

    def abort(self) -> None:
        """Undo what the open transaction holds; errors do not matter, an unfinished transaction is never read."""
        if not self._open:
            return
        self._open, self._offsets = False, {}
        for channel in self._held:
            channel.held.clear()
        self._held.clear()
        try:
            self._producer.purge()
            self._producer.abort_transaction(5.0)
        except KafkaException:
            return

    def close(self) -> None:
        """Nothing is left behind but the transaction."""
        self.abort()

    def poll(self) -> None:
        """Take delivery reports that have come in."""
        self._serve(self._producer.poll, 0.0, "delivering rows")

    def _begin(self) -> None:
        if self._open:
            return
        try:
            self._producer.begin_transaction()
        except KafkaException as exception:
            raise self._diagnose(kafka_error(exception), "beginning a transaction") from exception
        self._open = True

    def _release(self) -> None:
        for channel in self._held:
            for partition, (key, value) in channel.held.items():
                self._produce(channel.topic, value, key, partition)
            channel.held.clear()
        self._held.clear()

    def _produce(self, topic: str, value: bytes | None, key: bytes | None, partition: int) -> None:
        while True:
            try:
                self._producer.produce(topic, value, key, partition, self._delivered)
            except BufferError:
                self._serve(self._producer.poll, STEP_S, "delivering rows")
                self._idle()
                continue
            except KafkaException as exception:
                error = kafka_error(exception)
                if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
                    raise self._oversize(topic, value, error) from exception
                raise self._diagnose(error, f"writing to {topic}") from exception
            return

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._failed = self._failed or error
            return
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        if topic is None or partition is None or offset is None or topic == self._progress_topic:
            return
        # A batch the broker had already stored is confirmed without its offset: -1 stands for "ask".
        self._offsets.setdefault(topic, {})[partition] = offset + 1 if offset >= 0 else -1

    def _diagnose(self, error: KafkaError, doing: str) -> TopicError:
        """After a fatal error every call only says that there was one; which one, the next poll tells."""
        if error.code() == KafkaError._FATAL:
            try:
                self._serve(self._producer.poll, 0.0, doing)
            except TopicError as cause:
                return cause
        return diagnose(error, doing)

    def _serve(self, call: Callable[[float], int], timeout_s: float, doing: str) -> int:
        """Poll or flush. Both run callbacks, and both raise a fatal error that became known meanwhile."""
        try:
            return call(timeout_s)
        except KafkaException as exception:
            raise diagnose(kafka_error(exception), doing) from exception
        except SystemError as error:
            # A delivery report came after the fatal error in the same call: the binding complains about itself then.
            if isinstance(error.__cause__, KafkaException):
                raise diagnose(kafka_error(error.__cause__), doing) from error
            raise

    def _drain(self) -> None:
        while self._serve(self._producer.flush, STEP_S, "delivering rows"):
            self._idle()
        if self._failed is not None:
            raise self._diagnose(self._failed, "delivering rows")
        for topic, ends in self._offsets.items():
            for partition in [p for p, end in ends.items() if end < 0]:
                ends[partition] = self._topics.end_offset(topic, partition)

    def _complete(self, call: Callable[[], None], doing: str) -> None:
        """Make a transactional call and wait for its end, in touch with the rest of the process meanwhile.

        The call itself has no limit and runs in a thread of its own. One that is cut short and repeated would have to
        be told apart from its own late answer, which librdkafka does not do for certain on a busy machine.
        """
        while True:
            outcome: Future[None] = Future()
            threading.Thread(target=_run, args=(call, outcome), name="transaction", daemon=True).start()
            try:
                while not _ended(outcome, STEP_S):
                    self._idle()
                outcome.result()
            except KafkaException as exception:
                error = kafka_error(exception)
                if not may_try_again(error):
                    raise self._diagnose(error, doing) from exception
                time.sleep(STEP_S)
                self._idle()
            else:
                return

    def _oversize(self, topic: str, value: bytes | None, error: KafkaError) -> OversizeMessage:
        return OversizeMessage(
            f"a change row of {len(value or b'')} bytes does not fit into topic {topic}: {error.str()}",
            hint="raise message.max.bytes on the broker and in PG_TRICKLE_KAFKA_OPTIONS, then start again",
        )


def _later(old: Offsets, new: Offsets) -> Offsets:
    """Both maps as one; a partition in both stands at the new offset."""
    return {topic: old.get(topic, {}) | new.get(topic, {}) for topic in old.keys() | new.keys()}


def _run(call: Callable[[], None], outcome: Future[None]) -> None:
    try:
        call()
    except BaseException as error:
        outcome.set_exception(error)
    else:
        outcome.set_result(None)


def _ended(outcome: Future[None], timeout_s: float) -> bool:
    try:
        outcome.exception(timeout_s)
    except TimeoutError:
        return False
    return True
