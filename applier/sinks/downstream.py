"""The sinks after PostgreSQL: deltas that it has committed in; the same deltas on the topics and in Delta out."""

from __future__ import annotations

import logging
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
from shared_schema.lsn import ORIGIN, Lsn

log = logging.getLogger(__name__)

TOPIC, DELTA = "topic", "delta"

MAX_ROWS = 1_000_000

AWAIT_S = 10.0
"""How long a repair waits for the position of a topic."""


class Downstream:
    """The deltas that the topic and Delta still have to receive. All of it can be lost: each sink knows its frontier.

    `open_topics` and `publish` run on a thread of their own, all else on the threads of ticks and checkpoints, which
    never wait for a broker. Without `open_publisher` nothing is published, without `delta_sink` there are no Delta
    tables. With more than `max_rows` to publish, only the first delta of each stream table is kept: it catches up after
    that.
    """

    def __init__(
        self,
        open_publisher: Callable[[], TopicPublisher] | None,
        delta_sink: DeltaSink | None,
        max_rows: Callable[[], int] = lambda: MAX_ROWS,
    ) -> None:
        self._open_publisher = open_publisher
        self._publisher: TopicPublisher | None = None
        """The last one that was opened."""
        self._is_open = False
        """Whether it knows the frontiers: after a failure a transaction may have been committed or not."""
        self._delta_sink = delta_sink
        self._max_rows = max_rows
        self._queues: dict[str, DeltaQueue] = {}
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
        self._behind: set[int] = set()
        """The stream tables whose topic lacks rows that are not queued."""
        if open_publisher is not None:
            self._queues[TOPIC] = DeltaQueue()
        if delta_sink is not None:
            self._queues[DELTA] = delta_sink.queue
        self._followed: dict[str, set[int]] = {sink: set() for sink in self._queues}
        """The stream tables whose queued deltas begin where a sink ends; those of others are not queued."""
        self._left_out: set[int] = set()
        """The stream tables whose rows no sink receives."""

    def frontiers(self, table: StreamTable) -> dict[str, Lsn]:
        """Return the frontier that each sink has reached at least; ORIGIN while that of the topic is not known."""
        if table.id in self._left_out:
            return {}
        return self._topic_frontier(table) | ({DELTA: self._delta_sink.frontier(table)} if self._delta_sink else {})

    def complete_frontiers(self, table: StreamTable, until: Lsn) -> dict[str, Lsn]:
        """Return the frontier of each sink that lacks no queued delta before `until`."""
        lacking = {sink: queue.lowest_frontier(table.id) for sink, queue in self._queues.items()}
        return {
            sink: at
            for sink, at in self.frontiers(table).items()
            if (lowest := lacking[sink]) is None or lowest >= until
        }

    def await_frontiers(self, table: StreamTable) -> dict[str, Lsn] | None:
        """Return the frontier of each sink of a stream table that was forgotten, after a write in progress has ended;
        None when the broker does not say within some seconds."""
        with self._changed:
            # `forget` has stopped it: this takes no longer than some rows.
            is_known = self._changed.wait_for(
                lambda: table.id not in self._publishing and (self._publisher is not None or TOPIC not in self._queues),
                AWAIT_S,
            )
        if not is_known:
            return None
        return self._topic_frontier(table) | (
            {DELTA: self._delta_sink.await_frontier(table)} if self._delta_sink else {}
        )

    def _topic_frontier(self, table: StreamTable) -> dict[str, Lsn]:
        if TOPIC not in self._queues:
            return {}
        return {TOPIC: ORIGIN if self._publisher is None else self._publisher.frontier(table)}

    def follow(self, table_id: int) -> None:
        """Queue deltas of a stream table from now on, first one with all its rows."""
        with self._changed:
            for followed in self._followed.values():
                followed.add(table_id)
            self._behind.discard(table_id)

    def leave_out(self, table_id: int) -> None:
        """Expect no deltas of a stream table: no sink receives its rows."""
        with self._changed:
            self._left_out.add(table_id)

    def follow_from(self, table: StreamTable) -> dict[str, Lsn]:
        """Queue deltas of a stream table from now on, for each sink whose frontier is known; return these frontiers.

        The topic's is not known while the broker is away, nor while something of the stream table is on its way.
        """
        found: dict[str, Lsn] = {}
        with self._changed:
            if self._publisher is not None and not self._follows(TOPIC, table.id):
                is_idle = table.id not in self._publishing and self._queues[TOPIC].is_idle(table.id)
                if self._is_open and is_idle:
                    found[TOPIC] = self._publisher.frontier(table)
                    self._followed[TOPIC].add(table.id)
            if self._follows(TOPIC, table.id):
                self._behind.discard(table.id)
            else:
                self._behind.add(table.id)
            lacks_delta = not self._follows(DELTA, table.id)
            if lacks_delta:
                self._followed[DELTA].add(table.id)
        if lacks_delta and self._delta_sink is not None:
            found[DELTA] = self._delta_sink.await_frontier(table)
        return found

    def _follows(self, sink: str, table_id: int) -> bool:
        return sink not in self._followed or table_id in self._followed[sink]

    def follows(self, table_id: int) -> bool:
        """Whether the sinks of a stream table lack nothing but what is queued."""
        with self._changed:
            return table_id in self._left_out or all(table_id in followed for followed in self._followed.values())

    def unfollowed(self, table: StreamTable) -> dict[str, Lsn | None]:
        """Return the sinks that may lack more than what is queued, with their frontiers; None where it is not known."""
        with self._changed:
            sinks = [s for s in self._followed if table.id not in self._left_out and not self._follows(s, table.id)]
            is_known = self._publisher is not None
        at = self.frontiers(table) if sinks else {}
        return {sink: at[sink] if sink != TOPIC or is_known else None for sink in sinks}

    def add(self, table: StreamTable, delta: Delta, sinks: Sequence[str] = (TOPIC, DELTA)) -> None:
        """Queue a delta for these sinks, unless they do not follow its stream table: it would leave a gap."""
        with self._changed:
            for sink in sinks:
                if sink in self._queues and table.id in self._followed[sink]:
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
        if TOPIC in self._queues and (self._behind or self._queues[TOPIC].tables()):
            return False
        return DELTA not in self._queues or all(self._queues[DELTA].is_idle(table_id) for table_id in tables)

    def wake(self) -> None:
        """Wake the thread that publishes: all that a tick queued is queued."""
        with self._changed:
            if TOPIC in self._queues:
                self._limit_backlog(self._queues[TOPIC])
                self._ready = self._queues[TOPIC].last_frontiers()
            self._is_awaited = True
            self._changed.notify_all()

    def _limit_backlog(self, queue: DeltaQueue) -> None:
        """Drop all but the first deltas when too many rows wait. The first ones stay: they may be on their topics in
        part, and whoever is dropped again and again would never get on."""
        if (held := queue.volume) <= self._max_rows():
            return
        dropped = [table_id for table_id in queue.tables() if table_id in self._followed[TOPIC]]
        for table_id in dropped:
            queue.remove_all_but_first(table_id)
            self._followed[TOPIC].discard(table_id)
            self._behind.add(table_id)
        if dropped:
            log.warning("the topics are far behind and will catch up", extra={"rows": held, "tables": len(dropped)})

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
        publisher, queue = self.open_topics(), self._queues[TOPIC]
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
                self._is_open = False
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
        """Have all queued deltas of a stream table written; return whether no sink lacks anything."""
        self.wake()
        if self._delta_sink is not None:
            self._delta_sink.flush_table(table_id)
        return self.follows(table_id) and all(queue.is_idle(table_id) for queue in self._queues.values())

    @property
    def has_topics(self) -> bool:
        """Whether stream tables are published."""
        return TOPIC in self._queues

    def open_topics(self) -> TopicPublisher:
        """Return the publisher, opened again after a failure: then the frontiers of the topics are known."""
        if self._open_publisher is None:
            raise AssertionError("publishing is switched off")
        if self._publisher is None or not self._is_open:
            publisher = self._open_publisher()
            with self._changed:
                publisher.begun = self._begun
                self._publisher, self._is_open = publisher, True
                self._changed.notify_all()
        return self._publisher

    def forget(self, table_id: int) -> None:
        """Drop what is queued for a stream table, and stop publishing it; it is given again by catching up."""
        with self._changed:
            for followed in self._followed.values():
                followed.discard(table_id)
            self._left_out.discard(table_id)
            self._behind.discard(table_id)
            for queue in self._queues.values():
                queue.forget(table_id)
            self._ready.pop(table_id, None)
            if table_id in self._publishing:
                self._given_up.add(table_id)
            else:
                self._begun.pop(table_id, None)
