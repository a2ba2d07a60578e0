"""The catalog in; the stream tables in service with their plans, and which of them are due, out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from applier import metrics
from applier.catalog.stream_tables import StreamTableRow
from applier.plan.stream_table import PostgresQuery, StreamTable
from applier.refresh.holding.holds import Holds
from applier.refresh.holding.readiness import Readiness
from applier.refresh.method.refresh import Refresh
from applier.refresh.planning.plans import StreamTablePlans
from applier.refresh.scheduler import Scheduler
from shared_schema.errors import TrickleError
from shared_schema.lsn import Lsn

PlannedRow = tuple[StreamTableRow, StreamTable]
"""A stream table as stored, and with its plan."""


RefusedRow = tuple[StreamTableRow, TrickleError]
"""A stream table as stored, and why it cannot be maintained."""


@dataclass
class StreamTables:
    """The stream tables in service at the last look."""

    plans: StreamTablePlans
    readiness: Readiness
    scheduler: Scheduler
    holds: Holds
    _rows: list[StreamTableRow] = field(default_factory=list)

    @property
    def planned(self) -> Mapping[int, StreamTable]:
        """The stream tables that have a plan, by id."""
        return self.plans.tables

    @property
    def has_deferred(self) -> bool:
        """Whether refreshes that are due wait for the next tick."""
        return self.scheduler.promises.has_deferred

    def forget_dropped(self, rows: Sequence[StreamTableRow]) -> set[int]:
        """Forget the stream tables that are no longer stored; return their ids."""
        dropped = self.plans.tables.keys() - {row.pgt_id for row in rows}
        kept = {str(row.table) for row in rows}
        for pgt_id in dropped:
            if (name := str(self.plans.tables[pgt_id])) not in kept:
                metrics.forget(name)
            self.forget(pgt_id)
        return dropped

    def load(self, rows: Sequence[StreamTableRow]) -> tuple[list[PlannedRow], list[RefusedRow]]:
        """Plan what is new or has changed; return the stream tables in service, and those that cannot be."""
        self._rows = [row for row in rows if row.in_service]
        planned, refused = self.plans.load(self._rows)
        metrics.STREAM_TABLES.set(len(planned))
        return planned, [*refused, *self.scheduler.load(self._rows)]

    def limit(self, row: StreamTableRow, table: StreamTable, frontier: Lsn) -> Lsn:
        """Return how far a stream table may go: the frontier, or less while a gate or a watermark group holds it."""
        return self.holds.limit(row, table, frontier)

    def is_due(
        self, row: StreamTableRow, table: StreamTable, frontier: Lsn, now: datetime, *, ignore_schedules: bool
    ) -> bool:
        """Whether to refresh a stream table up to the frontier now; raises when its sources will never be known."""
        by_postgres = isinstance(table.plan, PostgresQuery)
        # What is computed as a whole needs nothing at the old frontier, as for an empty stream table.
        filled = replace(row, frontier=None) if row.reinitializes else row
        return (
            row.lsn < frontier
            and (ignore_schedules or self.scheduler.is_due(row, now, by_postgres=by_postgres))
            and self.readiness.is_ready(filled, table, frontier)
        )

    def choose(self, refreshes: Sequence[Refresh], now: datetime, *, ignore_schedules: bool) -> list[Refresh]:
        """Return the refreshes of this tick, by deadline; the others wait at their frontier for the next one."""
        self.scheduler.promises.watch(self._rows, refreshes, now)
        return self.scheduler.choose(refreshes, now, all_of_them=ignore_schedules)

    def is_current(self, table: StreamTable) -> bool:
        """Whether a stream table was neither dropped nor altered since it was planned."""
        return self.plans.tables.get(table.id) is table

    def seconds_to_next(self, now: datetime, is_busy: Callable[[int], bool]) -> float:
        """Return the seconds until a schedule or a retry is due; infinite when only changes cause refreshes.

        Without those that are `is_busy` or held: their end is waited for, whatever their schedule says.
        """
        waiting = [row for row in self._rows if not (is_busy(row.pgt_id) or self.holds.is_held(row.pgt_id))]
        return self.scheduler.seconds_to_next(waiting, now)

    def forget(self, pgt_id: int) -> None:
        """Forget the plan, failures and pauses of a stream table that was dropped or has a new query."""
        self.plans.forget(pgt_id)
        self.scheduler.forget(pgt_id)
