"""A stream table that is due and a frontier in; its refresh, with method and LSN range, out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import assert_never

from applier.arrange.inputs import SMALL_RANGE_ROWS
from applier.arrange.traces import Traces
from applier.catalog.fuses import LET_THROUGH
from applier.catalog.stream_tables import StreamTableRow
from applier.errors import FuseBlown
from applier.plan.nodes import StreamPlan
from applier.plan.stream_table import PostgresQuery, StreamTable
from applier.refresh.holding.fuses import Fuses, find_readers_of_blown
from applier.refresh.method.cost_cache import CostCache
from applier.refresh.method.cost_model import CostModel, Prediction, PredictionLimits
from applier.refresh.method.refresh import Refresh, RefreshResult
from applier.refresh.method.strategy import (
    FULL_POLICY,
    FullForbidden,
    FullPolicy,
    RefreshInputs,
    RefreshMethod,
    RefreshMode,
    RefreshReason,
    Reinitialize,
    Strategy,
    choose_for_large_commit,
    choose_strategy,
    may_switch,
)
from shared_schema.lsn import Lsn, LsnRange

LONG_CHANGES = 20_000
LONG_SOURCE_ROWS = 200_000
"""With more than either of them a refresh takes seconds; it must not delay the others."""


WERE_SKIPPED = "changes of the stream table were skipped, which a full refresh would bring back"


@dataclass(frozen=True, slots=True)
class RefreshLimits:
    """The settings of the planner."""

    max_change_ratio: float
    """AUTO: the fraction of the sources' rows that may change before the refresh is FULL."""
    step_rows: int
    """Most change rows of one DIFFERENTIAL refresh: a stream table that lags more catches up in steps."""
    prediction: PredictionLimits = field(default_factory=PredictionLimits)


@dataclass
class RefreshPlanner:
    """Plans refreshes from the figures of the traces and the costs of earlier refreshes."""

    traces: Traces
    limits: Callable[[], RefreshLimits]
    """Returns the settings at present."""
    costs: CostCache = field(default_factory=lambda: CostCache(lambda _: CostModel(), lambda: 256))
    fuses: Fuses | None = None
    wake: Callable[[], None] = lambda: None
    """Writes to the log, so that the frontier advances."""
    _blown: set[int] = field(default_factory=set)
    """Stream tables whose fuse blew since the last `hold_readers`."""

    def plan(self, row: StreamTableRow, table: StreamTable, frontier: Lsn, now: datetime) -> Refresh:
        """Plan a refresh up to the frontier, or up to an earlier LSN when it would have too many change rows."""
        lsn_range, limits = LsnRange(row.lsn, frontier), self.limits()
        has_history = not row.lsn or self.traces.holds(table.sources, row.lsn)
        is_delta = bool(row.lsn) and has_history and not row.reinitializes and not row.partial
        has_fuse = self.fuses is not None and _may_be_stopped(row)
        if has_fuse:
            lsn_range = self._admit(row, table, lsn_range, now)
        changes = self.traces.changes(table.sources, lsn_range) if row.lsn and has_history else 0
        # A full refresh would bring back what somebody decided to skip.
        policy = FullPolicy.ERROR if row.has_skipped_changes else FullPolicy(row.full_policy)
        if row.has_skipped_changes and is_delta and table.key is None and isinstance(table.plan, StreamPlan):
            raise FullForbidden(
                f"{WERE_SKIPPED}, and its rows have no key any more by which it could be maintained",
                hint="SELECT pgtrickle.reinitialize_stream_table(name)",
            )
        threshold, source_rows = row.auto_threshold, self.traces.rows(table.sources)
        prediction = self._predict(row, table, changes, now)
        inputs = RefreshInputs(
            mode=RefreshMode(row.refresh_mode),
            policy=policy,
            has_plan=not isinstance(table.plan, PostgresQuery),
            is_deterministic=not isinstance(table.plan, PostgresQuery) or table.plan.is_deterministic,
            is_filled=bool(row.lsn),
            partial=row.partial,
            has_history=has_history,
            changes=changes,
            source_rows=source_rows,
            threshold=limits.max_change_ratio if threshold is None else threshold,
            prediction=prediction,
            prediction_ratio=limits.prediction.ratio,
            reinitialize=_requested(row),
            forbidden_by=WERE_SKIPPED if row.has_skipped_changes else FULL_POLICY,
        )
        strategy = choose_strategy(inputs)
        only_small = isinstance(table.plan, StreamPlan) and table.plan.only_small_deltas
        # A step ends with a commit, so it has some more rows.
        step_rows = min(limits.step_rows, SMALL_RANGE_ROWS // 2) if only_small else limits.step_rows
        volume, is_step = self._volume(table, lsn_range, strategy), False
        if strategy.method is RefreshMethod.DIFFERENTIAL and volume > step_rows:
            step = self._first_step(table, lsn_range, step_rows)
            changes_of_step, volume = self.traces.changes(table.sources, step), self._volume(table, step, strategy)
            if only_small and volume > SMALL_RANGE_ROWS:
                strategy = choose_for_large_commit(inputs, changes_of_step)
                volume = self._volume(table, lsn_range, strategy)
            else:
                is_step = step.upper < lsn_range.upper
                lsn_range, changes, prediction = step, changes_of_step, None
        if has_fuse and changes and self.fuses is not None and self.fuses.lets_through(row):
            strategy = replace(strategy, detail="; ".join(filter(None, (strategy.detail, LET_THROUGH))))
        predicted_ms = prediction.of(strategy.method is RefreshMethod.FULL) if prediction is not None else None
        return Refresh(
            row, table, lsn_range, strategy, changes, source_rows, now, volume, predicted_ms, is_step=is_step
        )

    def _admit(self, row: StreamTableRow, table: StreamTable, lsn_range: LsnRange, now: datetime) -> LsnRange:
        """Return what the fuse of the stream table lets through; note whether it blows."""
        if self.fuses is None:
            return lsn_range
        try:
            return self.fuses.admit(row, table, lsn_range, now)
        except FuseBlown:
            self._blown.add(table.id)
            raise

    def find_judgeable(self, finished: Sequence[Refresh], frontier: Lsn) -> list[Refresh]:
        """Return the finished refreshes without those whose fuse cannot count yet: PostgreSQL ran the query at a
        position up to which not all changes have arrived."""
        found = [refresh for refresh in finished if refresh.lsn_range.upper <= frontier or not self._is_judged(refresh)]
        if len(found) < len(finished):
            self.wake()
        return found

    def passes(self, refresh: Refresh) -> bool:
        """Whether the fuse lets through what PostgreSQL has read beyond the frontier at which it was planned."""
        if self.fuses is None or not self._is_judged(refresh):
            return True
        return not self.fuses.stops(refresh.row, refresh.table, refresh.lsn_range.upper, refresh.as_of)

    def _is_judged(self, refresh: Refresh) -> bool:
        by_postgres = refresh.strategy.method is RefreshMethod.IN_POSTGRES
        return by_postgres and _may_be_stopped(refresh.row) and self.fuses is not None and self.fuses.is_on(refresh.row)

    def hold_readers(self, refreshes: Sequence[Refresh], rows: Sequence[StreamTableRow]) -> list[Refresh]:
        """Return the refreshes without those of readers of a stream table whose fuse is blown: they wait, unless
        somebody has asked to compute them as a whole."""
        held = find_readers_of_blown(rows, self._blown)
        self._blown.clear()
        return [refresh for refresh in refreshes if refresh.table.id not in held or _is_by_user(refresh.row)]

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

    def _predict(self, row: StreamTableRow, table: StreamTable, changes: int, now: datetime) -> Prediction | None:
        """Predict what a refresh takes, where that can decide; only then its costs are looked for."""
        has_plan = not isinstance(table.plan, PostgresQuery)
        if not has_plan or not may_switch(RefreshMode(row.refresh_mode), FullPolicy(row.full_policy), changes):
            return None
        source_rows = self.traces.rows(table.sources)
        return self.costs.find(table).predict(changes, source_rows, now, self.limits().prediction)

    def forget(self, pgt_id: int) -> None:
        """Forget what a stream table cost that was dropped."""
        self.costs.forget(pgt_id)

    def learn(self, result: RefreshResult) -> None:
        """Remember the time that a refresh took."""
        refresh = result.refresh
        if self.fuses is not None and not refresh.row.reinitializes and refresh.row.lsn:
            self.fuses.learn(refresh.row, refresh.changes)
        self.costs.learn(result)


def _may_be_stopped(row: StreamTableRow) -> bool:
    """Whether a fuse has a say: not in a fill, nor in a computation that was asked for. A stream table that is built to
    replace another one waits for that one."""
    return bool(row.lsn) and not row.reinitializes and row.replaces is None


def _is_by_user(row: StreamTableRow) -> bool:
    """Whether a user requested to compute everything once more."""
    return row.reinitializes and row.reinit_initiated_by == "MANUAL"


def _requested(row: StreamTableRow) -> Reinitialize | None:
    """Return the pending request to compute everything once more."""
    if row.reinit_reason is None:
        return None
    detail, by_user = row.reinit_detail or "", _is_by_user(row)
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
