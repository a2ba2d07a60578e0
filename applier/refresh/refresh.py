"""The value types of one refresh of one stream table: what to do, and with which result."""

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
"""A delta, or everything the stream table should hold."""

RefreshOutcome = RefreshRows | TrickleError | None
"""The rows, or the error, or None when nothing changed."""


@dataclass(frozen=True)
class Refresh:
    """A refresh that is due. PostgreSQL chooses the upper end of the range itself when it runs the query."""

    row: StreamTableRow
    table: StreamTable
    lsn_range: LsnRange
    strategy: Strategy
    changes: int
    """Change rows of its sources in the LSN range."""
    source_rows: int
    as_of: datetime


@dataclass(frozen=True)
class RefreshResult:
    """A computed refresh whose rows are not written yet."""

    refresh: Refresh
    outcome: RefreshOutcome
    started: datetime
    compute_ms: float

    @property
    def lsn_range(self) -> LsnRange:
        """The range that the rows belong to; the refresh's own where there are no rows."""
        return (
            self.outcome.lsn_range
            if isinstance(self.outcome, MemoryDelta | StagedDelta | FullResult)
            else self.refresh.lsn_range
        )

    def discard(self) -> None:
        """Release the rows: they will not be written."""
        if isinstance(self.outcome, MemoryDelta | StagedDelta | FullResult):
            self.outcome.release(all_holders=True)

    @property
    def execution(self) -> RefreshExecution:
        """The facts that the history records."""
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
"""A refresh and its rows."""


def initiated_by(refresh: Refresh) -> str:
    """Return who started the refresh: INITIAL, MANUAL or SCHEDULER."""
    if refresh.strategy.reason is RefreshReason.INITIAL:
        return "INITIAL"
    return "MANUAL" if refresh.row.refresh_requested else "SCHEDULER"


def group_by_range(unchanged: Iterable[RefreshResult]) -> dict[LsnRange, list[RefreshResult]]:
    """Group refreshes by LSN range, so that one statement moves all frontiers of a group."""
    groups: dict[LsnRange, list[RefreshResult]] = {}
    for result in unchanged:
        groups.setdefault(result.lsn_range, []).append(result)
    return groups
