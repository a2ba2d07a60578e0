"""A stream table that is due and an LSN range in; the part of the range that its fuse lets through, or FuseBlown, out.

A fuse never sees a fill or a computation that somebody asked for: the planner asks only for ranges that continue from
a frontier. A range whose change rows are no longer held is stopped too: nobody knows what is in it.

What another stream table reads is judged before that one shows it, see `read_fuses`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
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
from shared_schema.lsn import ORIGIN, Lsn, LsnRange
from shared_schema.table_schema import TableId


class Store(Protocol):
    """Where the change rows of earlier refreshes come from, and where it is kept who catches up."""

    def read(self, pgt_id: int, most: int) -> list[int]:
        """Return the change rows of the last refreshes, oldest first."""

    def note_catching_up(self, until: Mapping[int, Lsn]) -> None:
        """Store up to where stream tables are behind, by id."""


@dataclass
class Fuses:
    """The fuses of all stream tables."""

    traces: Traces
    store: Store
    default_ceiling: Callable[[], float]
    """Returns the setting at present."""
    replaced_by: Callable[[StreamTableRow, datetime], datetime]
    """Returns when rows of a stream table that are complete until a moment are replaced, if no refresh is late."""
    _known: dict[int, deque[int]] = field(default_factory=dict)
    """Change rows of refreshes, of stream tables whose fuse looks at them: read once, then kept up."""

    def admit(self, row: StreamTableRow, table: StreamTable, lsn_range: LsnRange, now: datetime) -> LsnRange:
        """Return the LSN range if it may be computed, or its first part that somebody let through; else raise."""
        passed = min(self._passes_until(row), lsn_range.upper)
        judged = LsnRange(max(lsn_range.lower, passed), lsn_range.upper)
        error = self._judge(row, table.sources, judged, now)
        if error is None:
            return lsn_range
        is_counted = error.changes is not None
        if is_counted and lsn_range.lower < passed and all(self.traces.knows(scan, passed) for scan in table.scans):
            return LsnRange(lsn_range.lower, passed)
        raise error

    def find_stopping(
        self, row: StreamTableRow, sources: frozenset[TableId], lsn_range: LsnRange, now: datetime
    ) -> FuseBlown | None:
        """Return what the fuse of a stream table says of a range that one that reads it is about to show."""
        lower = max(lsn_range.lower, self._passes_until(row))
        return self._judge(row, sources, LsnRange(lower, lsn_range.upper), now) if lower < lsn_range.upper else None

    def _judge(
        self, row: StreamTableRow, sources: frozenset[TableId], judged: LsnRange, now: datetime
    ) -> FuseBlown | None:
        """Return the error of a range that is stopped."""
        options, name = self._options(row), str(row.table)
        is_counted = self.traces.is_counted_since(sources, judged.lower)
        changes = self.traces.changed_rows(sources, judged) if options.is_on and is_counted else 0
        if not options.is_on or (is_counted and not changes):
            return None
        samples = self._samples(row.pgt_id) if options.used_sensitivity is not None else ()
        limit = find_limit(options, self.traces.rows_at(sources, judged.lower), samples)
        if limit is None:
            return None
        if not is_counted:
            return describe_uncounted(name, judged, limit)
        if changes <= limit.rows or (found := self.traces.largest_commit(sources, judged)) is None:
            return None
        largest = SourceCommit(*found)
        # One that is out of service will have to catch up.
        catching_up = not row.in_service or self.catches_up(row, now)
        if not is_stopped(limit, changes, largest, catching_up=catching_up):
            return None
        return describe_blown(name, judged, changes, limit, largest)

    def catches_up(self, row: StreamTableRow, now: datetime) -> bool:
        """Whether what a stream table lacks is a backlog, which says nothing of what is normal."""
        if row.fresh_until is None:
            return False
        until = Lsn.parse(row.catching_up_until) if row.catching_up_until else ORIGIN
        return is_catching_up(row.lsn, until, now - self.replaced_by(row, row.fresh_until))

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
            self._known[pgt_id] = deque(self.store.read(pgt_id, MAX_SAMPLES), MAX_SAMPLES)
        return self._known[pgt_id]

    def learn(self, row: StreamTableRow, changes: int) -> None:
        """Remember the size of a refresh that was written."""
        if row.pgt_id in self._known and changes and not self.lets_through(row):
            self._known[row.pgt_id].append(changes)


def find_readers_of_blown(rows: Iterable[StreamTableRow], just_blown: Iterable[int]) -> frozenset[int]:
    """Return the ids of the stream tables that read one whose fuse is blown, directly or through others."""
    rows = list(rows)
    blown = {*just_blown, *(row.pgt_id for row in rows if row.is_fuse_blown)}
    return find_held(blown, reads_by_id(rows)) if blown else frozenset()


def reads_by_id(rows: Iterable[StreamTableRow]) -> dict[int, list[int]]:
    """Return which stream tables each of them reads directly, by id."""
    rows = list(rows)
    ids = {row.pgt_relid: row.pgt_id for row in rows}
    return {row.pgt_id: [ids[relid] for relid in row.reads if relid in ids] for row in rows}


def may_be_stopped(row: StreamTableRow) -> bool:
    """Whether a fuse has a say: not in a fill, nor in a computation that was asked for. A stream table that is built to
    replace another one waits for that one."""
    return bool(row.lsn) and not row.reinitializes and row.replaces is None
