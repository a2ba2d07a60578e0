"""The rows that have arrived in; every stream table that is due, advanced to the same frontier, out.

One tick, as a list of steps without logic of its own: the parts do the work. What a tick needs of each part is a
Protocol here; the parts themselves are in `refresh/`.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack
from datetime import UTC, datetime
from functools import partial
from typing import Protocol, assert_never

from applier.catalog.stream_tables import StreamTableRow
from applier.errors import SourceBusy
from applier.plan.stream_table import StreamTable
from applier.refresh.method.refresh import Refresh, RefreshResult, RefreshRows
from applier.refresh.stream_tables import PlannedRow, RefusedRow
from applier.refresh.writing.long_writes import LongWrite
from applier.sinks.delta import MemoryDelta, StagedDelta
from applier.sinks.lease import Lease
from applier.sinks.postgres.full_diff import FullResult
from shared_schema.errors import TrickleError
from shared_schema.lsn import Lsn


class IntakePort(Protocol):
    """Where change rows come from."""

    def advance(self) -> Lsn:
        """Move complete rows from the inbox to the traces; return the frontier up to which they are complete."""


class VouchPort(Protocol):
    """Whether what stream tables rest on is unchanged."""

    @property
    def is_unsettled(self) -> bool:
        """Whether a commit is under way that may alter something, or the server lacks published changes."""

    @property
    def has_lost_history(self) -> bool:
        """Whether the server lacks published changes: then nothing that was computed from them is written."""

    def look(self, frontier: Lsn) -> None:
        """Look at the catalog, after the frontier up to which rows are complete is known."""

    def admit(self, rows: Sequence[StreamTableRow]) -> tuple[list[StreamTableRow], list[RefusedRow]]:
        """Return the stream tables that may be planned and refreshed now, and those that cannot go on."""

    def vouches(self, row: StreamTableRow, table: StreamTable) -> bool:
        """Whether the plan and the rows that it reads are those of the frontier."""

    def begin(self, refreshes: Sequence[Refresh]) -> None:
        """Note what the queries rest on that PostgreSQL is about to run: they choose a later position themselves."""

    def confirms(self, refresh: Refresh) -> bool:
        """Whether the rows of a finished refresh may be shown at their position; asked after a later look."""


class AlterationsPort(Protocol):
    """New queries of existing stream tables."""

    def carry_out(self, frontier: Lsn, *, waits: bool) -> list[StreamTableRow]:
        """Carry out what can be done at this frontier, nothing if it `waits`; return all stream tables as stored."""


class StreamTablesPort(Protocol):
    """The stream tables and their plans."""

    def forget_dropped(self, rows: Sequence[StreamTableRow]) -> set[int]:
        """Forget the stream tables that are no longer stored; return their ids."""

    def load(self, rows: Sequence[StreamTableRow]) -> tuple[list[PlannedRow], list[RefusedRow]]:
        """Return the stream tables in service with their plans, and those that cannot be planned with the error."""

    def limit(self, row: StreamTableRow, table: StreamTable, frontier: Lsn) -> Lsn:
        """Return how far a stream table may go: the frontier, or less while a gate holds it."""

    def is_due(
        self, row: StreamTableRow, table: StreamTable, frontier: Lsn, now: datetime, *, ignore_schedules: bool
    ) -> bool:
        """Whether to refresh a stream table now; raises when its sources will never be known."""

    def choose(self, refreshes: Sequence[Refresh], now: datetime, *, ignore_schedules: bool) -> list[Refresh]:
        """Return the refreshes of this tick, by deadline; the others wait at their frontier for the next one."""

    def is_current(self, table: StreamTable) -> bool:
        """Whether a stream table was neither dropped nor altered since it was planned."""


class PlannerPort(Protocol):
    """Chooses how a stream table is refreshed."""

    def plan(self, row: StreamTableRow, table: StreamTable, frontier: Lsn, now: datetime) -> Refresh:
        """Plan a refresh up to the frontier, or up to an earlier LSN."""

    def find_judgeable(self, finished: Sequence[Refresh], frontier: Lsn) -> list[Refresh]:
        """Return the finished refreshes without those whose fuse cannot count all of their changes yet."""

    def passes(self, refresh: Refresh) -> bool:
        """Whether the fuse of its stream table lets a finished refresh be written."""

    def hold_readers(self, refreshes: Sequence[Refresh], rows: Sequence[StreamTableRow]) -> list[Refresh]:
        """Return the refreshes without those of readers of a stream table whose fuse is blown."""

    def learn(self, result: RefreshResult) -> None:
        """Remember the time that a refresh took."""

    def forget(self, pgt_id: int) -> None:
        """Forget what a stream table cost that was dropped."""


class ComputerPort(Protocol):
    """Computes the rows of refreshes."""

    def find_finished(self) -> list[Refresh]:
        """Return the long refreshes of earlier ticks that have finished."""

    def take_finished(self, refreshes: Sequence[Refresh]) -> list[RefreshResult]:
        """Return the results of these."""

    def is_running(self, table_id: int) -> bool:
        """Whether a long refresh of the stream table is running or waits to be written."""

    def compute(self, refreshes: Sequence[Refresh]) -> list[RefreshResult]:
        """Start the long refreshes in the background; compute the others and return their results, in order."""

    def forget(self, table_id: int) -> None:
        """Forget the state of a stream table."""


class WriterPort(Protocol):
    """Writes the rows of refreshes into the sinks."""

    def catch_up(self, row: StreamTableRow, table: StreamTable) -> None:
        """Once after a start: bring the other sinks to PostgreSQL's frontier."""

    def group_commit(self, changed: Sequence[RefreshResult], unchanged: Sequence[RefreshResult]) -> list[RefreshResult]:
        """Write as many as possible in one transaction, and move all unchanged frontiers; return what is committed."""

    def write_back(self, result: RefreshResult, is_current: Callable[[], bool]) -> bool:
        """Write rows and frontier into PostgreSQL, then queue the delta for the other sinks. Return False when they
        are being written beside the ticks instead, and will be committed if they then are current."""

    def is_writing(self, table_id: int) -> bool:
        """Whether rows of the stream table are being written beside the ticks."""

    def give_up(self, table_id: int) -> None:
        """Interrupt a write beside the ticks: its rows are not committed."""

    def take_written(self) -> list[LongWrite]:
        """Return the writes beside the ticks that have ended."""

    def conclude(self, write: LongWrite, *, is_current: bool) -> bool:
        """Queue the delta of such a write for the other sinks; return whether it was committed. Raises what failed."""

    def publish(self) -> None:
        """Have all queued deltas published to the topics, in the background."""

    def forget(self, table_id: int) -> None:
        """Drop what is queued for a stream table."""


class FailuresPort(Protocol):
    """What the outcome of a refresh means for its stream table."""

    def begin(self, refreshes: Sequence[Refresh], is_busy: Callable[[int], bool]) -> list[Refresh]:
        """Return the refreshes that may be computed now; one that ended the process too often is suspended.

        `is_busy` says whether rows of a stream table are being computed or written beside the ticks.
        """

    def contain(self, row: StreamTableRow, result: RefreshResult | None = None) -> AbstractContextManager[bool | None]:
        """Return a context in which any failure affects only this stream table; a retryable one is raised."""

    def fail(self, row: StreamTableRow, error: TrickleError, result: RefreshResult | None = None) -> None:
        """Schedule a retry for one stream table, or suspend it; the others continue."""

    def note_success(self, result: RefreshResult) -> None:
        """Forget the failures of a stream table."""

    def note_schedules(self, rows: Iterable[StreamTableRow]) -> None:
        """Store when the stream tables are due whose schedule, SLA or tier was altered."""


def run_tick(
    *,
    intake: IntakePort,
    vouch: VouchPort,
    alterations: AlterationsPort,
    tables: StreamTablesPort,
    planner: PlannerPort,
    computer: ComputerPort,
    writer: WriterPort,
    failures: FailuresPort,
    ignore_schedules: bool = False,
) -> Lsn:
    """Advance every due stream table to one frontier; return it. Safe to repeat after a failure."""
    frontier = intake.advance()  # rows are complete up to here, and in the traces
    finished = planner.find_judgeable(computer.find_finished(), frontier)  # long refreshes of earlier ticks
    vouch.look(frontier)  # only now: what was committed before the frontier, or before a refresh finished, is seen
    confirmed = {refresh.table.id for refresh in finished if vouch.confirms(refresh) and planner.passes(refresh)}
    now = datetime.now(UTC)
    # What was written beside the earlier ticks, then the long refreshes of earlier ticks.
    away = _conclude(writer.take_written(), tables=tables, planner=planner, writer=writer, failures=failures)
    write = partial(_write, vouch=vouch, tables=tables, planner=planner, writer=writer, failures=failures)
    away += write(_keep(computer.take_finished(finished), confirmed))
    rows = alterations.carry_out(frontier, waits=vouch.is_unsettled)
    for pgt_id in tables.forget_dropped([] if vouch.has_lost_history else rows):
        writer.forget(pgt_id)
        computer.forget(pgt_id)
        planner.forget(pgt_id)
    admitted, unlike = vouch.admit(rows)
    planned, refused = tables.load(admitted)
    for row, error in [*unlike, *refused]:
        if writer.is_writing(row.pgt_id):
            # It was computed from what is different now. The next tick finds that again, after the write has ended.
            writer.give_up(row.pgt_id)
        else:
            failures.fail(row, error)
    failures.note_schedules(row for row, _ in planned)
    refreshes: list[Refresh] = []
    for row, table in planned:
        if computer.is_running(table.id) or writer.is_writing(table.id):
            continue
        with failures.contain(row):
            if not vouch.vouches(row, table):
                continue
            if row.lsn and row.lsn <= frontier:
                writer.catch_up(row, table)
            limit = tables.limit(row, table, frontier)  # one position for all readers of a source that is gated
            if tables.is_due(row, table, limit, now, ignore_schedules=ignore_schedules):
                refreshes.append(planner.plan(row, table, limit, now))
    refreshes = planner.hold_readers(refreshes, rows)  # while the fuse of a stream table that they read is blown
    refreshes = tables.choose(refreshes, now, ignore_schedules=ignore_schedules)
    refreshes = failures.begin(refreshes, lambda pgt_id: computer.is_running(pgt_id) or writer.is_writing(pgt_id))
    vouch.begin(refreshes)
    away += write(computer.compute(refreshes))
    writer.publish()  # the topic at once, Delta now and then, both in the background
    if away:
        raise away[0]
    return frontier


def _keep(results: Iterable[RefreshResult], confirmed: Container[int]) -> list[RefreshResult]:
    """Return the results that may be shown; close the leases of the others."""
    kept: list[RefreshResult] = []
    for result in results:
        if result.refresh.table.id in confirmed:
            kept.append(result)
        else:
            result.close()
    return kept


def _conclude(
    writes: Iterable[LongWrite],
    *,
    tables: StreamTablesPort,
    planner: PlannerPort,
    writer: WriterPort,
    failures: FailuresPort,
) -> list[Exception]:
    """Take over what was written beside the ticks; return the failures that concern all."""
    away: list[Exception] = []
    for write in writes:
        refresh = write.result.refresh
        with write:
            try:
                with failures.contain(refresh.row, write.result):
                    if writer.conclude(write, is_current=tables.is_current(refresh.table)):
                        _learn(planner, failures, write.result)
            except Exception as error:
                away.append(error)
    return away


def _write(
    results: Iterable[RefreshResult],
    *,
    vouch: VouchPort,
    tables: StreamTablesPort,
    planner: PlannerPort,
    writer: WriterPort,
    failures: FailuresPort,
) -> list[TrickleError]:
    """Write the changed rows and move the other frontiers in one commit, so that a reader sees all or none of it.

    Whatever happens, the end closes the leases of the results; the queues of the sinks have leases of their own. A
    service that was away while one of them was computed concerns none of the others: its errors are returned, and the
    end of the tick raises them.
    """
    with ExitStack() as leases:
        computed = [leases.enter_context(result) for result in results]
        changed: list[RefreshResult] = []
        unchanged: list[RefreshResult] = []
        away: list[TrickleError] = []
        for result in computed:
            if not tables.is_current(result.refresh.table):
                continue  # it was dropped or altered since
            match result.outcome:
                case SourceBusy():
                    pass  # a gate was closed after the tick had looked: the next one sees it
                case TrickleError(retryable=True) as error:
                    away.append(error)
                case TrickleError() as error:
                    failures.fail(result.refresh.row, error, result)
                case Lease() as rows:
                    to_write = result.refresh.row.reinitializes or _has_rows(rows.value)
                    (changed if to_write else unchanged).append(result)
                case None:
                    unchanged.append(result)
                case _:
                    assert_never(result.outcome)
        committed = writer.group_commit(changed, unchanged)
        for result in committed:
            _learn(planner, failures, result)
        is_written = {result.refresh.table.id for result in committed}
        for result in changed:
            if result.refresh.table.id not in is_written:
                with failures.contain(result.refresh.row, result):
                    if writer.write_back(result, partial(_may_be_shown, vouch, tables, result.refresh.table)):
                        _learn(planner, failures, result)
    return away


def _may_be_shown(vouch: VouchPort, tables: StreamTablesPort, table: StreamTable) -> bool:
    """Whether rows may be committed that were computed for a stream table some ticks ago. Any thread may ask."""
    return tables.is_current(table) and not vouch.has_lost_history


def _learn(planner: PlannerPort, failures: FailuresPort, result: RefreshResult) -> None:
    """Remember what a written refresh took, and that it succeeded."""
    planner.learn(result)
    failures.note_success(result)


def _has_rows(rows: RefreshRows) -> bool:
    """Whether there is something to write; a stream table is filled even when it stays empty."""
    match rows:
        case FullResult():
            return True
        case MemoryDelta() | StagedDelta():
            return rows.is_fill or rows.count > 0
        case _:
            assert_never(rows)
