"""The sinks after PostgreSQL: deltas that it has committed in; the same deltas on the topics and in Delta out."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

from applier.plan.stream_table import StreamTable
from applier.sinks.delta import Delta
from applier.sinks.delta_lake.sink import DeltaSink
from applier.sinks.followed_tables import FollowedTables
from applier.sinks.kafka.publisher import TopicPublisher
from applier.sinks.kafka.sink import TopicSink
from shared_schema.lsn import ORIGIN, Lsn

log = logging.getLogger(__name__)

TOPIC, DELTA = "topic", "delta"

MAX_ROWS = 1_000_000


class Downstream:
    """The deltas that the topic and Delta still have to receive. All of it can be lost: each sink knows its frontier.

    Without `open_publisher` nothing is published, without `delta_sink` there are no Delta tables. With more than
    `max_rows` to publish, only the first delta of each stream table is kept: it catches up after that.
    """

    def __init__(
        self,
        open_publisher: Callable[[], TopicPublisher] | None,
        delta_sink: DeltaSink | None,
        max_rows: Callable[[], int] = lambda: MAX_ROWS,
    ) -> None:
        self._lock = threading.Condition()
        """No delta is queued while a stream table is forgotten."""
        self._max_rows = max_rows
        self.topics = None if open_publisher is None else TopicSink(open_publisher, self._lock)
        self._delta_sink = delta_sink
        sinks = {TOPIC: self.topics, DELTA: delta_sink}
        self.sinks: Mapping[str, TopicSink | DeltaSink] = {
            name: sink for name, sink in sinks.items() if sink is not None
        }
        self.followed = FollowedTables(self.sinks, self._lock)

    def frontiers(self, table: StreamTable) -> dict[str, Lsn]:
        """Return the frontier that each sink has reached at least; ORIGIN while that of the topic is not known."""
        if self.followed.is_left_out(table.id):
            return {}
        return {name: sink.frontier(table) or ORIGIN for name, sink in self.sinks.items()}

    def await_frontiers(self, table: StreamTable) -> dict[str, Lsn] | None:
        """Return the frontier of each sink of a stream table that was forgotten, after a write in progress has ended;
        None when the broker does not say within some seconds."""
        found: dict[str, Lsn] = {}
        for name, sink in self.sinks.items():
            if (at := sink.await_frontier(table)) is None:
                return None
            found[name] = at
        return found

    def follow_from(self, table: StreamTable) -> dict[str, Lsn]:
        """Queue deltas of a stream table from now on, for each sink whose frontier is known; return these frontiers.

        The topic's is not known while the broker is away, nor while something of the stream table is on its way.
        """
        found: dict[str, Lsn] = {}
        with self._lock:
            unfollowed = [sink for sink in self.sinks if not self.followed.is_followed(table.id, sink)]
            if self.topics is not None and TOPIC in unfollowed:
                if (at := self.topics.final_frontier(table)) is None:
                    self.followed.fall_behind(table.id, TOPIC)
                else:
                    self.followed.follow(table.id, [TOPIC])
                    found[TOPIC] = at
            if DELTA in unfollowed:
                self.followed.follow(table.id, [DELTA])
        if self._delta_sink is not None and DELTA in unfollowed:
            found[DELTA] = self._delta_sink.await_frontier(table)
        return found

    def add(self, table: StreamTable, delta: Delta, sinks: Sequence[str] = (TOPIC, DELTA)) -> None:
        """Queue a delta for these sinks, unless they do not follow its stream table: it would leave a gap."""
        with self._lock:
            for name, sink in self.sinks.items():
                if name in sinks and self.followed.is_followed(table.id, name):
                    sink.queue.add(table, delta)

    @contextmanager
    def queued(self, table_id: int) -> Iterator[list[Delta]]:
        """Yield the deltas that some sink still lacks, with leases: Delta is written on another thread."""
        with ExitStack() as leases:
            found = [leases.enter_context(sink.queue.lease(table_id)) for sink in self.sinks.values()]
            yield list({delta.lsn_range: delta for deltas in found for _, delta in deltas}.values())

    def is_drained(self, tables: Iterable[int]) -> bool:
        """Whether every sink has received every delta."""
        if self.topics is not None and (self.followed.has_behind(TOPIC) or self.topics.queue.tables()):
            return False
        return self._delta_sink is None or all(self._delta_sink.queue.is_idle(table_id) for table_id in tables)

    def wake(self) -> None:
        """Wake the thread that publishes: all that a tick queued is queued."""
        if self.topics is not None:
            with self._lock:
                self._limit_backlog(self.topics)
                self.topics.release()

    def _limit_backlog(self, topics: TopicSink) -> None:
        """Drop all but the first deltas when too many rows wait. The first ones stay: they may be on their topics in
        part, and whoever is dropped again and again would never get on."""
        if (held := topics.queue.volume) <= self._max_rows():
            return
        dropped = [table_id for table_id in topics.queue.tables() if self.followed.is_followed(table_id, TOPIC)]
        for table_id in dropped:
            topics.queue.remove_all_but_first(table_id)
            self.followed.fall_behind(table_id, TOPIC)
        if dropped:
            log.warning("the topics are far behind and will catch up", extra={"rows": held, "tables": len(dropped)})

    def drain(self, table_id: int) -> bool:
        """Have all queued deltas of a stream table written; return whether no sink lacks anything."""
        self.wake()
        if self._delta_sink is not None:
            self._delta_sink.flush_table(table_id)
        is_written = all(sink.queue.is_idle(table_id) for sink in self.sinks.values())
        return is_written and not self.followed.unfollowed_sinks(table_id)

    def forget(self, table_id: int) -> None:
        """Drop what is queued for a stream table, and stop publishing it; it is given again by catching up."""
        with self._lock:
            self.followed.forget(table_id)
            if self.topics is not None:
                self.topics.forget(table_id)
            if self._delta_sink is not None:
                self._delta_sink.queue.forget(table_id)
