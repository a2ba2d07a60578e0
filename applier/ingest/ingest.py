"""Runs the streaming query, restarts it after a failure, decodes its messages and adds them to the inbox."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from functools import reduce
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from applier.errors import Infrastructure
from applier.ingest import decode, stream
from applier.ingest.inbox import Inbox, TopicPartition
from applier.ingest.schemas import SchemaReader
from applier.ingest.start_offsets import find_start_offsets
from applier.settings import ApplierSettings
from applier.spark.scratch import Scratch
from applier.trace.stamped_rows import Chunk, StampedRow
from shared_schema import avro, progress
from shared_schema.topics import progress_topic

log = logging.getLogger(__name__)

RESTART_PAUSES_S = (0.2, 1.0, 2.0, 5.0)
"""Pauses before the query is started again, one per failure; the last one repeats."""

MIN_JVM_MESSAGES = 2_000
"""So many messages with one header, or more, are decoded in the JVM; for fewer a Spark query does not pay off."""

STEADY_AFTER_S = 30.0
"""After a query ran this long, failures are counted from one again."""


def _fast_folder(fallback: Path) -> Path:
    """Return a folder in memory if there is one: Spark's checkpoint is only a throw-away cache."""
    memory = Path("/dev/shm")  # noqa: S108
    return memory if memory.is_dir() else fallback


class Ingest:
    """Runs one streaming query at a time; a failed one is replaced by one that continues where the inbox is."""

    def __init__(
        self,
        spark: SparkSession,
        settings: ApplierSettings,
        inbox: Inbox,
        inbox_lock: threading.Condition,
        schemas: SchemaReader,
    ) -> None:
        self._spark = spark
        self._settings = settings
        self._inbox = inbox
        self._lock = inbox_lock
        self._schemas = schemas
        self._progress_topic = progress_topic(settings.topic_prefix)
        self._query: StreamingQuery | None = None
        self._scratch: Scratch | None = None
        self._failure: Exception | None = None
        self._failures = 0
        self._started = 0.0

    def start(self) -> None:
        """Start the query at the positions of the inbox."""
        with self._lock:
            positions, frontier = self._inbox.positions(), self._inbox.frontier
        found = find_start_offsets(self._settings, positions, frontier)
        with self._lock:
            for skipped in found.skipped:
                log.warning(
                    "rows were deleted before they were read, a later capture replaces them",
                    extra={"table": str(skipped.table), "capture": str(skipped.until)},
                )
                self._inbox.skip(skipped)
        self._scratch = Scratch(_fast_folder(self._settings.scratch_dir), "ingest")
        self._query = stream.start(self._spark, self._settings, found.offsets, self._scratch.path, self._receive)
        self._started = time.monotonic()

    def stop(self) -> None:
        """Stop the query and remove its folder."""
        if self._query is not None:
            self._query.stop()
            self._query = None
        if self._scratch is not None:
            self._scratch.remove()
            self._scratch = None

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

    def _receive(self, messages: pa.Table) -> None:
        try:
            chunks, others = self._decode_many(messages)
            decoded = [(message, self._decode(*message)) for message in _message_tuples(others)]
        except Infrastructure:
            raise
        except Exception as error:
            # Reading it again would not help, so the error must outlive the query's thread: the main loop raises it.
            self._failure = error
            raise
        with self._lock:
            for at, offsets, chunk in chunks:
                self._inbox.add_chunk(at, offsets, chunk)
            for (topic, partition, offset, _), content in decoded:
                at = (topic, partition)
                match content:
                    case None:
                        self._inbox.mark_read(at, offset)
                    case StampedRow():
                        self._inbox.add_row(at, offset, content)
                    case _:
                        self._inbox.add_record(at, offset, content)
            self._lock.notify_all()

    def _decode_many(self, messages: pa.Table) -> tuple[list[tuple[TopicPartition, np.ndarray, Chunk]], pa.Table]:
        """Decode messages of which there are many with one header; return their chunks, and the other messages."""
        if messages.num_rows < MIN_JVM_MESSAGES:
            return [], messages
        chunks, others = [], []
        for at, group in _group_by_header(messages):
            message = group["value"][0].as_py()
            chunk = None
            if (
                group.num_rows >= MIN_JVM_MESSAGES
                and at[0] != self._progress_topic
                and (message or b"").startswith(avro.MAGIC)
            ):
                chunk = decode.decode_messages(self._spark, self._schemas.codec(message), group["value"])
            if chunk is None:
                others.append(group)
            else:
                chunks.append((at, group["offset"].to_numpy(), chunk))
        return chunks, pa.concat_tables([messages.slice(0, 0), *others])

    def _decode(
        self, topic: str, _partition: int, _offset: int, value: bytes | None
    ) -> StampedRow | progress.Progress | progress.Capture | None:
        if value is None:
            return None
        if topic == self._progress_topic:
            return progress.decode_progress(value)
        codec = self._schemas.codec(value)
        return StampedRow(codec.decode(value), codec.schema)


def _message_tuples(messages: pa.Table) -> list[tuple[str, int, int, bytes | None]]:
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
