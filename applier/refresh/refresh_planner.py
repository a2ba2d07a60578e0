"""A stream table that is due and a frontier in; its refresh, with method and LSN range, out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import assert_never

from applier.arrange.inputs import SMALL_RANGE_ROWS
from applier.arrange.traces import Traces
from applier.catalog.stream_tables import StreamTableRow
from applier.plan.nodes import StreamPlan
from applier.plan.stream_table import PostgresQuery, StreamTable
from applier.refresh.refresh import Refresh, RefreshResult
from applier.refresh.strategy import (
    Costs,
    FullPolicy,
    RefreshInputs,
    RefreshMethod,
    RefreshMode,
    RefreshReason,
    Reinitialize,
    Strategy,
    choose_for_large_commit,
    choose_strategy,
)
from shared_schema.lsn import Lsn, LsnRange

LONG_CHANGES = 20_000
LONG_SOURCE_ROWS = 200_000
"""With more than either of them a refresh takes seconds; it must not delay the others."""


@dataclass(frozen=True, slots=True)
class RefreshLimits:
    """The settings of the planner."""

    max_change_ratio: float
    """AUTO: the fraction of the sources' rows that may change before the refresh is FULL."""
    step_rows: int
    """Most change rows of one DIFFERENTIAL refresh: a stream table that lags more catches up in steps."""


@dataclass
class RefreshPlanner:
    """Plans refreshes from the figures of the traces and the costs of earlier refreshes."""

    traces: Traces
    limits: Callable[[], RefreshLimits]
    """Returns the settings at present."""
    _costs: dict[int, Costs] = field(default_factory=dict)

    def plan(self, row: StreamTableRow, table: StreamTable, frontier: Lsn, now: datetime) -> Refresh:
        """Plan a refresh up to the frontier, or up to an earlier LSN when it would have too many change rows."""
        lsn_range, limits = LsnRange(row.lsn, frontier), self.limits()
        has_history = not row.lsn or self.traces.holds(table.sources, row.lsn)
        changes = self.traces.changes(table.sources, lsn_range) if row.lsn and has_history else 0
        threshold, source_rows = row.auto_threshold, self.traces.rows(table.sources)
        strategy = choose_strategy(
            RefreshInputs(
                mode=RefreshMode(row.refresh_mode),
                policy=FullPolicy(row.full_policy),
                has_plan=not isinstance(table.plan, PostgresQuery),
                is_deterministic=not isinstance(table.plan, PostgresQuery) or table.plan.is_deterministic,
                is_filled=bool(row.lsn),
                partial=row.partial,
                has_history=has_history,
                changes=changes,
                source_rows=source_rows,
                threshold=limits.max_change_ratio if threshold is None else threshold,
                costs=self._costs.get(table.id, Costs()),
                reinitialize=_requested(row),
            )
        )
        only_small = isinstance(table.plan, StreamPlan) and table.plan.only_small_deltas
        # A step ends with a commit, so it has some more rows.
        step_rows = min(limits.step_rows, SMALL_RANGE_ROWS // 2) if only_small else limits.step_rows
        volume = self._volume(table, lsn_range, strategy)
        if strategy.method is RefreshMethod.DIFFERENTIAL and volume > step_rows:
            step = self._first_step(table, lsn_range, step_rows)
            changes_of_step, volume = self.traces.changes(table.sources, step), self._volume(table, step, strategy)
            if only_small and volume > SMALL_RANGE_ROWS:
                strategy = choose_for_large_commit(FullPolicy(row.full_policy), changes_of_step)
                volume = self._volume(table, lsn_range, strategy)
            else:
                lsn_range, changes = step, changes_of_step
        return Refresh(row, table, lsn_range, strategy, changes, source_rows, now, volume)

    def _volume(self, table: StreamTable, lsn_range: LsnRange, strategy: Strategy) -> int:
        """Return how many rows a refresh reads, where a large row counts as several."""
        match strategy.method:
            case RefreshMethod.DIFFERENTIAL:
                return self.traces.volume(table.sources, lsn_range)
            case RefreshMethod.FULL:
                return self.traces.held_volume(table.sources)
            case RefreshMethod.IN_POSTGRES | RefreshMethod.NO_DATA:
                return 0
            case _:
                assert_never(strategy.method)

    def _first_step(self, table: StreamTable, lsn_range: LsnRange, rows: int) -> LsnRange:
        """Return the part of the range with the first `rows` change rows, where it is possible to stop there."""
        step = self.traces.first_changes(table.sources, lsn_range, rows)
        # A column that is known at both ends of a range may be unknown at an LSN between them.
        return step if all(self.traces.knows(scan, step.upper) for scan in table.scans) else lsn_range

    def learn(self, result: RefreshResult) -> None:
        """Remember the time that a refresh took."""
        refresh = result.refresh
        costs = self._costs.get(refresh.table.id, Costs())
        if refresh.strategy.method is RefreshMethod.FULL:
            self._costs[refresh.table.id] = costs.after_full(result.compute_ms, refresh.source_rows)
        elif refresh.strategy.method is RefreshMethod.DIFFERENTIAL:
            self._costs[refresh.table.id] = costs.after_changes(result.compute_ms, refresh.changes)


def _requested(row: StreamTableRow) -> Reinitialize | None:
    """Return the pending request to compute everything once more."""
    if row.reinit_reason is None:
        return None
    detail, by_user = row.reinit_detail or "", row.reinit_initiated_by == "MANUAL"
    if row.reinit_reason not in {reason.value for reason in RefreshReason}:
        return Reinitialize(RefreshReason.REINITIALIZE, f"{row.reinit_reason}: {detail}", by_user)
    return Reinitialize(RefreshReason(row.reinit_reason), detail, by_user)


def is_long_refresh(refresh: Refresh) -> bool:
    """Whether a refresh runs in the background instead of inside a tick."""
    match refresh.strategy.method:
        case RefreshMethod.NO_DATA:
            return False
        case _ if refresh.runs_beside:
            return True
        case RefreshMethod.IN_POSTGRES:
            return True
        case RefreshMethod.FULL:
            return refresh.volume > LONG_SOURCE_ROWS
        case RefreshMethod.DIFFERENTIAL:
            return refresh.volume > LONG_CHANGES
