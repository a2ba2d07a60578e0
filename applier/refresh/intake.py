"""The inbox in; complete change rows in the traces, and the frontier up to which they are complete, out."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace

from applier import metrics
from applier.arrange.traces import Traces
from applier.ingest.inbox import Inbox
from applier.refresh.readiness import ANY_RELATION
from applier.sinks.kafka.publisher import has_topic
from shared_schema.lsn import Lsn
from shared_schema.progress import Capture, Offsets, Progress
from shared_schema.table_schema import TableSchema


@dataclass(frozen=True)
class Intake:
    """Moves rows from the inbox to the traces. Spark's stream thread fills the inbox under the same lock."""

    inbox: Inbox
    lock: threading.Condition
    traces: Traces
    schema_of: Callable[[Capture], TableSchema]
    sources_elsewhere: bool
    """Whether the rows of the sources are in another database."""

    def advance(self) -> Lsn:
        """Move complete rows from the inbox to the traces; return the frontier up to which they are complete."""
        with self.lock:
            frontier = self.inbox.advance()
            captures = list(self.inbox.captures.values())
        self.traces.stopped = {capture.table: reason for capture in captures if (reason := self._stops(capture))}
        # Before any row leaves the inbox: a schema may have to be read from Kafka, which may be away.
        new = [capture for capture in captures if not capture.stopped and self._is_new(capture)]
        schemas = [(capture, self.schema_of(capture)) for capture in new]
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
