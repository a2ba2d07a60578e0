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
from shared_schema.progress import Capture, Offsets
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
            captures, arrivals, gaps = list(self.inbox.captures.values()), self.inbox.take(), dict(self.inbox.gaps)
        for capture in captures:
            trace = self.traces.get(capture.table)
            if trace is None or trace.captured_at < capture.snapshot_lsn:
                self.traces.capture(self._localize(capture), self.schema_of(capture))
        self.traces.leave_out(gaps)
        self.traces.append(arrivals)
        metrics.ROWS_IN.inc(sum(len(run) for runs in arrivals.values() for run in runs))
        return frontier

    def _localize(self, capture: Capture) -> Capture:
        """Remove the relid of a capture that comes from another database."""
        is_here = not (self.sources_elsewhere or has_topic(capture))
        return capture if is_here else replace(capture, relid=ANY_RELATION)

    @property
    def arrived(self) -> Lsn:
        """The frontier of what has arrived, moved to the traces or not."""
        return self.inbox.frontier

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
