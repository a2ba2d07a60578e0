"""The deltas of one tick in; change rows on the publication topics, in the same form as source topics, out.

One Kafka transaction per tick holds the rows of every stream table that changed and, for each of them, a progress
record under the key `st-<id>`. A stream table's first transaction also holds its capture record, so that another
applier can use the topic as a source.
"""

from __future__ import annotations

import logging
from collections import defaultdict

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from applier.errors import Infrastructure
from applier.plan.stream_table import StreamTable
from applier.sinks.delta import Delta
from applier.sinks.kafka.change_rows import last_position, topic_schema
from applier.sinks.kafka.delta_rows import delta_change_rows
from shared_schema import avro, progress
from shared_schema.lsn import ORIGIN, Lsn
from shared_schema.progress import Capture, Offsets, Progress
from shared_schema.table_schema import TableId
from shared_schema.topics import BROKER_TIME, progress_topic, schemas_topic, table_topic

log = logging.getLogger(__name__)

COMPACTED = {"cleanup.policy": "compact", "segment.ms": "600000"}
WAIT_S = 60.0
"""How long to wait for a broker before the tick fails and is repeated."""


SLOT_PREFIX = "st-"


def has_topic(capture: Capture) -> bool:
    """Whether a capture record is of a stream table, not of a source."""
    return capture.slot.startswith(SLOT_PREFIX)


class TopicPublisher:
    """Publishes deltas; knows the frontier of each stream table's topic."""

    def __init__(
        self,
        prefix: str,
        client: dict[str, str | int | float | bool],
        *,
        transactional_id: str,
        replication_factor: int,
    ) -> None:
        self._prefix = prefix
        self._client = client
        self._replication = replication_factor
        self._admin = AdminClient(client)
        self._topics: set[str] = set()
        self._schemas: set[bytes] = set()
        self._frontiers: dict[str, Lsn] = {}
        self._windows: dict[str, int] = {}
        """How many deltas with rows each stream table has published."""
        self._captured: dict[TableId, int] = {}
        self._ends: Offsets = defaultdict(dict)
        self._undelivered: KafkaError | None = None
        self._producer = Producer(
            client
            | {"transactional.id": transactional_id, "acks": "all", "linger.ms": 1, "transaction.timeout.ms": 600_000}
        )
        try:
            self._topics.update(self._admin.list_topics(timeout=WAIT_S).topics)
            self._ensure(progress_topic(prefix), COMPACTED)
            self._ensure(schemas_topic(prefix), COMPACTED)
            # Waits for an unfinished transaction of the previous applier and fences it, so the next read is final.
            self._producer.init_transactions(WAIT_S)
            self._read_progress()
        except KafkaException as error:
            raise Infrastructure(f"the publication topics could not be opened: {error.args[0].str()}") from error

    def frontier(self, table: StreamTable) -> Lsn:
        """Return the frontier of the topic; ORIGIN when nothing was ever published."""
        return self._frontiers.get(self._slot(table), ORIGIN)

    @staticmethod
    def _slot(table: StreamTable) -> str:
        return f"{SLOT_PREFIX}{table.id}"

    def _ensure(self, topic: str, config: dict[str, str]) -> None:
        if topic in self._topics:
            return
        new = NewTopic(topic, num_partitions=1, replication_factor=self._replication, config=config | BROKER_TIME)
        try:
            self._admin.create_topics([new])[topic].result(WAIT_S)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise Infrastructure(f"topic {topic} could not be created: {error.args[0].str()}") from error
        self._topics.add(topic)

    def _read_progress(self) -> None:
        consumer = Consumer(
            self._client
            | {
                "group.id": "pg-trickle-publisher",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
            }
        )
        consumer.assign([TopicPartition(progress_topic(self._prefix), 0, 0)])
        try:
            while True:
                message = consumer.poll(WAIT_S)
                if message is None:
                    raise Infrastructure(f"{progress_topic(self._prefix)} could not be read within {WAIT_S:.0f} s")
                error = message.error()
                if error is not None and error.code() == KafkaError._PARTITION_EOF:
                    return
                if error is not None:
                    raise Infrastructure(f"{progress_topic(self._prefix)} could not be read: {error.str()}")
                self._note(progress.decode_progress(message.value() or b""))
        finally:
            consumer.close()

    def _note(self, record: Progress | Capture) -> None:
        match record:
            case Progress():
                self._frontiers[record.slot] = record.frontier
                self._windows[record.slot] = record.windows
                for topic, partitions in record.end_offsets.items():
                    self._ends[topic].update(partitions)
            case Capture():
                self._captured[record.table] = record.relid

    def publish(self, deltas: list[tuple[StreamTable, Delta]]) -> None:
        """Publish the deltas of one tick in one Kafka transaction; each must begin where its topic ends."""
        if not deltas:
            return
        for table, _ in deltas:
            self._ensure(table_topic(self._prefix, table.table), {})
        ends: Offsets = defaultdict(dict)
        try:
            self._producer.begin_transaction()
            windows = dict(self._windows)
            rows = [self._produce(table, delta, ends, windows) for table, delta in deltas]
            if self._producer.flush(WAIT_S):
                raise Infrastructure("the broker did not accept the published rows in time")
            if self._undelivered is not None:
                raise Infrastructure(f"the broker rejected the published rows: {self._undelivered.str()}")
            progress_records = [self._progress(t, d, ends, windows) for t, d in deltas]
            captures = [self._capture(t, d, n) for (t, d), n in zip(deltas, rows, strict=True) if d.is_fill]
            records: list[Progress | Capture] = [*captures, *progress_records]
            for record in records:
                self._producer.produce(progress_topic(self._prefix), record.encode(), record.key)
            self._producer.commit_transaction(WAIT_S)
        except KafkaException as error:
            self._abort()
            raise Infrastructure(f"publishing failed: {error.args[0].str()}") from error
        except Infrastructure:
            self._abort()
            raise
        for record in records:
            self._note(record)
        log.debug("published", extra={"tables": len(deltas), "rows": sum(rows)})

    def _abort(self) -> None:
        # The schemas that the aborted transaction wrote are not on the topic.
        self._schemas.clear()
        self._undelivered = None
        try:
            self._producer.abort_transaction(WAIT_S)
        except KafkaException as error:
            raise Infrastructure(f"the Kafka transaction could not be aborted: {error.args[0].str()}") from error

    def _produce(self, table: StreamTable, delta: Delta, ends: Offsets, windows: dict[str, int]) -> int:
        """Send the rows; return how many. The offsets after them are in `ends` once they are delivered.

        Counts a delta that has rows in `windows`.
        """
        topic = table_topic(self._prefix, table.table)
        codec = avro.codec(topic_schema(table))
        if codec.id not in self._schemas:
            self._send(schemas_topic(self._prefix), codec.text.encode(), codec.id.hex().encode(), None)
            self._schemas.add(codec.id)
        # Earlier rows under this name, of this stream table or another one, must be removed first.
        is_refill = delta.is_fill and table.table in self._captured
        sent, before = 0, 0 if is_refill else windows.setdefault(self._slot(table), 0)
        for row in delta_change_rows(table, delta, number=before + 1, empty_first=is_refill):
            self._send(topic, codec.encode(row), None if row.values is None else codec.encode_key(row.values), ends)
            sent += 1
        windows[self._slot(table)] = before + bool(sent)
        return sent

    def _send(self, topic: str, value: bytes, key: bytes | None, ends: Offsets | None) -> None:
        def note_delivery(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self._undelivered = error
            elif ends is not None:
                ends[topic][0] = self._next_offset(topic, message.offset())

        while True:
            try:
                self._producer.produce(topic, value, key, on_delivery=note_delivery)
                break
            except BufferError:
                self._producer.poll(0.1)
        self._producer.poll(0)

    def _next_offset(self, topic: str, offset: int | None) -> int:
        """Return the offset after a delivered row; a repeated batch is confirmed without one: then ask the broker."""
        if offset is not None and offset >= 0:
            return offset + 1
        consumer = Consumer(self._client | {"group.id": "pg-trickle-publisher"})
        try:
            _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=WAIT_S)
            return int(end)
        finally:
            consumer.close()

    def _progress(self, table: StreamTable, delta: Delta, ends: Offsets, windows: dict[str, int]) -> Progress:
        topic, slot = table_topic(self._prefix, table.table), self._slot(table)
        offsets = {topic: self._ends[topic] | ends[topic]}
        return Progress(slot, "", 0, ORIGIN, delta.lsn_range.upper, offsets, windows=windows[slot])

    def _capture(self, table: StreamTable, delta: Delta, rows: int) -> Capture:
        schema_id = avro.codec(topic_schema(table)).id.hex()
        return Capture(
            self._slot(table), table.table, table.relid, last_position(delta.lsn_range), rows, schema_id=schema_id
        )

    def close(self) -> None:
        """Close the producer; between two ticks it has nothing in flight."""
        self._producer.flush(5)
