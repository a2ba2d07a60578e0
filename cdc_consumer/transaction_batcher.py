"""Takes whole source commits, decides when the open transaction of the sink ends, and writes its progress record.

A batch is the content of the open transaction. It ends at a source commit if it is old or large enough, if a
`pg_trickle` message requests it, or if there were no rows, the position moved and a heartbeat is due.
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
"""How long one round of the loop waits for the server when nothing else is due; data ends the wait immediately."""

STATUS_REQUEST_PAUSE_S = 0.2
"""A server that shuts down requests a status repeatedly; this limits how many progress records that can cause."""


@dataclass(slots=True)
class OpenBatch:
    """The content of the open transaction of the sink."""

    rows: int = 0
    commits: int = 0
    began_at: float = 0.0
    """When the first frame for it was received."""
    ended_at: float = 0.0
    """When its first source commit was complete."""
    urgent: bool = False
    oldest_us: int = 0
    """Commit time of its first source commit."""


class TransactionBatcher:
    """Groups whole source commits of one slot into transactions of the sink."""

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
        """The Begin message of the last commit that was received completely."""
        self.has_frontier = progress is not None
        """Whether a frontier was ever published for this slot."""
        self.batch = OpenBatch()
        self.status_requested = False
        """Whether the server requested a status update."""
        self.published_at = 0.0

    def wait_s(self) -> float:
        """Return how long the loop may wait for the server, in seconds."""
        if self.batch.commits and self._frontier.open_commit is None:
            return max(0.0, self.batch.ended_at + self._settings.linger_ms / 1000 - time.monotonic())
        return IDLE_WAIT_S

    def publish_if_due(self) -> None:
        """Publish the batch if it is due and no source commit is open."""
        if self._frontier.open_commit is None and self._is_due():
            self.publish()

    def _is_due(self) -> bool:
        batch, now = self.batch, time.monotonic()
        if not self.has_frontier:
            # A frontier means that all tables are complete, so the first frontier waits for the first captures.
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
        """Publish the whole commits received so far -> whether something was published.

        Publishes nothing before the first frontier. That one comes with the first captures, because readers of older
        topics would conclude from it that nothing is missing.
        """
        due = self.has_frontier and self.batch.commits > 0
        if due:
            self.publish()
        return due

    def publish(self, captures: tuple[Capture, ...] = (), part: CommitPart | None = None) -> None:
        """Write the progress record and end the transaction of the sink."""
        started, target, written = time.monotonic(), self._frontier.publishable, self._frontier.received
        if (begin := self.last_begin) is not None:
            self._last_commit = LastCommit(begin.commit_lsn, begin.xid, begin.commit_ts_us, self._settings.publications)

        def progress(offsets: Offsets) -> Progress:
            return self._build_progress(target, written, offsets, part)

        self._ports.sink.publish(progress, captures)
        self._frontier.mark_published(target, written)
        self._ports.metrics.unpublished = 0, 0
        self._ports.feedback.send()
        self._ports.metrics.transactions.inc(self.batch.commits)
        if self._last_commit is not None:
            self._ports.metrics.last_transaction.set(self._last_commit.xid)
        self._ports.metrics.publications.inc()
        self._ports.metrics.publish_seconds.observe(time.monotonic() - started)
        self.batch, self.status_requested, self.has_frontier, self.published_at = (
            OpenBatch(),
            False,
            True,
            time.monotonic(),
        )

    def _build_progress(self, frontier: Lsn, written: Lsn, offsets: Offsets, part: CommitPart | None) -> Progress:
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
            schemas={r: f for r, f in fingerprints.items() if self._ports.captures.is_captured(r)},
            part=part,
            written=written if written > frontier else None,
        )
