"""The rows that have arrived in; every stream table that is due, advanced to the same frontier, out.

One tick, as a list of steps without logic of its own: the ports do the work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Protocol, TypeVar, assert_never

from applier.catalog.stream_tables import StreamTableRow
from applier.plan.stream_table import StreamTable
from applier.refresh.refresh import ChangedResult, Refresh, RefreshResult, RefreshRows
from applier.sinks.delta import MemoryDelta
from applier.sinks.postgres.full_diff import FullResult
from applier.sinks.staging.staged_delta import StagedDelta
from shared_schema.errors import TrickleError
from shared_schema.lsn import Lsn

T = TypeVar("T")


class Ports(Protocol):
    """The steps of a tick, in their order."""

    def advance_intake(self) -> Lsn:
        """Move complete rows from the inbox to the traces; return the frontier up to which they are complete."""

    def take_finished(self) -> list[RefreshResult]:
        """Return the long refreshes of earlier ticks that have finished."""

    def load_stream_tables(self) -> list[tuple[StreamTableRow, StreamTable]]:
        """Return the stream tables in service that have a plan and no running refresh."""

    def catch_up(self, table: StreamTable, at: Lsn) -> None:
        """Once after a start: bring the other sinks to PostgreSQL's frontier."""

    def plan(self, row: StreamTableRow, table: StreamTable, frontier: Lsn, now: datetime) -> Refresh | None:
        """Plan the refresh of a stream table; None when it is not due, or its sources are not known yet.

        Raises when its sources will never be known.
        """

    def start_long(self, refreshes: Sequence[Refresh]) -> list[Refresh]:
        """Start the long refreshes in the background; return the others."""

    def compute(self, refreshes: Sequence[Refresh]) -> Iterator[RefreshResult]:
        """Compute the refreshes, several at a time; yield the results in order."""

    def group_commit(self, changed: list[ChangedResult], unchanged: list[RefreshResult]) -> list[ChangedResult]:
        """Write the rows and frontiers of as many as possible in one transaction, and move all unchanged frontiers.

        Returns the refreshes whose rows have to be written alone.
        """

    def write_back(self, result: RefreshResult, rows: RefreshRows) -> None:
        """Write rows and frontier into PostgreSQL, then queue the delta for the other sinks."""

    def publish(self) -> None:
        """Publish all queued deltas to the topics, in one Kafka transaction."""

    def fail(self, table: StreamTableRow, error: TrickleError, result: RefreshResult | None = None) -> None:
        """Schedule a retry for one stream table, or suspend it; the others continue."""


def run_tick(ports: Ports) -> Lsn:
    """Advance every due stream table to the frontier of the arrived rows; return it. Safe to repeat after a failure."""
    frontier = ports.advance_intake()
    now = datetime.now(UTC)
    _write_results(ports, ports.take_finished())
    refreshes = [
        refresh
        for row, table in ports.load_stream_tables()
        if (refresh := _plan_refresh(ports, row, table, frontier, now))
    ]
    _write_results(ports, ports.compute(ports.start_long(refreshes)))
    ports.publish()
    return frontier


def _plan_refresh(
    ports: Ports, row: StreamTableRow, table: StreamTable, frontier: Lsn, now: datetime
) -> Refresh | None:
    def plan() -> Refresh | None:
        if row.lsn and row.lsn <= frontier:
            ports.catch_up(table, row.lsn)
        return ports.plan(row, table, frontier, now) if row.lsn < frontier else None

    return _try_step(ports, row, None, plan)


def _write_results(ports: Ports, results: Iterable[RefreshResult]) -> None:
    """Write the changed rows and move the other frontiers in one commit, so that a reader sees all or none of it."""
    changed: list[ChangedResult] = []
    unchanged: list[RefreshResult] = []
    for result in results:
        match result.outcome:
            case TrickleError() as error:
                ports.fail(result.refresh.row, error, result)
            case FullResult() as rows:
                changed.append((result, rows))
            case MemoryDelta() | StagedDelta() as rows if rows.is_fill or rows.count:
                changed.append((result, rows))
            case MemoryDelta() | StagedDelta() | None:
                unchanged.append(result)
            case _:
                assert_never(result.outcome)
    for result, rows in ports.group_commit(changed, unchanged):
        _try_step(ports, result.refresh.row, result, partial(ports.write_back, result, rows))


def _try_step(ports: Ports, row: StreamTableRow, result: RefreshResult | None, step: Callable[[], T]) -> T | None:
    """Run a step. A failure affects only this stream table; a retryable one is raised, and the tick is repeated."""
    try:
        return step()
    except TrickleError as error:
        if error.retryable:
            raise
        ports.fail(row, error, result)
        return None
