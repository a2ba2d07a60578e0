"""The sinks after PostgreSQL: deltas that it has committed in; the same deltas on the topics and in Delta out."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from applier.errors import Infrastructure
from applier.plan.stream_table import StreamTable
from applier.sinks.delta import Delta
from applier.sinks.delta_lake.sink import DeltaSink
from applier.sinks.delta_queue import DeltaQueue
from applier.sinks.kafka.publication import Numbering
from applier.sinks.kafka.publisher import PublishingStopped, TopicPublisher
from shared_schema.lsn import Lsn

TOPIC, DELTA = "topic", "delta"


class Downstream:
    """The deltas that the topic and Delta still have to receive. All of it can be lost: each sink knows its frontier.

    `publish` runs on a thread of its own, all else on the thread of the ticks; a write beside the ticks also reads the
    frontiers and the queued deltas of its stream table. Without `open_publisher` nothing is
    published, without `delta_sink` there are no Delta tables.
    """

    def __init__(self, open_publisher: Callable[[], TopicPublisher] | None, delta_sink: DeltaSink | None) -> None:
        self._open_publisher = open_publisher
        self._publisher: TopicPublisher | None = None
        self._delta_sink = delta_sink
        self._queues: dict[str, DeltaQueue] = {}
        self._opening = threading.Lock()
        self._changed = threading.Condition()
        """Guards what follows; notified when there is something to publish, and when publishing ends."""
        self._is_awaited = False
        self._ready: dict[int, Lsn] = {}
        """Up to where deltas may be published: those of a tick together, never before the tick has queued all."""
        self._begun: dict[int, Numbering] = {}
        """The deltas that are published in part: a new publisher continues them."""
        self._publishing: frozenset[int] = frozenset()
        """The stream tables whose deltas are being published."""
        self._given_up: set[int] = set()
        """Those of them that are to be forgotten."""
        self._followed: set[int] = set()
        """The stream tables whose queued deltas begin where the sinks end; those of others are not queued."""
        if open_publisher is not None:
            self._queues[TOPIC] = DeltaQueue()
        if delta_sink is not None:
            self._queues[DELTA] = delta_sink.queue

    def frontiers(self, table: StreamTable) -> dict[str, Lsn]:
        """Return the frontier of the stream table in each sink."""
        return self._topic_frontier(table) | ({DELTA: self._delta_sink.frontier(table)} if self._delta_sink else {})

    def await_frontiers(self, table: StreamTable) -> dict[str, Lsn]:
        """Return the frontier of the stream table in each sink, after a write in progress has ended."""
        with self._changed:
            # `forget` has stopped it: this takes no longer than some rows.
            self._changed.wait_for(lambda: table.id not in self._publishing)
        return self._topic_frontier(table) | (
            {DELTA: self._delta_sink.await_frontier(table)} if self._delta_sink else {}
        )

    def _topic_frontier(self, table: StreamTable) -> dict[str, Lsn]:
        publisher = self._current_publisher()
        return {} if publisher is None else {TOPIC: publisher.frontier(table)}

    def follow(self, table_id: int) -> None:
        """Queue deltas of a stream table from now on; the first ones begin where the sinks end."""
        with self._changed:
            self._followed.add(table_id)

    def follows(self, table_id: int) -> bool:
        """Whether the sinks of a stream table lack nothing but what is queued."""
        with self._changed:
            return table_id in self._followed

    def add(self, table: StreamTable, delta: Delta, sinks: Sequence[str] = (TOPIC, DELTA)) -> None:
        """Queue a delta for these sinks, unless its stream table was forgotten: it would leave a gap."""
        with self._changed:
            if table.id not in self._followed:
                return
            for sink in sinks:
                if sink in self._queues:
                    self._queues[sink].add(table, delta)

    @contextmanager
    def queued(self, table_id: int) -> Iterator[list[Delta]]:
        """Yield the deltas that some sink still lacks, with leases: Delta is written on another thread."""
        with ExitStack() as leases:
            found = [leases.enter_context(queue.lease(table_id)) for queue in self._queues.values()]
            yield list({delta.lsn_range: delta for deltas in found for _, delta in deltas}.values())

    def unpublished_since(self) -> Lsn | None:
        """Return the LSN from which on the topic lacks a queued delta; None when it lacks none."""
        return self._queues[TOPIC].lowest_frontier() if TOPIC in self._queues else None

    def is_drained(self, tables: Iterable[int]) -> bool:
        """Whether every sink has received every delta."""
        if TOPIC in self._queues and self._queues[TOPIC].tables():
            return False
        return DELTA not in self._queues or all(self._queues[DELTA].is_idle(table_id) for table_id in tables)

    def wake(self) -> None:
        """Wake the thread that publishes: all that a tick queued is queued."""
        with self._changed:
            self._ready = self._queues[TOPIC].last_frontiers() if TOPIC in self._queues else {}
            self._is_awaited = True
            self._changed.notify_all()

    def wait_for_deltas(self, timeout_s: float) -> None:
        """Wait until `wake` is called."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_awaited, timeout_s)
            self._is_awaited = False

    def publish(self, stopping: threading.Event | None = None) -> list[tuple[StreamTable, Delta]]:
        """Publish what was queued before the last `wake` and return it; when it fails it stays queued, and a long delta
        is continued by the next call."""
        if TOPIC not in self._queues or not self._ready:
            return []
        if (publisher := self._current_publisher()) is None:
            return []
        queue = self._queues[TOPIC]
        with ExitStack() as leases:
            with self._changed:
                # Read under the lock: `forget` comes before, then nothing is queued, or after, then it stops this.
                leased = [each for table_id in self._ready for each in leases.enter_context(queue.lease(table_id))]
                queued = [(t, d) for t, d in leased if d.lsn_range.upper <= self._ready[t.id]]
                self._publishing, self._given_up = frozenset(table.id for table, _ in queued), set()
            try:
                missing = [(t, d) for t, d in queued if publisher.frontier(t) < d.lsn_range.upper]
                publisher.publish(missing, lambda: bool(self._given_up) or bool(stopping and stopping.is_set()))
            except PublishingStopped:
                pass
            except Infrastructure:
                # A new publisher finds out whether the transaction was committed after all.
                self._publisher = None
                raise
            finally:
                self._end_publishing(publisher)
        for table, _ in queued:
            if table.id not in self._given_up:
                queue.remove_until(table.id, publisher.frontier(table))
        with self._changed:
            self._ready = {t: upper for t, upper in self._ready.items() if not queue.is_idle(t)}
        return [(table, delta) for table, delta in missing if delta.lsn_range.upper <= publisher.frontier(table)]

    def _end_publishing(self, publisher: TopicPublisher) -> None:
        with self._changed:
            for table_id in self._given_up:
                # The rest of its delta will not come: its topic begins again.
                publisher.begun.pop(table_id, None)
            self._begun = publisher.begun
            self._publishing = frozenset()
            self._changed.notify_all()

    def drain(self, table_id: int) -> bool:
        """Have all queued deltas of a stream table written; return whether nothing is left."""
        self.wake()
        if self._delta_sink is not None:
            self._delta_sink.flush_table(table_id)
        return all(queue.is_idle(table_id) for queue in self._queues.values())

    def _current_publisher(self) -> TopicPublisher | None:
        """Return the publisher, opened again after a failure; None when publishing is switched off."""
        with self._opening:
            if self._publisher is None and self._open_publisher is not None:
                self._publisher = self._open_publisher()
                self._publisher.begun = self._begun
            return self._publisher

    def forget(self, table_id: int) -> None:
        """Drop what is queued for a stream table, and stop publishing it; it is given again by catching up."""
        with self._changed:
            self._followed.discard(table_id)
            for queue in self._queues.values():
                queue.forget(table_id)
            self._ready.pop(table_id, None)
            if table_id in self._publishing:
                self._given_up.add(table_id)
            else:
                self._begun.pop(table_id, None)
