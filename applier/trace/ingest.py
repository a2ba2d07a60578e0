"""Keeps the streaming query alive and feeds what it reads, decoded, to the inbox."""

from __future__ import annotations

import logging
import threading
import time
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from applier.errors import Infrastructure
from applier.scratch import Scratch
from applier.settings import ApplierSettings
from applier.trace import stream
from applier.trace.inbox import Arrival, Inbox
from applier.trace.schemas import SchemaReader
from shared_schema import progress
from shared_schema.topics import progress_topic

log = logging.getLogger(__name__)

RESTART_PAUSES_S = (0.2, 1.0, 2.0, 5.0)
"""Before the query is started again; the last one stays."""

STEADY_AFTER_S = 30.0
"""A query that ran this long was not failing again and again."""


def _fast_folder(fallback: Path) -> Path:
    """Spark's checkpoint is a cache we throw away, so memory is the right disk for it."""
    memory = Path("/dev/shm")  # noqa: S108
    return memory if memory.is_dir() else fallback


class Ingest:
    """One streaming query at a time; a broken one is replaced by one that reads on where the inbox is."""

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
        """Read on from where the inbox is."""
        with self._lock:
            positions = self._inbox.positions()
        offsets = stream.starting_offsets(self._settings, positions)
        self._scratch = Scratch(_fast_folder(self._settings.scratch_dir), "ingest")
        self._query = stream.start(self._spark, self._settings, offsets, self._scratch.path, self._receive)
        self._started = time.monotonic()

    def stop(self) -> None:
        """End the query and drop its folder."""
        if self._query is not None:
            self._query.stop()
            self._query = None
        if self._scratch is not None:
            self._scratch.remove()
            self._scratch = None

    def tend(self) -> None:
        """Replace a query that ended. A message that breaks the contract is raised: reading it again would not help."""
        if self._failure is not None:
            raise self._failure
        if self._query is not None and self._query.isActive:
            return
        error = self._query.exception() if self._query is not None else None
        self.stop()
        steady = time.monotonic() - self._started > STEADY_AFTER_S
        self._failures = 1 if steady else self._failures + 1
        pause = RESTART_PAUSES_S[min(self._failures, len(RESTART_PAUSES_S)) - 1]
        first_line = str(error).strip().splitlines()[0] if error else "it ended"
        log.warning("reading Kafka starts again", extra={"error": first_line[:300], "after_s": pause})
        time.sleep(pause)
        self.start()

    def _receive(self, messages: list[stream.Message]) -> None:
        try:
            decoded = [(message, self._decode(message)) for message in messages]
        except Infrastructure:
            raise
        except Exception as error:
            # Reading it again would not help, so it must not end with the query's thread: the main loop looks here.
            self._failure = error
            raise
        with self._lock:
            for message, content in decoded:
                at = (message.topic, message.partition)
                match content:
                    case None:
                        self._inbox.seen(at, message.offset)
                    case Arrival():
                        self._inbox.add_row(at, message.offset, content)
                    case _:
                        self._inbox.add_record(at, message.offset, content)
            self._lock.notify_all()

    def _decode(self, message: stream.Message) -> Arrival | progress.Progress | progress.Capture | None:
        if message.value is None:
            return None
        if message.topic == self._progress_topic:
            return progress.decode(message.value)
        codec = self._schemas.codec(message.value)
        return Arrival(codec.decode(message.value), codec.schema)
