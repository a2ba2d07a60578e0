"""One round: what arrived becomes part of the traces, every stream table that is due advances to the same frontier.

Reads as the flow and holds no logic of its own: the steps are the ports it is given.
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
    """Everything a tick does to the world, in the order it does it."""

    def advance_intake(self) -> Lsn:
        """Move complete rows from the inbox to the traces; return the frontier they are complete to."""

    def finished(self) -> list[RefreshResult]:
        """Long refreshes, begun by earlier ticks, whose rows are known by now."""

    def in_service(self) -> list[tuple[StreamTableRow, StreamTable]]:
        """The stream tables whose query is understood and that nobody is busy with."""

    def catch_up(self, table: StreamTable, at: Lsn) -> None:
        """Once after a start: bring the sinks behind PostgreSQL to the frontier PostgreSQL has."""

    def plan(self, row: StreamTableRow, table: StreamTable, frontier: Lsn, now: datetime) -> Refresh | None:
        """How it is refreshed; None when it is not its turn or what it reads is not known yet.

        Raises when it never will be.
        """

    def begin(self, refreshes: Sequence[Refresh]) -> list[Refresh]:
        """Start the long ones beside the ticks; return the others."""

    def compute(self, refreshes: Sequence[Refresh]) -> Iterator[RefreshResult]:
        """The outcome of each, in order; several at a time."""

    def group_commit(self, changed: list[ChangedResult], unchanged: list[RefreshResult]) -> list[ChangedResult]:
        """Rows and frontiers of all of them in one transaction, as far as that is possible.

        Returns those whose rows are still to be written by themselves; the frontiers of the unchanged are moved.
        """

    def write_back(self, result: RefreshResult, rows: RefreshRows) -> None:
        """Rows and frontier into PostgreSQL, then the difference is owed to the other sinks."""

    def publish(self) -> None:
        """Everything owed to the topics, in one Kafka transaction."""

    def fail(self, table: StreamTableRow, error: TrickleError, result: RefreshResult | None = None) -> None:
        """One stream table is tried again later or taken out of service; nothing else stops."""


def run_tick(ports: Ports) -> Lsn:
    """Advance every due stream table to the frontier of what has arrived; return it. Safe to repeat after a failure."""
    frontier = ports.advance_intake()
    now = datetime.now(UTC)
    _settle(ports, ports.finished())
    refreshes = [
        refresh for row, table in ports.in_service() if (refresh := _planned(ports, row, table, frontier, now))
    ]
    _settle(ports, ports.compute(ports.begin(refreshes)))
    ports.publish()
    return frontier


def _planned(ports: Ports, row: StreamTableRow, table: StreamTable, frontier: Lsn, now: datetime) -> Refresh | None:
    def plan() -> Refresh | None:
        if row.lsn and row.lsn <= frontier:
            ports.catch_up(table, row.lsn)
        return ports.plan(row, table, frontier, now) if row.lsn < frontier else None

    return _tried(ports, row, None, plan)


def _settle(ports: Ports, results: Iterable[RefreshResult]) -> None:
    """Write what changed and move the frontiers of the rest: together, so that a reader sees all or none of it."""
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
        _tried(ports, result.refresh.row, result, partial(ports.write_back, result, rows))


def _tried(ports: Ports, row: StreamTableRow, result: RefreshResult | None, step: Callable[[], T]) -> T | None:
    """Do it; what fails concerns this one stream table, unless a service is away: then the tick is repeated."""
    try:
        return step()
    except TrickleError as error:
        if error.retryable:
            raise
        ports.fail(row, error, result)
        return None
