"""The sinks after PostgreSQL: deltas that it has committed in; the same deltas on the topics and in Delta out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from applier.errors import Infrastructure
from applier.plan.stream_table import StreamTable
from applier.sinks.delta import Delta
from applier.sinks.delta_lake.sink import DeltaSink
from applier.sinks.delta_queue import DeltaQueue
from applier.sinks.kafka.publisher import TopicPublisher
from shared_schema.lsn import Lsn

TOPIC, DELTA = "topic", "delta"


class Downstream:
    """The deltas that the topic and Delta still have to receive. All of it can be lost: each sink knows its frontier.

    Without `open_publisher` nothing is published, without `delta_sink` there are no Delta tables.
    """

    def __init__(self, open_publisher: Callable[[], TopicPublisher] | None, delta_sink: DeltaSink | None) -> None:
        self._open_publisher = open_publisher
        self._publisher: TopicPublisher | None = None
        self._delta_sink = delta_sink
        self._queues: dict[str, DeltaQueue] = {}
        if open_publisher is not None:
            self._queues[TOPIC] = DeltaQueue()
        if delta_sink is not None:
            self._queues[DELTA] = delta_sink.queue

    def frontiers(self, table: StreamTable) -> dict[str, Lsn]:
        """Return the frontier of the stream table in each sink."""
        return self._topic_frontier(table) | ({DELTA: self._delta_sink.frontier(table)} if self._delta_sink else {})

    def await_frontiers(self, table: StreamTable) -> dict[str, Lsn]:
        """Return the frontier of the stream table in each sink, after a write in progress has ended."""
        return self._topic_frontier(table) | (
            {DELTA: self._delta_sink.await_frontier(table)} if self._delta_sink else {}
        )

    def _topic_frontier(self, table: StreamTable) -> dict[str, Lsn]:
        publisher = self._current_publisher()
        return {} if publisher is None else {TOPIC: publisher.frontier(table)}

    def add(self, table: StreamTable, delta: Delta, sinks: Sequence[str] = (TOPIC, DELTA)) -> None:
        """Queue a delta for these sinks."""
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

    def publish(self) -> None:
        """Publish all queued deltas in one Kafka transaction; when it fails they stay queued."""
        if TOPIC not in self._queues or not (tables := self._queues[TOPIC].tables()):
            return
        if (publisher := self._current_publisher()) is None:
            return
        queue = self._queues[TOPIC]
        with ExitStack() as leases:
            queued = [table_delta for t in tables for table_delta in leases.enter_context(queue.lease(t))]
            try:
                publisher.publish([(t, d) for t, d in queued if publisher.frontier(t) < d.lsn_range.upper])
            except Infrastructure:
                # A new publisher finds out whether the transaction was committed after all.
                self._publisher = None
                raise
        for table_id in tables:
            queue.forget(table_id)

    def _current_publisher(self) -> TopicPublisher | None:
        """Return the publisher, opened again after a failure; None when publishing is switched off."""
        if self._publisher is None and self._open_publisher is not None:
            self._publisher = self._open_publisher()
        return self._publisher

    def forget(self, table_id: int) -> None:
        """Drop what is queued for a stream table; it is given again by catching up."""
        for queue in self._queues.values():
            queue.forget(table_id)
