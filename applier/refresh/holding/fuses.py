"""A stream table that is due and an LSN range in; the part of the range that its fuse lets through, or FuseBlown, out.

A fuse never sees a fill or a computation that somebody asked for: the planner asks only for ranges that continue from
a frontier. A range whose change rows are no longer held is stopped too: nobody knows what is in it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from applier.arrange.traces import Traces
from applier.catalog.stream_tables import StreamTableRow
from applier.errors import FuseBlown
from applier.plan.stream_table import StreamTable
from applier.refresh.holding.fuse import (
    MAX_SAMPLES,
    FuseMode,
    FuseOptions,
    SourceCommit,
    describe_blown,
    describe_uncounted,
    find_held,
    find_limit,
    is_catching_up,
    is_stopped,
)
from applier.refresh.timing.schedule import Calculated, Continuous, next_due, parse_schedule
from shared_schema.lsn import ORIGIN, Lsn, LsnRange


class Samples(Protocol):
    """Where the change rows of earlier refreshes come from."""

    def read(self, pgt_id: int, most: int) -> list[int]:
        """Return the change rows of the last refreshes, oldest first."""


@dataclass
class Fuses:
    """The fuses of all stream tables."""

    traces: Traces
    samples: Samples
    default_ceiling: Callable[[], float]
    """Returns the setting at present."""
    _known: dict[int, deque[int]] = field(default_factory=dict)
    """Change rows of refreshes, of stream tables whose fuse looks at them: read once, then kept up."""

    def admit(self, row: StreamTableRow, table: StreamTable, lsn_range: LsnRange, now: datetime) -> LsnRange:
        """Return the LSN range if it may be computed, or its first part that somebody let through; else raise."""
        options = self._options(row)
        passed = min(self._passes_until(row), lsn_range.upper)
        judged = LsnRange(max(lsn_range.lower, passed), lsn_range.upper)
        is_counted = self.traces.is_counted_since(table.sources, judged.lower)
        changes = self.traces.changed_rows(table.sources, judged) if options.is_on and is_counted else 0
        if not options.is_on or (is_counted and not changes):
            return lsn_range
        samples = self._samples(row.pgt_id) if options.used_sensitivity is not None else ()
        limit = find_limit(options, self.traces.rows_at(table.sources, judged.lower), samples)
        if limit is None:
            return lsn_range
        if not is_counted:
            raise describe_uncounted(str(table), judged, limit)
        if changes <= limit.rows or (found := self.traces.largest_commit(table.sources, judged)) is None:
            return lsn_range
        largest = SourceCommit(*found)
        if not is_stopped(limit, changes, largest, catching_up=_is_overdue(row, now)):
            return lsn_range
        if lsn_range.lower < passed and all(self.traces.knows(scan, passed) for scan in table.scans):
            return LsnRange(lsn_range.lower, passed)
        raise describe_blown(str(table), judged, changes, limit, largest)

    def is_on(self, row: StreamTableRow) -> bool:
        """Whether a stream table has a fuse."""
        return self._options(row).is_on

    def _options(self, row: StreamTableRow) -> FuseOptions:
        mode = FuseMode(row.fuse) if row.fuse is not None else None
        return FuseOptions(mode, row.fuse_ceiling, row.fuse_sensitivity, self.default_ceiling())

    def stops(self, row: StreamTableRow, table: StreamTable, upper: Lsn, now: datetime) -> bool:
        """Whether a stream table may not go to `upper` as a whole, by a way that asks no fuse."""
        try:
            return self.admit(row, table, LsnRange(row.lsn, upper), now).upper < upper
        except FuseBlown:
            return True

    @staticmethod
    def _passes_until(row: StreamTableRow) -> Lsn:
        return Lsn.parse(row.fuse_passes_until) if row.fuse_passes_until else ORIGIN

    def lets_through(self, row: StreamTableRow) -> bool:
        """Whether the next refresh is one that somebody let through."""
        return row.lsn < self._passes_until(row)

    def _samples(self, pgt_id: int) -> Sequence[int]:
        if pgt_id not in self._known:
            self._known[pgt_id] = deque(self.samples.read(pgt_id, MAX_SAMPLES), MAX_SAMPLES)
        return self._known[pgt_id]

    def learn(self, row: StreamTableRow, changes: int) -> None:
        """Remember the size of a refresh that was written."""
        if row.pgt_id in self._known and changes and not self.lets_through(row):
            self._known[row.pgt_id].append(changes)


def find_readers_of_blown(rows: Iterable[StreamTableRow], just_blown: Iterable[int]) -> frozenset[int]:
    """Return the ids of the stream tables that read one whose fuse is blown, directly or through others."""
    rows = list(rows)
    blown = {*just_blown, *(row.pgt_id for row in rows if row.is_fuse_blown)}
    if not blown:
        return frozenset()
    ids = {row.pgt_relid: row.pgt_id for row in rows}
    return find_held(blown, {row.pgt_id: [ids[relid] for relid in row.reads if relid in ids] for row in rows})


def _is_overdue(row: StreamTableRow, now: datetime) -> bool:
    if row.refreshed_at is None:
        return False
    schedule = parse_schedule(row.schedule)
    timed = Continuous() if isinstance(schedule, Calculated) else schedule
    return is_catching_up(next_due(timed, row.refreshed_at) or row.refreshed_at, now)
