"""One refresh of one stream table: what is to be done, and what came of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from applier.catalog.history import RefreshExecution
from applier.catalog.stream_tables import StreamTableRow
from applier.plan.stream_table import StreamTable
from applier.refresh.strategy import RefreshReason, Strategy
from applier.sinks.delta import MemoryDelta
from applier.sinks.postgres.full_diff import FullResult
from applier.sinks.staging.staged_delta import Delta, StagedDelta
from shared_schema.errors import TrickleError
from shared_schema.lsn import LsnRange

RefreshRows = Delta | FullResult
"""A difference, or everything there should be."""

RefreshOutcome = RefreshRows | TrickleError | None
"""The rows; why there are none; or None when nothing changed."""


@dataclass(frozen=True)
class Refresh:
    """A refresh that is due. PostgreSQL chooses the window's end itself when it runs the query."""

    row: StreamTableRow
    table: StreamTable
    lsn_range: LsnRange
    strategy: Strategy
    changes: int
    """Change rows of its sources in the window."""
    source_rows: int
    as_of: datetime


@dataclass(frozen=True)
class RefreshResult:
    """A refresh whose rows are known, not yet written."""

    refresh: Refresh
    outcome: RefreshOutcome
    started: datetime
    compute_ms: float

    @property
    def lsn_range(self) -> LsnRange:
        """Where it leads."""
        return (
            self.outcome.lsn_range
            if isinstance(self.outcome, MemoryDelta | StagedDelta | FullResult)
            else self.refresh.lsn_range
        )

    def discard(self) -> None:
        """Nobody writes it."""
        if isinstance(self.outcome, MemoryDelta | StagedDelta | FullResult):
            self.outcome.release(all_holders=True)

    @property
    def executed(self) -> RefreshExecution:
        """For the history."""
        refresh, strategy = self.refresh, self.refresh.strategy
        return RefreshExecution(
            action=strategy.method.value,
            reason=strategy.reason.value,
            detail=strategy.detail,
            initiated_by=initiated_by(refresh),
            started=self.started,
            rows_in=refresh.changes,
            compute_ms=self.compute_ms,
        )


ChangedResult = tuple[RefreshResult, RefreshRows]
"""A refresh with the rows it came to."""


def initiated_by(refresh: Refresh) -> str:
    """Who wanted the refresh."""
    if refresh.strategy.reason is RefreshReason.INITIAL:
        return "INITIAL"
    return "MANUAL" if refresh.row.refresh_requested else "SCHEDULER"


def group_by_range(unchanged: Iterable[RefreshResult]) -> dict[LsnRange, list[RefreshResult]]:
    """Those that share a window, so that one statement moves them."""
    groups: dict[LsnRange, list[RefreshResult]] = {}
    for result in unchanged:
        groups.setdefault(result.lsn_range, []).append(result)
    return groups
