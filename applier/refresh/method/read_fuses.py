"""The refreshes of a tick in; the fuses of what they read that do not let them go so far, out.

A stream table over another one is computed from the same sources, so it could show rows that the fuse of the other one
is about to stop: that one is refreshed less often, or is busy beside the ticks, or out of service. Its fuse is asked
first, over what it does not have yet. The counts come from the traces, without Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from applier.catalog.stream_tables import StreamTableRow
from applier.errors import FuseBlown
from applier.plan.stream_table import StreamTable
from applier.refresh.holding.fuse import find_read
from applier.refresh.holding.fuses import Fuses, may_be_stopped, reads_by_id
from applier.refresh.method.refresh import Refresh
from shared_schema.lsn import Lsn, LsnRange
from shared_schema.table_schema import TableId


@dataclass(frozen=True)
class FusedTable:
    """A stream table with a fuse that others read, in this tick."""

    row: StreamTableRow
    sources: frozenset[TableId]
    at: Lsn
    """Where it stands, or will stand once the refresh is written that is under way or was planned in this tick."""
    has_refresh: bool
    """Whether there is such a refresh: its rows are not to be lost, so its fuse blows after it."""


@dataclass
class StoppedReaders:
    """What the fuses said in this tick."""

    blown: list[tuple[StreamTableRow, FuseBlown]] = field(default_factory=list)
    """Stream tables whose fuse blows now, because one that reads them would have shown what it stops."""
    waiting: set[int] = field(default_factory=set)
    """Readers that wait for the refresh of a stream table whose fuse blows after it."""


@dataclass
class ReadFuses:
    """Asks the fuses of what refreshes read."""

    fuses: Fuses
    base_sources: Callable[[int], frozenset[TableId]]
    """Returns what a stream table without a plan reads: it is out of service."""
    _sources: dict[int, tuple[str, frozenset[TableId]]] = field(default_factory=dict)
    """The same, with the query that it was read for."""

    def find_stopped(
        self,
        refreshes: Sequence[Refresh],
        rows: Sequence[StreamTableRow],
        tables: Mapping[int, StreamTable],
        coming: Mapping[int, Lsn],
        now: datetime,
    ) -> StoppedReaders:
        """Return which refreshes would show what a fuse stops.

        `coming` has the frontiers to which stream tables will be brought by refreshes that are under way or were
        planned in this tick.
        """
        stopped = StoppedReaders()
        readers = [refresh for refresh in refreshes if refresh.row.reads]
        if not readers:
            return stopped
        fused = {row.pgt_id: row for row in rows if self._has_say(row)}
        reads = reads_by_id(rows) if fused else {}
        known: dict[tuple[int, LsnRange], FuseBlown | None] = {}
        for refresh in readers:
            for pgt_id in sorted(fused.keys() & find_read(refresh.table.id, reads)):
                read = self._fused_table(fused[pgt_id], tables, coming)
                error = self._ask(read, refresh, now, known)
                if error is None:
                    continue
                if read.has_refresh:
                    stopped.waiting.add(refresh.table.id)
                elif pgt_id not in {row.pgt_id for row, _ in stopped.blown}:
                    stopped.blown.append((read.row, error))
        return stopped

    def _has_say(self, row: StreamTableRow) -> bool:
        return may_be_stopped(row) and not row.is_fuse_blown and self.fuses.is_on(row)

    def _fused_table(
        self, row: StreamTableRow, tables: Mapping[int, StreamTable], coming: Mapping[int, Lsn]
    ) -> FusedTable:
        planned = tables.get(row.pgt_id)
        sources = self._stored_sources(row) if planned is None else planned.sources
        return FusedTable(row, sources, max(row.lsn, coming.get(row.pgt_id, row.lsn)), row.pgt_id in coming)

    def _stored_sources(self, row: StreamTableRow) -> frozenset[TableId]:
        known = self._sources.get(row.pgt_id)
        if known is None or known[0] != row.defining_query:
            known = self._sources[row.pgt_id] = row.defining_query, self.base_sources(row.pgt_id)
        return known[1]

    def _ask(
        self,
        read: FusedTable,
        refresh: Refresh,
        now: datetime,
        known: dict[tuple[int, LsnRange], FuseBlown | None],
    ) -> FuseBlown | None:
        """Return what a fuse says of what its stream table lacks at the end of a refresh of a reader."""
        # What it will have to make up for is nobody's concern while it is out of service: only what the reader adds.
        lower = read.at if read.row.in_service else max(read.at, refresh.row.lsn)
        if lower >= refresh.lsn_range.upper:
            return None
        lsn_range = LsnRange(lower, refresh.lsn_range.upper)
        key = read.row.pgt_id, lsn_range
        if key not in known:
            known[key] = self.fuses.find_stopping(read.row, read.sources, lsn_range, now)
        return known[key]

    def forget(self, pgt_id: int) -> None:
        """Forget a stream table that was dropped."""
        self._sources.pop(pgt_id, None)
