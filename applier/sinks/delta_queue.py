"""Deltas that PostgreSQL has committed in; the same deltas, until a sink has written them, out."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from applier.plan.stream_table import StreamTable
from applier.sinks.delta import Delta, MemoryDelta
from applier.sinks.lease import Lease
from applier.trace.volume import volume
from shared_schema.lsn import Lsn

TableDelta = tuple[StreamTable, Delta]


class DeltaQueue:
    """The deltas that one sink has still to write, oldest first. It holds a lease on each; any thread may call it."""

    def __init__(self) -> None:
        self._queued: dict[int, list[tuple[StreamTable, Lease[Delta]]]] = defaultdict(list)
        self._lock = threading.Lock()
        self._volume = 0

    def add(self, table: StreamTable, delta: Delta) -> None:
        """Queue a delta; it must begin where the last one queued ended."""
        with self._lock:
            self._queued[table.id].append((table, delta.lease()))
            self._volume += _volume_in_memory(delta)

    def tables(self) -> list[int]:
        """Return the ids of the stream tables for which a delta is queued."""
        with self._lock:
            return [table_id for table_id, queued in self._queued.items() if queued]

    def last_frontiers(self) -> dict[int, Lsn]:
        """Return for each stream table with queued deltas the upper end of the last one."""
        with self._lock:
            return {
                table_id: queued[-1][1].value.lsn_range.upper for table_id, queued in self._queued.items() if queued
            }

    def is_idle(self, table_id: int) -> bool:
        """Whether no delta is queued."""
        with self._lock:
            return not self._queued.get(table_id)

    def lowest_frontier(self, table_id: int | None = None) -> Lsn | None:
        """Return the LSN from which on the sink lacks a queued delta, of one stream table or of any; None when it lacks
        none."""
        with self._lock:
            queues = self._queued.values() if table_id is None else [self._queued.get(table_id, [])]
            return min((held.value.lsn_range.lower for queued in queues for _, held in queued), default=None)

    @property
    def volume(self) -> int:
        """How much the queued deltas hold in memory."""
        with self._lock:
            return self._volume

    def remove_all_but_first(self, table_id: int) -> None:
        """Remove all deltas of a stream table but its oldest."""
        with self._lock:
            first, removed = self._queued[table_id][:1], self._queued[table_id][1:]
            self._queued[table_id] = first
        self._close(removed)

    @contextmanager
    def lease(self, table_id: int) -> Iterator[list[TableDelta]]:
        """Yield the queued deltas with leases of the reader: another thread may remove them meanwhile."""
        with ExitStack() as leases:
            with self._lock:
                queued = [(table, held.value) for table, held in self._queued.get(table_id, ())]
                for _, delta in queued:
                    leases.enter_context(delta.lease())
            yield queued

    def remove_until(self, table_id: int, frontier: Lsn) -> bool:
        """Remove the deltas up to the frontier; return whether later ones are left."""
        with self._lock:
            queued = self._queued.pop(table_id, [])
            left = [(table, lease) for table, lease in queued if lease.value.lsn_range.upper > frontier]
            if left:
                self._queued[table_id] = left
        self._close([(table, lease) for table, lease in queued if lease.value.lsn_range.upper <= frontier])
        return bool(left)

    def forget(self, table_id: int) -> None:
        """Remove all deltas of a stream table: it was dropped, or it will be given them again."""
        with self._lock:
            forgotten = self._queued.pop(table_id, [])
        self._close(forgotten)

    def _close(self, removed: list[tuple[StreamTable, Lease[Delta]]]) -> None:
        with self._lock:
            self._volume -= sum(_volume_in_memory(lease.value) for _, lease in removed)
        for _, lease in removed:
            lease.close()


def _volume_in_memory(delta: Delta) -> int:
    """Return how much a delta holds in memory; the rows of others are in PostgreSQL."""
    return volume(delta.rows) if isinstance(delta, MemoryDelta) else 0
