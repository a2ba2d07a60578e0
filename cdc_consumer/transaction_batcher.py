"""Takes whole source commits, decides when the open transaction of the sink ends, and writes its progress record.

A batch is the content of the open transaction. It ends at a source commit if it is old or large enough, if a
`pg_trickle` message requests it, or if there were no rows, the position moved and a heartbeat is due. How old is old
enough depends on how far the stream lags: the broker's work is per transaction, so while more waits they are larger.
"""

from __future__ import annotations

import time
from dataclasses import replace

from cdc_consumer.change_rows.split import Transaction
from cdc_consumer.health import Health
from cdc_consumer.metrics import Metrics
from cdc_consumer.open_batch import OpenBatch
from cdc_consumer.progress_records import ProgressRecords
from cdc_consumer.settings import ConsumerSettings
from cdc_consumer.sinks.sink import Sink
from cdc_consumer.snapshot.captures import Captures
from cdc_consumer.wal.compared import ComparedPositions
from cdc_consumer.wal.feedback import Feedback
from cdc_consumer.wal.frontier import Frontier
from cdc_consumer.wal.log_clock import LogClock
from shared_schema.lsn import Lsn
from shared_schema.progress import Capture, CommitPart

IDLE_WAIT_S = 0.05
"""How long one round of the loop waits for the server when nothing else is due; data ends the wait immediately."""

STATUS_REQUEST_PAUSE_S = 0.2
"""A server that shuts down requests a status repeatedly; this limits how many progress records that can cause."""


class TransactionBatcher:
    """Groups whole source commits of one slot into transactions of the sink."""

    def __init__(
        self,
        *,
        settings: ConsumerSettings,
        frontier: Frontier,
        sink: Sink,
        records: ProgressRecords,
        feedback: Feedback,
        captures: Captures,
        metrics: Metrics,
        health: Health,
        clock: LogClock,
        compared: ComparedPositions,
        has_frontier: bool,
    ) -> None:
        self._settings = settings
        self._frontier = frontier
        self._sink = sink
        self._records = records
        self._feedback = feedback
        self._captures = captures
        self._metrics = metrics
        self._health = health
        self._clock = clock
        self._compared = compared
        self.batch = OpenBatch()
        self.has_frontier = has_frontier
        """Whether a frontier was ever published for this slot."""
        self._published_at = 0.0
        self._has_uncounted = True
        """Whether rows may be on the topics that no frontier includes yet: the next one then does."""

    def wait_s(self) -> float:
        """Return how long the loop may wait for the server, in seconds."""
        if self.batch.commits and self._frontier.open_commit is None:
            return max(0.0, self._due_at() - time.monotonic())
        return IDLE_WAIT_S

    def publish_if_due(self) -> None:
        """Publish the batch if it is due and no source commit is open."""
        if self._frontier.open_commit is None and self._is_due():
            self.publish()

    def _is_due(self) -> bool:
        batch, now = self.batch, time.monotonic()
        if not self.has_frontier:
            # A frontier means that all tables are complete, so the first frontier waits for the first captures.
            return self._captures.is_complete
        if batch.commits:
            is_full = batch.rows >= self._settings.batch_max_rows
            return batch.is_urgent or is_full or now >= self._due_at()
        if self._frontier.received <= self._frontier.durable:
            batch.forget_requests()
            # What held the frontier back may be over.
            return self._find_target() > self._frontier.published
        idle_s = now - self._published_at
        status_requested = batch.is_status_requested and idle_s >= STATUS_REQUEST_PAUSE_S
        return batch.is_urgent or status_requested or idle_s * 1000 >= self._settings.heartbeat_ms

    def _due_at(self) -> float:
        return self.batch.due_at(self._settings.linger_ms / 1000, int(self._health.source_now_s * 1_000_000))

    def publish_if_long(self) -> None:
        """Publish if the transaction of the sink must not last longer; for a copy, while no source commit is open."""
        limit_s = self._sink.transaction_limit_s
        if limit_s is not None and time.monotonic() - self._published_at >= limit_s:
            self.publish()

    def cut_if_long(self, transaction: Transaction) -> None:
        """Split a source commit that takes too long for one transaction of the sink over several transactions.

        Readers count its rows only when a frontier passes them, all at once. The progress record says which part is
        written, so that part is not written again when the server sends the commit again.
        """
        limit_s = self._sink.transaction_limit_s
        if limit_s is None or not (self.has_frontier and self.batch.rows):
            return
        if time.monotonic() - self.batch.began_at >= limit_s:
            publications = self._settings.publications
            self.publish(part=CommitPart(transaction.begin.commit_lsn, transaction.ordinal, publications))

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
        """Write the progress record, end the transaction of the sink, and acknowledge it to the server."""
        started, target, written = time.monotonic(), self._find_target(), self._frontier.received
        captures = (*self._captures.take_changed(), *captures)
        checkpoint, progress = self._records.build(
            target, written, self._sink.flush(), captured=captures, last=self.batch.last_begin, part=part
        )
        last, first_us = progress.last_commit, self.batch.oldest_us
        progress = replace(
            progress,
            complete_until_us=self._clock.until_at(target, last),
            first_commit_us=first_us or None,
            compared=self._compared.range,
        )
        self._sink.commit((*captures, *checkpoint, progress))
        self._frontier.mark_published(target, written)
        # A message of ours, such as a wake-up, is no source commit.
        has_rows = bool(first_us or captures or self._has_uncounted)
        self._clock.publish(target, last, first_us, has_rows=has_rows)
        self._has_uncounted = written > target or part is not None
        self._metrics.show_unpublished(0, 0)
        self._feedback.send()
        self._metrics.transactions.inc(self.batch.commits)
        if progress.last_commit is not None:
            self._metrics.last_transaction.set(progress.last_commit.xid)
        self._metrics.publications.inc()
        self._metrics.publish_seconds.observe(time.monotonic() - started)
        self.batch.clear(cut=part is not None)
        self.has_frontier = True
        self._published_at = time.monotonic()

    def commit_copied(self, *captures: Capture) -> None:
        """Commit a capture and its rows without a progress record: readers do not count them yet."""
        self._records.note_captures(captures)
        self._sink.commit(captures)
        self._has_uncounted = True

    def note_complete(self) -> None:
        """Note how far everything is on the topics, when nothing waits to be published or holds the frontier back."""
        frontier = self._frontier
        if self.batch.commits or frontier.open_commit is not None or not self.has_frontier:
            return
        if frontier.limit is None and self._find_target() >= frontier.received:
            self._clock.reach(frontier.received)

    def _find_target(self) -> Lsn:
        """Return the frontier that may be published now."""
        self._frontier.await_leaf(self._captures.held_at)
        return self._frontier.publishable
