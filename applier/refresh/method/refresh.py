"""The value types of one refresh of one stream table: what to do, and with which result."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from types import TracebackType
from typing import Self

from applier.catalog.history import RefreshExecution
from applier.catalog.stream_tables import StreamTableRow
from applier.plan.stream_table import StreamTable
from applier.refresh.method.strategy import RefreshReason, Strategy
from applier.sinks.delta import ComputedDelta
from applier.sinks.lease import Lease
from applier.sinks.postgres.full_diff import FullResult
from shared_schema.errors import TrickleError
from shared_schema.lsn import LsnRange

RefreshRows = ComputedDelta | FullResult
"""A delta, or everything the stream table should hold."""

RefreshOutcome = Lease[RefreshRows] | TrickleError | None
"""The rows, with the lease of the result, or the error, or None when nothing changed."""


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
    volume: int = 0
    """The change rows, or for a FULL refresh the rows of its sources, where a large row counts as several."""
    predicted_ms: float | None = None
    """How long it takes by the history of refreshes of this size; None where that says nothing."""
    runs_beside: bool = False
    """Whether it takes longer than a tick by prediction, so that others do not wait for it."""
    is_step: bool = False
    """Whether it is only the first part of what the stream table lacks: the next one follows at once."""


@dataclass
class WriteTime:
    """How long the rows of a refresh took to write into PostgreSQL; None before that."""

    ms: float | None = None


@dataclass(frozen=True)
class RefreshResult:
    """A computed refresh whose rows are not written yet. It is a context: the end closes the lease on the rows."""

    refresh: Refresh
    outcome: RefreshOutcome
    started: datetime
    compute_ms: float
    write_time: WriteTime = field(default_factory=WriteTime, compare=False)
    """Set by whoever writes the rows."""

    @property
    def rows(self) -> RefreshRows:
        """The rows of a refresh that has some."""
        if not isinstance(self.outcome, Lease):
            raise AssertionError(f"the refresh of {self.refresh.table} has no rows")
        return self.outcome.value

    @property
    def lsn_range(self) -> LsnRange:
        """The range that the rows belong to; the refresh's own where there are no rows."""
        return self.rows.lsn_range if isinstance(self.outcome, Lease) else self.refresh.lsn_range

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the result's lease on the rows: they were written, or nobody will write them."""
        if isinstance(self.outcome, Lease):
            self.outcome.close()

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
            fresh_until=refresh.row.fresh_until if refresh.row.lsn else None,
            request=refresh.row.reinit_requested_at,
            source_rows=refresh.source_rows,
            sla_ms=refresh.row.sla_ms,
        )


def initiated_by(refresh: Refresh) -> str:
    """Return who started the refresh: INITIAL, MANUAL or SCHEDULER. Self-monitoring leaves its own refreshes out."""
    if refresh.row.monitors_itself:
        return "SELF_MONITOR"
    if refresh.strategy.reason is RefreshReason.INITIAL:
        return "INITIAL"
    if refresh.row.reinitializes:
        return refresh.row.reinit_initiated_by
    return "MANUAL" if refresh.row.refresh_requested else "SCHEDULER"


def group_by_range(unchanged: Iterable[RefreshResult]) -> dict[LsnRange, list[RefreshResult]]:
    """Group refreshes by LSN range, so that one statement moves all frontiers of a group."""
    groups: dict[LsnRange, list[RefreshResult]] = {}
    for result in unchanged:
        groups.setdefault(result.lsn_range, []).append(result)
    return groups
