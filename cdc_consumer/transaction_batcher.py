"""When the open transaction of the sink ends, and what its progress record says.

A batch is what the open transaction holds. It ends at a commit, when it is old or large enough, when a `pg_trickle`
message asks for it, or when the idle position moved and a heartbeat is due.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from cdc_consumer.pgoutput.messages import Begin
from cdc_consumer.ports import Ports
from cdc_consumer.resume import StartingPoint
from cdc_consumer.settings import ConsumerSettings
from cdc_consumer.wal.frontier import Frontier
from shared_schema.lsn import Lsn
from shared_schema.progress import Capture, CommitPart, LastCommit, Offsets, Progress

IDLE_WAIT_S = 0.05
"""How long a turn waits for the server when nothing else is due; data ends the wait at once."""

STATUS_REQUEST_PAUSE_S = 0.2
"""A server that shuts down asks again and again; this bounds the progress records it can cause."""


@dataclass(slots=True)
class OpenBatch:
    """What the open transaction of the sink holds."""

    rows: int = 0
    commits: int = 0
    began_at: float = 0.0
    """When something was first received for it."""
    ended_at: float = 0.0
    """When its first commit was complete."""
    urgent: bool = False
    oldest_us: int = 0
    """Commit time of its first source commit."""


class TransactionBatcher:
    """Whole commits of one slot into transactions of the sink."""

    def __init__(
        self,
        settings: ConsumerSettings,
        point: StartingPoint,
        frontier: Frontier,
        ports: Ports,
        progress: Progress | None,
    ) -> None:
        self._settings = settings
        self._point = point
        self._frontier = frontier
        self._ports = ports
        self._last_commit = progress.last_commit if progress else None
        self.last_begin: Begin | None = None
        """Of the last commit that was received whole."""
        self.begun = progress is not None
        """Whether there is a frontier at all."""
        self.batch = OpenBatch()
        self.status_requested = False
        """Whether the server wants to know where we are."""
        self.published_at = 0.0

    def patience_s(self) -> float:
        """How long to wait for the server."""
        if self.batch.commits and self._frontier.open_commit is None:
            return max(0.0, self.batch.ended_at + self._settings.linger_ms / 1000 - time.monotonic())
        return IDLE_WAIT_S

    def if_due(self) -> None:
        """Publish when it is time, between commits."""
        if self._frontier.open_commit is None and self._due():
            self.publish()

    def _due(self) -> bool:
        batch, now = self.batch, time.monotonic()
        if not self.begun:
            # A frontier says that all tables are complete, so the first one waits for the first captures.
            return self._ports.captures.settled and self._ports.captures.export is None
        if batch.commits:
            lingered = (now - batch.ended_at) * 1000 >= self._settings.linger_ms
            return batch.urgent or lingered or batch.rows >= self._settings.batch_max_rows
        if self._frontier.received <= self._frontier.durable:
            batch.urgent = self.status_requested = False
            return False
        idle_s = now - self.published_at
        status_requested = self.status_requested and idle_s >= STATUS_REQUEST_PAUSE_S
        return batch.urgent or status_requested or idle_s * 1000 >= self._settings.heartbeat_ms

    def publish_received(self) -> bool:
        """Publish the whole commits received. Not before the first frontier: that one comes with the first captures,
        because readers of older topics would take it that nothing is missing."""
        due = self.begun and self.batch.commits > 0
        if due:
            self.publish()
        return due

    def publish(self, captures: tuple[Capture, ...] = (), part: CommitPart | None = None) -> None:
        """End the transaction with its progress record."""
        started, target, written = time.monotonic(), self._frontier.publishable, self._frontier.received
        if (begin := self.last_begin) is not None:
            self._last_commit = LastCommit(begin.commit_lsn, begin.xid, begin.commit_ts_us, self._settings.publications)

        def progress(offsets: Offsets) -> Progress:
            return self._progress(target, written, offsets, part)

        self._ports.sink.publish(progress, captures)
        self._frontier.mark_published(target, written)
        self._ports.metrics.unpublished = 0, 0
        self._ports.feedback.send()
        self._ports.metrics.transactions.inc(self.batch.commits)
        if self._last_commit is not None:
            self._ports.metrics.last_transaction.set(self._last_commit.xid)
        self._ports.metrics.publications.inc()
        self._ports.metrics.publish_seconds.observe(time.monotonic() - started)
        self.batch, self.status_requested, self.begun, self.published_at = OpenBatch(), False, True, time.monotonic()

    def _progress(self, frontier: Lsn, written: Lsn, offsets: Offsets, part: CommitPart | None) -> Progress:
        fingerprints = (
            self._ports.schema_versions.fingerprints_before if part else self._ports.schema_versions.fingerprints
        )
        return Progress(
            self._settings.slot,
            self._point.server.system_id,
            self._point.server.timeline,
            self._point.slot_lsn,
            frontier,
            dict(offsets),
            self._last_commit,
            schemas={r: f for r, f in fingerprints.items() if self._ports.captures.holds(r)},
            part=part,
            written=written if written > frontier else None,
        )
