"""Runs the streaming query, restarts it after a failure, decodes its messages and adds them to the inbox."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from applier.errors import Infrastructure, UnexpectedFailure
from applier.ingest import decode, stream
from applier.ingest.inbox import Inbox, TopicPartition
from applier.ingest.on_disk import is_plain, move_to_disk, pack_rows
from applier.ingest.pieces import read_pieces
from applier.ingest.schemas import SchemaReader
from applier.ingest.start_offsets import StartOffsets, find_start_offsets
from applier.settings import ApplierSettings
from applier.spark.scratch import Scratch
from applier.spark.session import drop_checkpoint
from applier.trace.stamped_rows import Chunk, StampedRow
from applier.unexpected import to_own_error
from shared_schema import avro, progress
from shared_schema.errors import ContractError, TrickleError
from shared_schema.table_schema import TableId, TableSchema
from shared_schema.topics import progress_topic, table_of_topic

log = logging.getLogger(__name__)

RESTART_PAUSES_S = (0.2, 1.0, 2.0, 5.0)
"""Pauses before the query is started again, one per failure; the last one repeats."""

MIN_JVM_MESSAGES = 2_000
"""So many messages with one header, or more, are decoded in the JVM; for fewer a Spark query does not pay off."""

LARGE_PIECE = 0.25
"""Rows of a piece with at least this fraction of the most bytes are held on disk."""

WAITING_PIECES = 4
"""No more messages are read while the rows of so many full pieces wait for a tick."""

ROOM_LOOK_EVERY_S = 0.5

STEADY_AFTER_S = 30.0
"""After a query ran this long, failures are counted from one again."""


_Message = tuple[str, int, int, bytes | None]
"""Topic, partition, offset, value."""

_Chunks = list[tuple[TopicPartition, np.ndarray, Chunk]]
"""Chunks with their partition and the offsets of their rows."""


class Ingest:
    """Runs one streaming query at a time; a failed one is replaced by one that continues where the inbox is."""

    def __init__(
        self,
        spark: SparkSession,
        settings: ApplierSettings,
        inbox: Inbox,
        inbox_lock: threading.Condition,
        schemas: SchemaReader,
        *,
        find_first: Callable[[], StartOffsets] | None = None,
    ) -> None:
        self._spark = spark
        self._find_first = find_first
        """Finds where the first query begins; used once."""
        self._settings = settings
        self._inbox = inbox
        self._lock = inbox_lock
        self._schemas = schemas
        self._progress_topic = progress_topic(settings.topic_prefix)
        self._query: StreamingQuery | None = None
        self._checkpoint: str | None = None
        """The folder of the query's checkpoint, which is in the memory of the JVM."""
        self._failure: Exception | None = None
        self._failures = 0
        self._started = 0.0
        self._most_bytes = settings.bytes_per_trigger
        self._is_stopping = False
        self._waits_since: float | None = None
        """Since when no room is left for what was read; None while there is."""
        self._row_files: Scratch | None = None
        self._logged: set[TableId] = set()
        """The relations of which the stack of a message that cannot be decoded was logged."""

    def start(self) -> None:
        """Start the query at the positions of the inbox."""
        find, self._find_first = self._find_first or self._find_offsets, None
        found = find()
        with self._lock:
            for skipped in found.skipped:
                log.warning(
                    "rows were deleted before they were read, a later capture replaces them",
                    extra={"table": str(skipped.table), "capture": str(skipped.until)},
                )
                self._inbox.skip(skipped)
            for lost in found.lost:
                log.error("rows were deleted before they were read", extra={"table": str(lost.table)})
                self._inbox.lose(lost)
        self._is_stopping = False
        self._checkpoint = f"/pg-trickle-ingest-{uuid.uuid4().hex}"
        self._row_files = Scratch(self._settings.scratch_dir, "rows")
        self._query = stream.start(self._spark, self._settings, found.offsets, self._checkpoint, self._receive)
        self._started = time.monotonic()

    def _find_offsets(self) -> StartOffsets:
        with self._lock:
            positions, frontier = self._inbox.positions(), self._inbox.frontier
        return find_start_offsets(self._settings, positions, frontier)

    def stop(self) -> None:
        """Stop the query, and remove its checkpoint and the folder of its rows."""
        with self._lock:
            self._is_stopping = True
            self._lock.notify_all()
        if self._query is not None:
            self._query.stop()
            self._query = None
        if self._checkpoint is not None:
            drop_checkpoint(self._spark, self._checkpoint)
            self._checkpoint = None
        if self._row_files is not None:
            self._row_files.remove()
            self._row_files = None

    @property
    def waits_s(self) -> float:
        """For how many seconds the reader has been waiting for a tick to take what it has read; 0 while it reads."""
        since = self._waits_since
        return 0.0 if since is None else time.monotonic() - since

    def tend(self) -> None:
        """Restart a query that ended. Raises the error of a message that breaks the contract: a retry does not help."""
        if self._failure is not None:
            raise self._failure
        if self._query is not None and self._query.isActive:
            return
        error = self._query.exception() if self._query is not None else None
        self.stop()
        ran_long = time.monotonic() - self._started > STEADY_AFTER_S
        self._failures = 1 if ran_long else self._failures + 1
        pause = RESTART_PAUSES_S[min(self._failures, len(RESTART_PAUSES_S)) - 1]
        first_line = str(error).strip().splitlines()[0] if error else "it ended"
        log.warning("restarting the Kafka reader", extra={"error": first_line[:300], "after_s": pause})
        time.sleep(pause)
        self.start()

    def _receive(self, batch: DataFrame) -> None:
        for messages in read_pieces(batch, self._most_bytes, stream.client_options(self._settings)):
            self._wait_for_room()
            self._add(messages)

    def _wait_for_room(self) -> None:
        """Wait while the rows of several pieces wait for a tick: what is not read yet waits in Kafka."""
        most = WAITING_PIECES * self._most_bytes
        with self._lock:
            while not self._is_stopping and not self._inbox.has_room(most):
                self._waits_since = self._waits_since or time.monotonic()
                self._lock.wait(ROOM_LOOK_EVERY_S)
            self._waits_since = None
            if self._is_stopping:
                raise Infrastructure("the Kafka reader is being stopped")

    def _add(self, messages: pa.Table) -> None:
        try:
            chunks, others = self._decode_many(messages)
            decoded = [(message, self._decode(*message)) for message in _message_tuples(others)]
            if messages.nbytes >= LARGE_PIECE * self._most_bytes:
                chunks, decoded = self._hold_on_disk(chunks, decoded)
        except Infrastructure:
            raise
        except Exception as error:
            # Reading it again would not help, so the error must outlive the query's thread: the main loop raises it.
            self._failure = error
            raise
        with self._lock:
            self._inbox.count_bytes(messages.nbytes)
            for at, offsets, chunk in chunks:
                self._inbox.add_chunk(at, offsets, chunk)
            for (topic, partition, offset, _), content in decoded:
                at = (topic, partition)
                match content:
                    case None:
                        self._inbox.mark_read(at, offset)
                    case StampedRow():
                        self._inbox.add_row(at, offset, content)
                    case _Unreadable():
                        self._inbox.add_unreadable(at, offset, content.table, content.problem)
                    case _:
                        self._inbox.add_record(at, offset, content)
            self._lock.notify_all()

    def _hold_on_disk(
        self, chunks: _Chunks, decoded: Sequence[tuple[_Message, _Content]]
    ) -> tuple[_Chunks, list[tuple[_Message, _Content]]]:
        """Return the same with all rows on disk that can be there."""
        groups: dict[tuple[TopicPartition, TableSchema], tuple[list[int], list[StampedRow]]] = {}
        left: list[tuple[_Message, _Content]] = []
        for message, content in decoded:
            if isinstance(content, StampedRow) and is_plain(content):
                offsets, rows = groups.setdefault((message[:2], content.schema), ([], []))
                offsets.append(message[2])
                rows.append(content)
            else:
                left.append((message, content))
        packed = list(chunks)
        for (at, _), (offsets, rows) in groups.items():
            if (chunk := pack_rows(rows)) is not None:
                packed.append((at, np.array(offsets), chunk))
            else:
                left += [((*at, offset, None), row) for offset, row in zip(offsets, rows, strict=True)]
        folder = self._row_files.path if self._row_files is not None else self._settings.scratch_dir
        return [(at, offsets, move_to_disk(chunk, folder)) for at, offsets, chunk in packed], left

    def _decode_many(self, messages: pa.Table) -> tuple[_Chunks, pa.Table]:
        """Decode messages of which there are many with one header; return their chunks, and the other messages."""
        if messages.num_rows < MIN_JVM_MESSAGES:
            return [], messages
        chunks, others = [], []
        for at, group in _group_by_header(messages):
            is_many = group.num_rows >= MIN_JVM_MESSAGES and at[0] != self._progress_topic
            codec = self._codec_of(group["value"][0].as_py()) if is_many else None
            chunk = None if codec is None else decode.decode_messages(self._spark, codec, group["value"])
            if chunk is None:
                others.append(group)
            else:
                chunks.append((at, group["offset"].to_numpy(), chunk))
        return chunks, pa.concat_tables([messages.slice(0, 0), *others])

    def _codec_of(self, message: bytes | None) -> avro.ChangeCodec | None:
        """Return the codec of a message; None where the driver must find out message by message why there is none."""
        try:
            return self._schemas.codec(message) if (message or b"").startswith(avro.MAGIC) and message else None
        except ContractError:
            return None

    def _decode(self, topic: str, partition: int, offset: int, value: bytes | None) -> _Content:
        """Decode a message. One of a table that cannot be decoded concerns that table; a record concerns everybody."""
        if value is None:
            return None
        if topic == self._progress_topic:
            return progress.decode_progress(value)
        table = table_of_topic(self._settings.topic_prefix, topic)
        try:
            codec = self._schemas.codec(value)
            return StampedRow(codec.decode(value), codec.schema)
        except Exception as error:
            place = f"message {offset} of {topic}, partition {partition}"
            if table in self._logged and not isinstance(error, TrickleError):
                # There may be many of them, and one stack is enough.
                return _Unreadable(table, f"{place}: {UnexpectedFailure.__name__}")
            own = to_own_error(place, error)
            if table is None:
                raise
            self._logged.add(table)
            return _Unreadable(table, f"{place}: {type(own).__name__}")


@dataclass(frozen=True, slots=True)
class _Unreadable:
    """A message that cannot be decoded, and why."""

    table: TableId
    problem: str


_Content: TypeAlias = StampedRow | progress.ProgressRecord | _Unreadable | None
"""What a message holds; None for a tombstone."""


def _message_tuples(messages: pa.Table) -> list[_Message]:
    """Return topic, partition, offset and value; the value is None for a tombstone, which deletes a key's record."""
    return list(zip(*(messages[name].to_pylist() for name in messages.column_names), strict=True))


def _group_by_header(messages: pa.Table) -> Iterator[tuple[TopicPartition, pa.Table]]:
    """Yield the messages of each partition and header, in their order."""
    header = pc.fill_null(pc.binary_slice(messages["value"], 0, avro.HEADER_BYTES), b"")
    marked = messages.append_column("header", header)
    groups = marked.select(["topic", "partition", "header"]).group_by(["topic", "partition", "header"]).aggregate([])
    for topic, partition, first in zip(*(groups[name] for name in ("topic", "partition", "header")), strict=True):
        same = (pc.equal(marked[n], v) for n, v in (("topic", topic), ("partition", partition), ("header", first)))
        yield (topic.as_py(), partition.as_py()), messages.filter(reduce(pc.and_, same))
