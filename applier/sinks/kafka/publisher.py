"""The deltas of ticks in; change rows on the publication topics, in the same form as source topics, out.

The last Kafka transaction of a tick holds, for every stream table that changed, a progress record under the key
`st-<id>`; few rows are all in that transaction. The progress of a stream table's first delta comes with its capture
record, so that another applier can use the topic as a source.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import groupby

import psycopg
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource, ConfigSource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewTopic

from applier.errors import Infrastructure, PublishingFailed
from applier.plan.stream_table import StreamTable
from applier.sinks.delta import Delta
from applier.sinks.delta_queue import TableDelta
from applier.sinks.kafka.change_rows import last_position, topic_schema
from applier.sinks.kafka.publication import Numbering, Publication
from applier.unexpected import is_service_away
from shared_schema import avro, progress
from shared_schema.change_row import ChangeRow
from shared_schema.errors import ContractError, TrickleError
from shared_schema.lsn import ORIGIN, Lsn
from shared_schema.progress import Capture, Checkpoint, CommitPart, Offsets, Progress, ProgressRecord
from shared_schema.table_schema import TableId
from shared_schema.topics import BROKER_TIME, progress_topic, schemas_topic, table_topic

log = logging.getLogger(__name__)

COMPACTED = {"cleanup.policy": "compact", "segment.ms": "600000"}
KEPT = {"retention.ms": "-1", "retention.bytes": "-1"}
"""A topic holds the copy of its stream table and every change since: whoever reads it from its beginning needs both."""
BROKER_WAIT_S = 60.0
"""How long to wait for a broker before the tick fails and is repeated."""


SLOT_PREFIX = "st-"


def has_topic(capture: Capture) -> bool:
    """Whether a capture record is of a stream table, not of a source."""
    return capture.slot.startswith(SLOT_PREFIX)


PUBLICATION_PART_ROWS = 200_000
PUBLICATION_PART_BYTES = 256 * 1024 * 1024
"""A Kafka transaction is committed after so many rows or bytes, far below its timeout."""

STOP_EVERY_ROWS = 256
"""How often publishing looks whether it should stop."""

OVERSIZE = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE, KafkaError.INVALID_MSG_SIZE})

REFUSALS = OVERSIZE | {
    KafkaError.TOPIC_EXCEPTION,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.POLICY_VIOLATION,
    KafkaError.INVALID_PARTITIONS,
    KafkaError.INVALID_REPLICATION_FACTOR,
    KafkaError.INVALID_CONFIG,
    KafkaError.INVALID_RECORD,
}
"""Answers about one topic or one row that do not change by themselves."""

WITHOUT_TOPIC = "without the topics: set publish_sink to off"

OVERSIZE_HINT = (
    "raise max.message.bytes of the topic or message.max.bytes of the broker, and message.max.bytes in"
    " PG_TRICKLE_KAFKA_OPTIONS; then SELECT pgtrickle.resume_stream_table(…)"
)


class PublishingStopped(Exception):
    """Publishing was asked to stop; what is on the topic of an unfinished delta does not count."""


@dataclass(slots=True)
class _OpenTransaction:
    """The content of the open Kafka transaction; `ends` are the offsets after the rows, since publishing began."""

    ends: Offsets = field(default_factory=lambda: defaultdict(dict))
    finished: list[tuple[Publication, bool]] = field(default_factory=list)
    """The deltas whose rows are all sent; True for the capture record of a fill."""
    rows: int = 0
    size: int = 0

    @property
    def is_full(self) -> bool:
        return self.rows >= PUBLICATION_PART_ROWS or self.size >= PUBLICATION_PART_BYTES

    def restart(self) -> None:
        self.finished, self.rows, self.size = [], 0, 0


@contextmanager
def _of_one_table(table: StreamTable) -> Iterator[None]:
    """Whatever is wrong with the rows or the topic of a stream table concerns that one; a broker or a server that is
    away concerns all."""
    try:
        yield
    except (KafkaException, Infrastructure, PublishingFailed, PublishingStopped) as error:
        if isinstance(error, KafkaException) and error.args[0].code() in REFUSALS:
            raise _refusal(table, error.args[0]) from error
        raise
    except TrickleError as error:
        raise PublishingFailed(
            f"{table} cannot be published: {error.problem}", hint=error.hint or WITHOUT_TOPIC, pgt_id=table.id
        ) from error
    except Exception as error:
        if isinstance(error, psycopg.Error) and is_service_away(error):
            raise Infrastructure(f"rows of {table} could not be read: {str(error).splitlines()[0]}") from error
        raise PublishingFailed(
            f"the rows of {table} cannot be published: {type(error).__name__}",
            hint=f"see the log of the applier; {WITHOUT_TOPIC}",
            pgt_id=table.id,
        ) from error


def _refusal(table: StreamTable, error: KafkaError) -> PublishingFailed:
    """Return the error of a stream table whose row or topic the broker refuses, for good."""
    if error.code() in OVERSIZE:
        problem, hint = "a row of it is too large", OVERSIZE_HINT
    else:
        problem, hint = "the broker refuses its topic", f"allow it on the broker; {WITHOUT_TOPIC}"
    return PublishingFailed(f"{table} cannot be published: {problem}: {error.str()}", hint=hint, pgt_id=table.id)


def _upper_of(table_delta: TableDelta) -> Lsn:
    return table_delta[1].lsn_range.upper


class TopicPublisher:
    """Publishes deltas; knows the frontier of each stream table's topic."""

    def __init__(
        self,
        prefix: str,
        client: dict[str, str | int | float | bool],
        *,
        transactional_id: str,
        replication_factor: int,
        confirm: Callable[[], None] = lambda: None,
    ) -> None:
        """`confirm` raises an error when another process has taken over. It is called after this one has fenced all
        others: so one that was replaced may fence its successor, which then fences it, but never publishes again."""
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
        self._parts: dict[str, CommitPart | None] = {}
        """What the topic of each stream table holds of a delta that is not finished."""
        self._partial_topics: set[str] = set()
        """Topics that have, or had, rows of a delta that is not finished."""
        self.begun: dict[int, Numbering] = {}
        """The deltas that this process has begun to publish; a publisher that replaces this one continues them."""
        self._ends: Offsets = defaultdict(dict)
        self._undelivered: tuple[StreamTable | None, KafkaError] | None = None
        """The first row that the broker did not accept, with its stream table."""
        self._producer = Producer(
            client
            | {"transactional.id": transactional_id, "acks": "all", "linger.ms": 1, "transaction.timeout.ms": 600_000}
        )
        try:
            self._topics.update(self._admin.list_topics(timeout=BROKER_WAIT_S).topics)
            self._ensure(progress_topic(prefix), COMPACTED)
            self._ensure(schemas_topic(prefix), COMPACTED)
            confirm()
            # Waits for an unfinished transaction of the previous applier and fences it, so the next read is final.
            self._producer.init_transactions(BROKER_WAIT_S)
            confirm()
            self._read_progress()
            self._keep_rows()
        except (KafkaException, TimeoutError) as error:
            raise Infrastructure(f"the publication topics could not be opened: {_describe(error)}") from error
        except ContractError as error:
            # Where the topics end is not known, of none of them.
            raise Infrastructure(f"the publication topics could not be opened: {error.problem}") from error

    def frontier(self, table: StreamTable) -> Lsn:
        """Return the frontier of the topic; ORIGIN when nothing was ever published, or when a part of a delta is on the
        topic that nobody has any more: then all rows must follow."""
        if self._parts.get(self._slot(table)) is not None and table.id not in self.begun:
            return ORIGIN
        return self._frontiers.get(self._slot(table), ORIGIN)

    @staticmethod
    def _slot(table: StreamTable) -> str:
        return f"{SLOT_PREFIX}{table.id}"

    def _ensure(self, topic: str, config: dict[str, str]) -> None:
        if topic in self._topics:
            return
        new = NewTopic(topic, num_partitions=1, replication_factor=self._replication, config=config | BROKER_TIME)
        try:
            self._admin.create_topics([new])[topic].result(BROKER_WAIT_S)
        except (KafkaException, TimeoutError) as error:
            code = error.args[0].code() if isinstance(error, KafkaException) else None
            if code in REFUSALS:
                raise
            if code != KafkaError.TOPIC_ALREADY_EXISTS:
                raise Infrastructure(f"topic {topic} could not be created: {_describe(error)}") from error
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
                message = consumer.poll(BROKER_WAIT_S)
                if message is None:
                    raise Infrastructure(
                        f"{progress_topic(self._prefix)} could not be read within {BROKER_WAIT_S:.0f} s"
                    )
                error = message.error()
                if error is not None and error.code() == KafkaError._PARTITION_EOF:
                    return
                if error is not None:
                    raise Infrastructure(f"{progress_topic(self._prefix)} could not be read: {error.str()}")
                self._note(progress.decode_progress(message.value() or b""))
        finally:
            consumer.close()

    def _keep_rows(self) -> None:
        """Give topics of an earlier version that have the broker's default retention the one that they need."""
        names = {table_topic(self._prefix, table) for table in self._captured} & self._topics
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
        if not resources:
            return
        try:
            settings = {
                resource: done.result(BROKER_WAIT_S)
                for resource, done in self._admin.describe_configs(resources).items()
            }
            to_set = []
            for resource, entries in settings.items():
                if all(entries[name].source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value for name in KEPT):
                    continue
                own = [name for name in KEPT if entries[name].source != ConfigSource.DYNAMIC_TOPIC_CONFIG.value]
                entry = [ConfigEntry(n, KEPT[n], incremental_operation=AlterConfigOpType.SET) for n in own]
                to_set.append(ConfigResource(ResourceType.TOPIC, resource.name, incremental_configs=entry))
            for done in self._admin.incremental_alter_configs(to_set).values() if to_set else ():
                done.result(BROKER_WAIT_S)
        except (KafkaException, TimeoutError) as error:
            # Without the right to alter topics the rows are published all the same.
            log.warning("publication topics may lose rows by retention", extra={"error": _describe(error)})

    def _note(self, record: ProgressRecord) -> None:
        match record:
            case Progress():
                self._frontiers[record.slot] = record.frontier
                self._windows[record.slot] = record.windows
                self._parts[record.slot] = record.part
                if record.part is not None:
                    self._partial_topics.update(record.end_offsets)
                for topic, partitions in record.end_offsets.items():
                    self._ends[topic].update(partitions)
            case Capture():
                self._captured[record.table] = record.relid
            case Checkpoint():
                pass  # only sources have so many partitions that checkpoints pay

    def publish(self, deltas: Sequence[TableDelta], is_stopped: Callable[[], bool] = lambda: False) -> None:
        """Publish deltas, each of which must begin where its topic ends.

        Deltas up to the same frontier count together, so that a reader of several topics sees all of a tick or none of
        it; earlier frontiers come first. A Kafka transaction ends when it is large, wherever that is. Raises
        PublishingStopped soon after `is_stopped` returns true.
        """
        if not deltas:
            return
        for table, _ in deltas:
            with _of_one_table(table):
                self._ensure(table_topic(self._prefix, table.table), KEPT)
        open_transaction = _OpenTransaction()
        try:
            self._producer.begin_transaction()
            for _, group in groupby(sorted(deltas, key=_upper_of), _upper_of):
                self._publish_group(list(group), open_transaction, is_stopped)
            self._commit(open_transaction, [])
        except KafkaException as error:
            # A row that was refused makes all later calls of the transaction fail.
            refused = self._find_refusal()
            self._abort()
            raise refused or Infrastructure(f"publishing failed: {error.args[0].str()}") from error
        except BaseException:
            self._abort()
            raise

    def _publish_group(
        self, group: list[TableDelta], transaction: _OpenTransaction, is_stopped: Callable[[], bool]
    ) -> None:
        """Send the rows of deltas up to one frontier; their progress is written with the last of them."""
        ids = {table.id for table, _ in group}
        if any(publication.table.id in ids for publication, _ in transaction.finished):
            # A delta is numbered after the last one of its stream table that is committed.
            self._commit(transaction, [])
            self._producer.begin_transaction()
        publications: list[Publication] = []
        for table, delta in group:
            with _of_one_table(table):
                publications.append(publication := self._begin(table, delta))
                # Also where no row follows: the capture of an empty stream table names its schema.
                self._send_schema(table)
                for row in publication.rows():
                    if transaction.is_full:
                        self._commit(transaction, publications)
                        self._producer.begin_transaction()
                    if not transaction.rows % STOP_EVERY_ROWS and is_stopped():
                        raise PublishingStopped
                    self._send_row(publication, row, transaction)
        for publication in publications:
            if publication.delta.is_fill:
                transaction.finished.append((publication, True))
        transaction.finished += [(publication, False) for publication in publications]

    def _begin(self, table: StreamTable, delta: Delta) -> Publication:
        """Return the delta with the rows of it that are on the topic already, if it is the one that was begun."""
        slot, lsn = self._slot(table), last_position(delta.lsn_range)
        part, numbering = self._parts.get(slot), self.begun.get(table.id)
        if part is not None and part.lsn == lsn and numbering is not None and numbering.lsn_range == delta.lsn_range:
            return Publication(table, delta, numbering, part.rows - numbering.first_seq)
        if part is not None and not delta.is_fill:
            raise AssertionError(f"{table} was published in part, and its whole rows must follow")
        # Earlier rows under this name, of this stream table or another one, must be removed first.
        topic = table_topic(self._prefix, table.table)
        is_refill = delta.is_fill and (table.table in self._captured or topic in self._partial_topics)
        number = 1 if is_refill else self._windows.get(slot, 0) + 1
        first_seq = part.rows if part is not None and part.lsn == lsn else 0
        if is_refill:
            # The earlier rows may have stamps of the same position; there were fewer of them than offsets so far.
            first_seq = max(first_seq, self._ends[topic].get(0, 0))
        self.begun[table.id] = Numbering(delta.lsn_range, number, is_refill, first_seq)
        return Publication(table, delta, self.begun[table.id])

    def _commit(self, transaction: _OpenTransaction, unfinished: Sequence[Publication]) -> None:
        """Commit the rows with the progress of the finished deltas, and a part of each unfinished one."""
        if self._producer.flush(BROKER_WAIT_S):
            raise Infrastructure("the broker did not accept the published rows in time")
        if self._undelivered is not None:
            error = self._undelivered[1]
            raise self._find_refusal() or Infrastructure(f"the broker rejected the published rows: {error.str()}")
        records: list[Progress | Capture] = [
            self._capture(publication) if is_capture else self._progress(publication, transaction.ends)
            for publication, is_capture in transaction.finished
        ]
        records += [self._part_record(publication, transaction.ends) for publication in unfinished]
        for record in records:
            self._producer.produce(progress_topic(self._prefix), record.encode(), record.key)
        self._producer.commit_transaction(BROKER_WAIT_S)
        for record in records:
            self._note(record)
        for publication, _ in transaction.finished:
            self.begun.pop(publication.table.id, None)
        extra = {"tables": len(transaction.finished), "rows": transaction.rows, "unfinished": len(unfinished)}
        log.debug("published" if not unfinished else "published in part", extra=extra)
        transaction.restart()

    def _find_refusal(self) -> PublishingFailed | None:
        """Return the error of the stream table of which the broker refused a row; None when there is none."""
        table, error = self._undelivered or (None, None)
        if table is None or error is None or error.code() not in REFUSALS:
            return None
        return _refusal(table, error)

    def _abort(self) -> None:
        # The schemas that the aborted transaction wrote are not on the topic.
        self._schemas.clear()
        try:
            self._producer.abort_transaction(BROKER_WAIT_S)
        except KafkaException as error:
            raise Infrastructure(f"the Kafka transaction could not be aborted: {error.args[0].str()}") from error
        # The rows that were dropped are reported as not delivered.
        self._producer.poll(0)
        self._undelivered = None

    def _send_schema(self, table: StreamTable) -> None:
        codec = avro.codec(topic_schema(table))
        if codec.id not in self._schemas:
            self._send(None, schemas_topic(self._prefix), codec.text.encode(), codec.id.hex().encode(), None)
            self._schemas.add(codec.id)

    def _send_row(self, publication: Publication, row: ChangeRow, transaction: _OpenTransaction) -> None:
        table = publication.table
        topic = table_topic(self._prefix, table.table)
        codec = avro.codec(topic_schema(table))
        value = codec.encode(row)
        self._send(table, topic, value, None if row.values is None else codec.encode_key(row.values), transaction.ends)
        publication.sent += 1
        transaction.rows += 1
        transaction.size += len(value)

    def _send(
        self, table: StreamTable | None, topic: str, value: bytes, key: bytes | None, ends: Offsets | None
    ) -> None:
        def note_delivery(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self._undelivered = self._undelivered or (table, error)
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
            _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=BROKER_WAIT_S)
            return int(end)
        finally:
            consumer.close()

    def _progress(self, publication: Publication, ends: Offsets) -> Progress:
        table, number = publication.table, publication.numbering.number
        topic, slot = table_topic(self._prefix, table.table), self._slot(table)
        offsets = {topic: self._ends[topic] | ends[topic]}
        windows = number if publication.sent else number - 1
        return Progress(slot, "", 0, ORIGIN, publication.delta.lsn_range.upper, offsets, windows=windows)

    def _part_record(self, publication: Publication, ends: Offsets) -> Progress:
        """Return the progress as it was, and the part; the end offsets are already those after its rows."""
        progress_after, slot = self._progress(publication, ends), self._slot(publication.table)
        return replace(
            progress_after,
            frontier=self._frontiers.get(slot, ORIGIN),
            windows=self._windows.get(slot, 0),
            part=publication.part,
        )

    def _capture(self, publication: Publication) -> Capture:
        table, delta = publication.table, publication.delta
        schema_id = avro.codec(topic_schema(table)).id.hex()
        position = last_position(delta.lsn_range)
        return Capture(self._slot(table), table.table, table.relid, position, publication.sent, schema_id=schema_id)


def _describe(error: KafkaException | TimeoutError) -> str:
    return str(error.args[0].str()) if isinstance(error, KafkaException) else "the broker does not answer"
