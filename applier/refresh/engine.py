"""The ports of a tick, wired to the real world: inbox, traces, Spark, PostgreSQL, Kafka and Delta."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial

from pyspark.sql import SparkSession

from applier import metrics
from applier.arrange.inputs import TraceInputs
from applier.arrange.traces import Traces
from applier.catalog.catalog import Catalog
from applier.catalog.stream_tables import Status, StreamTableRow
from applier.errors import GroupCommitRefused, RefreshFailed, TargetFull
from applier.ingest.inbox import Inbox
from applier.plan.stream_table import PostgresQuery, StreamTable
from applier.refresh.compute import compute, compute_full, result_schema
from applier.refresh.long_refreshes import LongRefreshes
from applier.refresh.refresh import ChangedResult, Refresh, RefreshOutcome, RefreshResult, RefreshRows, group_by_range
from applier.refresh.refresh_planner import RefreshPlanner, is_long_refresh
from applier.refresh.scheduler import Scheduler
from applier.refresh.strategy import RefreshMethod, RefreshReason, cannot_repair
from applier.refresh.stream_tables import ANY_RELATION, StreamTables
from applier.refresh.write_back import WriteBack
from applier.sinks.delta import DeltaRows, MemoryDelta
from applier.sinks.kafka.publisher import has_topic
from applier.sinks.postgres.full_diff import FullResult
from applier.sinks.postgres.sink import PostgresSink
from applier.sinks.staging.staged_delta import Delta, StagedDelta
from applier.sinks.staging.staging import Staging
from applier.state.store import StateStore
from shared_schema.errors import TrickleError
from shared_schema.lsn import ORIGIN, Lsn, LsnRange
from shared_schema.progress import Capture
from shared_schema.table_schema import TableSchema

log = logging.getLogger(__name__)


@dataclass
class Engine:
    """State between ticks. Everything here can be lost: it is rebuilt from the sinks, the checkpoint and Kafka."""

    spark: SparkSession
    catalog: Catalog
    stream_tables: StreamTables
    scheduler: Scheduler
    planner: RefreshPlanner
    inbox: Inbox
    inbox_lock: threading.Condition
    schema_of: Callable[[Capture], TableSchema]
    traces: Traces
    state_store: StateStore
    sinks: WriteBack
    staging: Staging | None
    """Where deltas go that are too large for the driver."""
    open_side_sink: Callable[[], PostgresSink]
    """Another one, for whoever writes beside the ticks."""
    run_in_postgres: Callable[[StreamTable, Lsn], Delta]
    """A stream table without a plan and its frontier -> how its query's result differs from what it holds."""
    workers: ThreadPoolExecutor
    long_refreshes: LongRefreshes
    alter: Callable[[Engine, list[StreamTableRow], Lsn], None]
    """What `alter_stream_table` asked for, as far as it can be done at a frontier."""
    frontier: Lsn = ORIGIN
    """Of the last whole tick."""
    draining: bool = False
    """Schedules do not count: everything is to be brought up to now."""
    rows: list[StreamTableRow] = field(default_factory=list)
    """In service, as stored when last looked at."""
    _taken_in: Lsn = ORIGIN
    _noted: dict[int, tuple[RefreshMethod, RefreshReason, datetime | None]] = field(default_factory=dict)
    """What people were last told of each."""
    _inputs: dict[LsnRange, TraceInputs] = field(default_factory=dict)
    """Of the current tick: stream tables that read the same relations share their frames."""
    _inputs_lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def defined(self) -> dict[int, StreamTable]:
        """The stream tables whose plan is known."""
        return self.stream_tables.tables

    @property
    def settled(self) -> bool:
        """Whether every sink has everything and nothing is under way."""
        return self.sinks.settled(self.defined) and not self.long_refreshes.any_left

    def advance_intake(self) -> Lsn:
        """Inbox -> traces."""
        self._close_inputs()
        with self.inbox_lock:
            frontier = self.inbox.advance()
            captures, arrivals, gaps = list(self.inbox.captures.values()), self.inbox.take(), dict(self.inbox.gaps)
        for capture in captures:
            trace = self.traces.get(capture.table)
            if trace is None or trace.captured_at < capture.snapshot_lsn:
                self.traces.capture(self._of_this_database(capture), self.schema_of(capture))
        self.traces.leave_out(gaps)
        self.traces.append(arrivals)
        metrics.ROWS_IN.inc(sum(len(run) for runs in arrivals.values() for run in runs))
        self._taken_in = frontier
        return frontier

    def _of_this_database(self, capture: Capture) -> Capture:
        here = not (self.stream_tables.elsewhere or has_topic(capture))
        return capture if here else replace(capture, relid=ANY_RELATION)

    def _close_inputs(self) -> None:
        for inputs in self._inputs.values():
            inputs.__exit__()
        self._inputs.clear()

    # -- whose turn it is -----------------------------------------------------------------------------------------

    def in_service(self) -> list[tuple[StreamTableRow, StreamTable]]:
        """Definitions as stored now; a new one is understood here or suspended."""
        rows = self.catalog.stream_tables.all()
        if any(row.altered or row.replaces is not None for row in rows):
            self.alter(self, rows, self._taken_in)
            # What is built to take a place is wanted now, whatever its schedule.
            rows = [
                row if row.replaces is None else replace(row, refresh_requested=True)
                for row in self.catalog.stream_tables.all()
            ]
        self.sinks.building = {row.pgt_id for row in rows if row.replaces is not None}
        for gone in self.stream_tables.forget_all_but({row.pgt_id for row in rows}):
            self.forget(gone)
        self.rows = [row for row in rows if row.state in (Status.INITIALIZING, Status.ACTIVE)]
        understood, refused = self.stream_tables.understand(self.rows)
        for row, error in (*refused, *self.scheduler.understand(self.rows)):
            self.fail(row, error)
        metrics.STREAM_TABLES.set(len(understood))
        return [(row, table) for row, table in understood if not self.long_refreshes.busy(row.pgt_id)]

    def forget(self, pgt_id: int) -> None:
        """It is dropped, or has become another."""
        self.stream_tables.forget(pgt_id)
        self.sinks.ask_again(pgt_id)
        self.state_store.forget(pgt_id)
        self.scheduler.forget(pgt_id)

    def plan(self, row: StreamTableRow, table: StreamTable, frontier: Lsn, now: datetime) -> Refresh | None:
        """How it is refreshed; None when it is not its turn or while what it reads is not known."""
        by_postgres = isinstance(table.plan, PostgresQuery)
        if not (self.draining or self.scheduler.is_due(row, now, by_postgres=by_postgres)):
            return None
        if not self.stream_tables.ready(row, table, frontier):
            return None
        return self.planner.plan(row, table, frontier, now)

    def catch_up(self, table: StreamTable, at: Lsn) -> None:
        """Give the topic and Delta what they missed when the last run ended."""
        self.sinks.catch_up(table, at, self._over)

    def _over(self, table: StreamTable, lsn_range: LsnRange) -> DeltaRows | None:
        """The change; where nobody can know it any more, all that PostgreSQL holds."""
        if not self.traces.whole_at(table.sources, lsn_range.lower, lsn_range.upper):
            if any(row.pgt_id == table.id and row.partial for row in self.rows):
                raise cannot_repair()
            with self.traces.through(lsn_range) as inputs:
                schema = result_schema(self.spark, table, inputs)
            return self.sinks.postgres.target_rows(table, LsnRange(ORIGIN, lsn_range.upper), schema)
        with self.traces.through(lsn_range) as inputs:
            return compute(self.spark, table, inputs, staging=self.staging)

    # -- computing ------------------------------------------------------------------------------------------------

    def begin(self, refreshes: Sequence[Refresh]) -> list[Refresh]:
        """What takes long goes on beside the ticks."""
        for refresh in (t for t in refreshes if is_long_refresh(t)):
            inputs = (
                None if refresh.strategy.method is RefreshMethod.IN_POSTGRES else self.traces.through(_seen(refresh))
            )
            if inputs is not None:
                # Now, between two checkpoints: the next one may move what it reads.
                inputs.take(refresh.table.sources)
            self.long_refreshes.begin(refresh, partial(self._compute_long, inputs))
        return [refresh for refresh in refreshes if not is_long_refresh(refresh)]

    def finished(self) -> list[RefreshResult]:
        """Long refreshes that ended; what was dropped or altered meanwhile does not count."""
        ended = self.long_refreshes.finished()
        counting = [result for result in ended if self.defined.get(result.refresh.table.id) is result.refresh.table]
        for result in ended:
            if result not in counting:
                result.discard()
        return counting

    def compute(self, refreshes: Sequence[Refresh]) -> Iterator[RefreshResult]:
        """Independent stream tables side by side: planning is most of a small query's time, and it uses one core.

        What turns out to be long, because few rows come to many, goes on beside the ticks.
        """
        for result in self.workers.map(self._compute, refreshes):
            match result.outcome:
                case (StagedDelta() | FullResult(is_staged=True)) as staged:
                    self.long_refreshes.begin(result.refresh, partial(self._go_on, staged))
                case _:
                    yield result

    def _go_on(self, staged: StagedDelta | FullResult, refresh: Refresh) -> RefreshResult:
        return self._timed(refresh, partial(self._awaited, refresh.table, staged))

    def _compute(self, refresh: Refresh) -> RefreshResult:
        lsn_range = _seen(refresh)
        with self._inputs_lock:
            if lsn_range not in self._inputs:
                self._inputs[lsn_range] = self.traces.through(lsn_range)
            inputs = self._inputs[lsn_range]
        return self._timed(refresh, lambda: self._in_spark(refresh, inputs))

    def _compute_long(self, inputs: TraceInputs | None, refresh: Refresh) -> RefreshResult:
        if inputs is None:
            return self._timed(refresh, lambda: self.run_in_postgres(refresh.table, refresh.lsn_range.lower))
        with inputs:
            result = self._timed(refresh, lambda: self._in_spark(refresh, inputs))
            return (
                self._go_on(result.outcome, refresh) if isinstance(result.outcome, StagedDelta | FullResult) else result
            )

    def _awaited(self, table: StreamTable, staged: StagedDelta | FullResult) -> StagedDelta | FullResult:
        """All parts; those of a progressive stream table can be seen while the next are made."""
        beside = self.open_side_sink()
        try:
            if isinstance(staged, StagedDelta):
                beside.prefetch_parts(table, staged)
            return staged.awaited()
        except BaseException:
            staged.release(all_holders=True)
            raise
        finally:
            beside.close()

    def _in_spark(self, refresh: Refresh, inputs: TraceInputs) -> RefreshOutcome:
        if refresh.strategy.reason is RefreshReason.REPAIR:
            # The other sinks hold the rows of the window's beginning: they need the change, PostgreSQL the whole.
            change = compute(self.spark, refresh.table, inputs, staging=self.staging)
            rows = compute_full(self.spark, refresh.table, inputs, self.staging)
            return FullResult(
                refresh.lsn_range, rows, change or MemoryDelta(refresh.lsn_range, rows.schema.empty_table())
            )
        if refresh.strategy.method is RefreshMethod.FULL and refresh.lsn_range.lower:
            return FullResult(refresh.lsn_range, compute_full(self.spark, refresh.table, inputs, self.staging))
        if refresh.strategy.method is RefreshMethod.NO_DATA:
            self.state_store.unchanged(refresh.table, refresh.lsn_range)
            return None
        return compute(self.spark, refresh.table, inputs, self.state_store, self.staging)

    def _timed(self, refresh: Refresh, run: Callable[[], RefreshOutcome]) -> RefreshResult:
        started, began = datetime.now(UTC), time.monotonic()
        outcome: RefreshOutcome
        try:
            outcome = run()
        except TrickleError as error:
            if error.retryable:
                raise
            outcome = error
        took = time.monotonic() - began
        if refresh.strategy.method is not RefreshMethod.NO_DATA:
            metrics.COMPUTE_SECONDS.observe(took)
        return RefreshResult(refresh, outcome, started, took * 1000)

    # -- writing --------------------------------------------------------------------------------------------------

    def group_commit(self, changed: list[ChangedResult], unchanged: list[RefreshResult]) -> list[ChangedResult]:
        """Everything short in one transaction; returns what has to be written by itself."""
        fits = self.sinks.postgres.can_group_commit
        short = [(result, _straight(result, rows)) for result, rows in changed if fits(result.refresh.table, rows)]
        if len(short) + bool(unchanged) < 2 or not short:
            self._advance(unchanged)
            return changed
        started = time.monotonic()
        try:
            written, refused = self.sinks.group_commit(short, unchanged)
        except GroupCommitRefused as error:
            log.info("stream tables are written one by one", extra={"error": error.problem})
            self._advance(unchanged)
            return changed
        metrics.APPLY_SECONDS.observe(time.monotonic() - started)
        for result, delta in written:
            self._written(result, delta)
        for result in unchanged:
            self._unchanged(result)
        taken = {result.refresh.table.id for result, _ in short}
        return [*refused, *((result, rows) for result, rows in changed if result.refresh.table.id not in taken)]

    def write_back(self, result: RefreshResult, rows: RefreshRows) -> None:
        """PostgreSQL first: from its commit on the difference is owed to the others."""
        started = time.monotonic()
        delta = self.sinks.write_back(result, _straight(result, rows))
        metrics.APPLY_SECONDS.observe(time.monotonic() - started)
        self._written(result, delta)

    def _written(self, result: RefreshResult, delta: Delta) -> None:
        table, append_only = result.refresh.table, result.refresh.row.append_only
        metrics.ROWS_OUT.labels(str(table)).inc(delta.count)
        self._succeeded(result)
        if append_only and delta.leaving:
            self._revert_append_only(result.refresh.row)
        extra = {"table": str(table), "frontier": str(delta.lsn_range.upper), "rows": delta.count}
        log.log(logging.INFO if delta.is_fill else logging.DEBUG, "stream table refreshed", extra=extra)

    def _revert_append_only(self, row: StreamTableRow) -> None:
        log.warning("rows left an append-only stream table", extra={"table": str(row.table)})
        self.catalog.stream_tables.revert_append_only(row.pgt_id)
        detail = "rows left it: it is kept like any other from now on"
        self.catalog.service.alert("append_only_reverted", pgt_id=row.pgt_id, detail=detail)

    def _advance(self, unchanged: list[RefreshResult]) -> None:
        """Frontiers of stream tables without changes, together."""
        for lsn_range, group in group_by_range(unchanged).items():
            as_of = group[0].refresh.as_of
            self.catalog.frontiers.advance_unchanged(
                [d.refresh.table.id for d in group], lsn_range.lower, lsn_range.upper, as_of
            )
            for result in group:
                self._unchanged(result)

    def _unchanged(self, result: RefreshResult) -> None:
        result.discard()
        self._succeeded(result)

    def _succeeded(self, result: RefreshResult) -> None:
        self.planner.learn(result)
        row, strategy = result.refresh.row, result.refresh.strategy
        if strategy.method is RefreshMethod.IN_POSTGRES:
            self.scheduler.rest(row.pgt_id, datetime.now(UTC), result.compute_ms)
        self.scheduler.succeeded(row.pgt_id)
        noted = self._noted.get(row.pgt_id)
        way, why = (
            (strategy.method, strategy.reason)
            if strategy.method is not RefreshMethod.NO_DATA or noted is None
            else noted[:2]
        )
        state = way, why, self.scheduler.next_refresh(row, result.refresh.as_of)
        if noted != state:
            self.catalog.history.note_state(row.pgt_id, way.value, why.value, state[2])
            self._noted[row.pgt_id] = state

    def publish(self) -> None:
        """One Kafka transaction; what could not be published stays owed."""
        self.sinks.publish()

    def fail(self, table: StreamTableRow, error: TrickleError, result: RefreshResult | None = None) -> None:
        """Try again later what other rows may mend; else out of service, with the reason where people look."""
        if result is not None:
            self.catalog.history.record_failure(table.pgt_id, result.executed, result.lsn_range, error)
        errors, full = None, isinstance(error, TargetFull)
        if isinstance(error, RefreshFailed):
            errors = self.scheduler.failed(table.pgt_id, datetime.now(UTC), for_ever=full)
        if errors is not None:
            if full and errors == 1:
                self.catalog.service.alert("disk_full", pgt_id=table.pgt_id, detail=error.problem)
            log.warning("refresh failed", extra={"table": str(table.table), "error": error.problem, "errors": errors})
            self.catalog.history.note_errors(table.pgt_id, errors)
            self._noted.pop(table.pgt_id, None)
            return
        log.error("stream table suspended", extra={"table": str(table.table), "error": error.problem})
        self.scheduler.forget(table.pgt_id)
        self.catalog.stream_tables.suspend(table.pgt_id, error)
        metrics.SUSPENSIONS.inc()


def _seen(refresh: Refresh) -> LsnRange:
    """What it has to see of the traces; for a whole computation their beginning may be gone."""
    only_whole = refresh.strategy.method is RefreshMethod.FULL and refresh.strategy.reason is not RefreshReason.REPAIR
    return LsnRange(ORIGIN, refresh.lsn_range.upper) if only_whole else refresh.lsn_range


def _straight(result: RefreshResult, rows: RefreshRows) -> RefreshRows:
    """Rows that only come, into a stream table that says so of itself, need not be looked for."""
    if result.refresh.row.append_only and isinstance(rows, MemoryDelta):
        return replace(rows, appended=not rows.leaving)
    return rows
