"""The inbox in; complete change rows in the traces, and the frontier up to which they are complete, out."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from applier import metrics
from applier.arrange.traces import Traces
from applier.ingest.inbox import Inbox
from applier.refresh.holding.readiness import ANY_RELATION
from applier.sinks.kafka.publisher import has_topic
from shared_schema.errors import ContractError
from shared_schema.lsn import Lsn
from shared_schema.progress import Capture, Offsets, Progress
from shared_schema.table_schema import TableId, TableSchema

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Intake:
    """Moves rows from the inbox to the traces. Spark's stream thread fills the inbox under the same lock."""

    inbox: Inbox
    lock: threading.Condition
    traces: Traces
    schema_of: Callable[[Capture], TableSchema]
    sources_elsewhere: bool
    """Whether the rows of the sources are in another database."""
    _unknown: dict[TableId, Lsn] = field(default_factory=dict)
    """Where the copies begin whose schema is missing."""

    def advance(self) -> Lsn:
        """Move complete rows from the inbox to the traces; return the frontier up to which they are complete."""
        with self.lock:
            frontier = self.inbox.advance()
            captures = list(self.inbox.captures.values())
        self.traces.stopped = {capture.table: reason for capture in captures if (reason := self._stops(capture))}
        # Before any row leaves the inbox: a schema may have to be read from Kafka, which may be away.
        new = [capture for capture in captures if not capture.stopped and self._is_new(capture)]
        schemas = [(capture, schema) for capture in new if (schema := self._read_schema(capture)) is not None]
        with self.lock:
            # Not beyond the frontier of before: it may have moved, past captures whose schemas were not read.
            arrivals, gaps = self.inbox.take(frontier), dict(self.inbox.gaps)
            unreadable = self.inbox.unreadable()
            # Spark's stream thread may wait for room.
            self.lock.notify_all()
        for capture, schema in schemas:
            self.traces.capture(self._localize(capture), schema)
        self.traces.leave_out(gaps)
        self.traces.append(arrivals)
        for lost in unreadable:
            if self.traces.lose(lost.table, lost.since, lost.problem):
                with self.lock:
                    self.inbox.forget_unreadable(lost)
        metrics.ROWS_IN.inc(sum(len(run) for runs in arrivals.values() for run in runs))
        return frontier

    def _read_schema(self, capture: Capture) -> TableSchema | None:
        """Return the schema of a copy; None, with the reason, when it is not on its topic: that concerns its relation.

        What follows is thrown away then, so a schema that comes later does not help: only the next copy does.
        """
        problem = "the schema with which it was copied is not on the schemas topic"
        if self._unknown.get(capture.table) != capture.snapshot_lsn:
            try:
                return self.schema_of(capture)
            except ContractError as error:
                log.error("a copy cannot be read", extra={"table": str(capture.table), "error": error.log_text})
                self._unknown[capture.table] = capture.snapshot_lsn
                self.traces.lose(capture.table, capture.snapshot_lsn, problem)
        self.traces.stopped[capture.table] = problem
        return None

    def _stops(self, capture: Capture) -> str:
        """Return why a relation cannot be read. What the publications of this database leave out is compared here."""
        return capture.stopped or (capture.left_out if self.sources_elsewhere else "")

    def _is_new(self, capture: Capture) -> bool:
        trace = self.traces.get(capture.table)
        return trace is None or trace.captured_at < capture.snapshot_lsn

    def _localize(self, capture: Capture) -> Capture:
        """Remove the relid of a capture that comes from another database."""
        is_here = not (self.sources_elsewhere or has_topic(capture))
        return capture if is_here else replace(capture, relid=ANY_RELATION)

    @property
    def arrived(self) -> Lsn:
        """The frontier of what has arrived, moved to the traces or not."""
        return self.inbox.frontier

    @property
    def progress(self) -> Progress | None:
        """The progress record of the frontier."""
        return self.inbox.progress

    def wait(self, since: Lsn, has_other_work: Callable[[], bool], timeout_s: float) -> None:
        """Wait until rows beyond `since` are complete, there is other work, or the time is over."""
        with self.lock:
            self.lock.wait_for(lambda: self.inbox.advance() > since or has_other_work(), timeout_s)

    def wake(self) -> None:
        """Let `wait` look again."""
        with self.lock:
            self.lock.notify_all()

    def restart_offsets(self, frontier: Lsn) -> Offsets:
        """Return per partition the offset from which everything at or after the frontier can be read again."""
        with self.lock:
            return self.inbox.restart_offsets(frontier)
