"""The Kafka sink: deltas that PostgreSQL has committed in; the same on their topics, by a thread of its own, out."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack

from applier.errors import Infrastructure
from applier.plan.stream_table import StreamTable
from applier.sinks.delta import Delta
from applier.sinks.delta_queue import DeltaQueue
from applier.sinks.kafka.publication import Numbering
from applier.sinks.kafka.publisher import PublishingStopped, TopicPublisher
from shared_schema.lsn import Lsn

AWAIT_S = 10.0
"""How long a repair waits for the position of a topic."""


class TopicSink:
    """The topics of all stream tables. All of it can be lost: the topics know their frontiers.

    `open` and `publish` run on a thread of their own, all else on the threads of ticks and checkpoints, which never
    wait for a broker. `changed` is the lock of `Downstream`; it is notified when there is something to publish, and
    when publishing ends.
    """

    def __init__(self, open_publisher: Callable[[], TopicPublisher], changed: threading.Condition) -> None:
        self.queue = DeltaQueue()
        self._open_publisher = open_publisher
        self._changed = changed
        """Guards what follows."""
        self._publisher: TopicPublisher | None = None
        """The last one that was opened."""
        self._is_open = False
        """Whether it knows the frontiers: after a failure a transaction may have been committed or not."""
        self._is_awaited = False
        self._ready: dict[int, Lsn] = {}
        """Up to where deltas may be published: those of a tick together, never before the tick has queued all."""
        self._begun: dict[int, Numbering] = {}
        """The deltas that are published in part: a new publisher continues them."""
        self._publishing: frozenset[int] = frozenset()
        """The stream tables whose deltas are being published."""
        self._given_up: set[int] = set()
        """Those of them that are to be forgotten."""

    def frontier(self, table: StreamTable) -> Lsn | None:
        """Return the frontier that the topic has reached at least; None while it is not known."""
        return None if self._publisher is None else self._publisher.frontier(table)

    def await_frontier(self, table: StreamTable) -> Lsn | None:
        """Return the frontier of a stream table that was forgotten, after a publication in progress has ended; None
        when the broker does not say within some seconds."""
        with self._changed:
            # `forget` has stopped it: this takes no longer than some rows.
            is_known = self._changed.wait_for(
                lambda: table.id not in self._publishing and self._publisher is not None, AWAIT_S
            )
        return self.frontier(table) if is_known else None

    def final_frontier(self, table: StreamTable) -> Lsn | None:
        """Return the frontier where nothing of the stream table is queued or on its way; None where something is, or
        may be."""
        with self._changed:
            is_idle = table.id not in self._publishing and self.queue.is_idle(table.id)
            return self.frontier(table) if self._is_open and is_idle else None

    def release(self) -> None:
        """Let the thread publish all that is queued."""
        with self._changed:
            self._ready = self.queue.last_frontiers()
            self._is_awaited = True
            self._changed.notify_all()

    def wait_for_release(self, timeout_s: float) -> None:
        """Wait until something is released."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_awaited, timeout_s)
            self._is_awaited = False

    def open(self) -> TopicPublisher:
        """Return the publisher, opened again after a failure: then the frontiers of the topics are known."""
        if self._publisher is None or not self._is_open:
            publisher = self._open_publisher()
            with self._changed:
                publisher.begun = self._begun
                self._publisher, self._is_open = publisher, True
                self._changed.notify_all()
        return self._publisher

    def publish(self, stopping: threading.Event | None = None) -> list[tuple[StreamTable, Delta]]:
        """Publish what was queued before the last `release` and return it; when it fails it stays queued, and a long
        delta is continued by the next call."""
        if not self._ready:
            return []
        publisher = self.open()
        with ExitStack() as leases:
            with self._changed:
                # Read under the lock: `forget` comes before, then nothing is queued, or after, then it stops this.
                queues = [leases.enter_context(self.queue.lease(table_id)) for table_id in self._ready]
                queued = [(t, d) for deltas in queues for t, d in deltas if d.lsn_range.upper <= self._ready[t.id]]
                self._publishing, self._given_up = frozenset(table.id for table, _ in queued), set()
            try:
                missing = [(t, d) for t, d in queued if publisher.frontier(t) < d.lsn_range.upper]
                publisher.publish(missing, lambda: bool(self._given_up) or bool(stopping and stopping.is_set()))
            except PublishingStopped:
                pass
            except Infrastructure:
                # A new publisher finds out whether the transaction was committed after all.
                self._is_open = False
                raise
            finally:
                self._end_publishing(publisher)
        for table, _ in queued:
            if table.id not in self._given_up:
                self.queue.remove_until(table.id, publisher.frontier(table))
        with self._changed:
            self._ready = {t: upper for t, upper in self._ready.items() if not self.queue.is_idle(t)}
        return [(table, delta) for table, delta in missing if delta.lsn_range.upper <= publisher.frontier(table)]

    def _end_publishing(self, publisher: TopicPublisher) -> None:
        with self._changed:
            for table_id in self._given_up:
                # The rest of its delta will not come: its topic begins again.
                publisher.begun.pop(table_id, None)
            self._begun = publisher.begun
            self._publishing = frozenset()
            self._changed.notify_all()

    def forget(self, table_id: int) -> None:
        """Drop what is queued for a stream table, and stop publishing it."""
        with self._changed:
            self.queue.forget(table_id)
            self._ready.pop(table_id, None)
            if table_id in self._publishing:
                self._given_up.add(table_id)
            else:
                self._begun.pop(table_id, None)
