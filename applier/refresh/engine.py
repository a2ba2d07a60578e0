"""The steps of a tick, done with the inbox, the traces, Spark, PostgreSQL, Kafka and Delta."""

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
    """Opens another sink, for writes in the background."""
    run_in_postgres: Callable[[StreamTable, Lsn], Delta]
    """A stream table without a plan and its frontier in; the difference of its query's result to its rows out."""
    workers: ThreadPoolExecutor
    long_refreshes: LongRefreshes
    alter: Callable[[Engine, list[StreamTableRow], Lsn], None]
    """Carries out the alterations that can be done at a frontier."""
    frontier: Lsn = ORIGIN
    """The frontier of the last finished tick."""
    draining: bool = False
    """Whether to ignore schedules and refresh everything up to now."""
    rows: list[StreamTableRow] = field(default_factory=list)
    """The stream tables in service, as stored at the last look."""
    _intake_frontier: Lsn = ORIGIN
    _noted: dict[int, tuple[RefreshMethod, RefreshReason, datetime | None]] = field(default_factory=dict)
    """The state of each stream table that was last written to the catalog."""
    _inputs: dict[LsnRange, TraceInputs] = field(default_factory=dict)
    """The inputs of the current tick: stream tables that read the same relations share their frames."""
    _inputs_lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def planned(self) -> dict[int, StreamTable]:
        """The stream tables that have a plan, by id."""
        return self.stream_tables.tables

    @property
    def is_drained(self) -> bool:
        """Whether every sink has received every delta and no refresh is running."""
        return self.sinks.is_drained(self.planned) and not self.long_refreshes.has_any

    def advance_intake(self) -> Lsn:
        """Move complete rows from the inbox to the traces; return the frontier up to which they are complete."""
        self._close_inputs()
        with self.inbox_lock:
            frontier = self.inbox.advance()
            captures, arrivals, gaps = list(self.inbox.captures.values()), self.inbox.take(), dict(self.inbox.gaps)
        for capture in captures:
            trace = self.traces.get(capture.table)
            if trace is None or trace.captured_at < capture.snapshot_lsn:
                self.traces.capture(self._localize(capture), self.schema_of(capture))
        self.traces.leave_out(gaps)
        self.traces.append(arrivals)
        metrics.ROWS_IN.inc(sum(len(run) for runs in arrivals.values() for run in runs))
        self._intake_frontier = frontier
        return frontier

    def _localize(self, capture: Capture) -> Capture:
        """Remove the relid of a capture that comes from another database."""
        is_here = not (self.stream_tables.sources_elsewhere or has_topic(capture))
        return capture if is_here else replace(capture, relid=ANY_RELATION)

    def _close_inputs(self) -> None:
        for inputs in self._inputs.values():
            inputs.__exit__()
        self._inputs.clear()

    # -- which stream tables are due ------------------------------------------------------------------------------

    def load_stream_tables(self) -> list[tuple[StreamTableRow, StreamTable]]:
        """Return the stream tables in service as stored now, with their plans; suspend those that cannot be planned.

        A stream table with a running long refresh is left out.
        """
        rows = self.catalog.stream_tables.all()
        if any(row.altered or row.replaces is not None for row in rows):
            self.alter(self, rows, self._intake_frontier)
            # A stream table that is built to replace another one is refreshed now, whatever its schedule.
            rows = [
                row if row.replaces is None else replace(row, refresh_requested=True)
                for row in self.catalog.stream_tables.all()
            ]
        self.sinks.building = {row.pgt_id for row in rows if row.replaces is not None}
        for dropped in self.stream_tables.forget_dropped({row.pgt_id for row in rows}):
            self.forget(dropped)
        self.rows = [row for row in rows if row.state in (Status.INITIALIZING, Status.ACTIVE)]
        planned, refused = self.stream_tables.load(self.rows)
        for row, error in (*refused, *self.scheduler.load(self.rows)):
            self.fail(row, error)
        metrics.STREAM_TABLES.set(len(planned))
        return [(row, table) for row, table in planned if not self.long_refreshes.is_running(row.pgt_id)]

    def forget(self, pgt_id: int) -> None:
        """Forget everything about a stream table that was dropped or has a new query."""
        self.stream_tables.forget(pgt_id)
        self.sinks.forget(pgt_id)
        self.state_store.forget(pgt_id)
        self.scheduler.forget(pgt_id)

    def plan(self, row: StreamTableRow, table: StreamTable, frontier: Lsn, now: datetime) -> Refresh | None:
        """Plan the refresh of a stream table; None when it is not due, or its sources are not known yet."""
        by_postgres = isinstance(table.plan, PostgresQuery)
        if not (self.draining or self.scheduler.is_due(row, now, by_postgres=by_postgres)):
            return None
        if not self.stream_tables.is_ready(row, table, frontier):
            return None
        return self.planner.plan(row, table, frontier, now)

    def catch_up(self, table: StreamTable, at: Lsn) -> None:
        """Give the topic and Delta the deltas that they missed when the last run ended."""
        self.sinks.catch_up(table, at, self._compute_missed)

    def _compute_missed(self, table: StreamTable, lsn_range: LsnRange) -> DeltaRows | None:
        """Compute the delta over a past range; return all rows of PostgreSQL where the traces no longer hold it."""
        if not self.traces.whole_at(table.sources, lsn_range.lower, lsn_range.upper):
            if any(row.pgt_id == table.id and row.partial for row in self.rows):
                raise cannot_repair()
            with self.traces.through(lsn_range) as inputs:
                schema = result_schema(self.spark, table, inputs)
            return self.sinks.postgres.target_rows(table, LsnRange(ORIGIN, lsn_range.upper), schema)
        with self.traces.through(lsn_range) as inputs:
            return compute(self.spark, table, inputs, staging=self.staging)

    # -- computing ------------------------------------------------------------------------------------------------

    def start_long(self, refreshes: Sequence[Refresh]) -> list[Refresh]:
        """Start the long refreshes in the background; return the others."""
        for refresh in (r for r in refreshes if is_long_refresh(r)):
            inputs = (
                None
                if refresh.strategy.method is RefreshMethod.IN_POSTGRES
                else self.traces.through(_input_range(refresh))
            )
            if inputs is not None:
                # Now, between two checkpoints: the next one may move what it reads.
                inputs.take(refresh.table.sources)
            self.long_refreshes.start(refresh, partial(self._compute_long, inputs))
        return [refresh for refresh in refreshes if not is_long_refresh(refresh)]

    def take_finished(self) -> list[RefreshResult]:
        """Return the finished long refreshes; discard those whose stream table was dropped or altered meanwhile."""
        finished = self.long_refreshes.take_finished()
        valid = [result for result in finished if self.planned.get(result.refresh.table.id) is result.refresh.table]
        for result in finished:
            if result not in valid:
                result.discard()
        return valid

    def compute(self, refreshes: Sequence[Refresh]) -> Iterator[RefreshResult]:
        """Compute independent stream tables in parallel: most of a small query's time is planning, on one core.

        A refresh that turns out to be long, because few rows give many, continues in the background.
        """
        for result in self.workers.map(self._compute, refreshes):
            match result.outcome:
                case (StagedDelta() | FullResult(is_staged=True)) as staged:
                    self.long_refreshes.start(result.refresh, partial(self._finish_staging, staged))
                case _:
                    yield result

    def _finish_staging(self, staged: StagedDelta | FullResult, refresh: Refresh) -> RefreshResult:
        return self._measure(refresh, partial(self._wait_for_parts, refresh.table, staged))

    def _compute(self, refresh: Refresh) -> RefreshResult:
        lsn_range = _input_range(refresh)
        with self._inputs_lock:
            if lsn_range not in self._inputs:
                self._inputs[lsn_range] = self.traces.through(lsn_range)
            inputs = self._inputs[lsn_range]
        return self._measure(refresh, lambda: self._compute_in_spark(refresh, inputs))

    def _compute_long(self, inputs: TraceInputs | None, refresh: Refresh) -> RefreshResult:
        if inputs is None:
            return self._measure(refresh, lambda: self.run_in_postgres(refresh.table, refresh.lsn_range.lower))
        with inputs:
            result = self._measure(refresh, lambda: self._compute_in_spark(refresh, inputs))
            outcome = result.outcome
            return self._finish_staging(outcome, refresh) if isinstance(outcome, StagedDelta | FullResult) else result

    def _wait_for_parts(self, table: StreamTable, staged: StagedDelta | FullResult) -> StagedDelta | FullResult:
        """Wait for all parts; parts of a progressive stream table are applied while the next ones are computed."""
        side_sink = self.open_side_sink()
        try:
            if isinstance(staged, StagedDelta):
                side_sink.apply_parts_early(table, staged)
            return staged.wait_for_all()
        except BaseException:
            staged.release(all_holders=True)
            raise
        finally:
            side_sink.close()

    def _compute_in_spark(self, refresh: Refresh, inputs: TraceInputs) -> RefreshOutcome:
        if refresh.strategy.reason is RefreshReason.REPAIR:
            # The other sinks hold the rows at the range's lower end: they need the delta, PostgreSQL the full result.
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

    def _measure(self, refresh: Refresh, run: Callable[[], RefreshOutcome]) -> RefreshResult:
        """Compute the outcome of a refresh, with its time; an error that cannot be retried is an outcome too."""
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
        """Write all short refreshes in one transaction; return those that have to be written alone."""
        can_group = self.sinks.postgres.can_group_commit
        short = [
            (result, _mark_append_only(result, rows))
            for result, rows in changed
            if can_group(result.refresh.table, rows)
        ]
        if len(short) + bool(unchanged) < 2 or not short:
            self._advance(unchanged)
            return changed
        started = time.monotonic()
        try:
            written, rejected = self.sinks.group_commit(short, unchanged)
        except GroupCommitRefused as error:
            log.info("stream tables are written one by one", extra={"error": error.problem})
            self._advance(unchanged)
            return changed
        metrics.APPLY_SECONDS.observe(time.monotonic() - started)
        for result, delta in written:
            self._note_written(result, delta)
        for result in unchanged:
            self._note_unchanged(result)
        in_group = {result.refresh.table.id for result, _ in short}
        return [*rejected, *((result, rows) for result, rows in changed if result.refresh.table.id not in in_group)]

    def write_back(self, result: RefreshResult, rows: RefreshRows) -> None:
        """Commit the rows in PostgreSQL, then queue the delta for the other sinks."""
        started = time.monotonic()
        delta = self.sinks.write_back(result, _mark_append_only(result, rows))
        metrics.APPLY_SECONDS.observe(time.monotonic() - started)
        self._note_written(result, delta)

    def _note_written(self, result: RefreshResult, delta: Delta) -> None:
        table, append_only = result.refresh.table, result.refresh.row.append_only
        metrics.ROWS_OUT.labels(str(table)).inc(delta.count)
        self._note_success(result)
        if append_only and delta.has_deletions:
            self._revert_append_only(result.refresh.row)
        extra = {"table": str(table), "frontier": str(delta.lsn_range.upper), "rows": delta.count}
        log.log(logging.INFO if delta.is_fill else logging.DEBUG, "stream table refreshed", extra=extra)

    def _revert_append_only(self, row: StreamTableRow) -> None:
        log.warning("rows were deleted from an append-only stream table", extra={"table": str(row.table)})
        self.catalog.stream_tables.revert_append_only(row.pgt_id)
        detail = "rows were deleted from it: it is no longer append-only"
        self.catalog.service.alert("append_only_reverted", pgt_id=row.pgt_id, detail=detail)

    def _advance(self, unchanged: list[RefreshResult]) -> None:
        """Move the frontiers of stream tables without changes, one statement per LSN range."""
        for lsn_range, group in group_by_range(unchanged).items():
            as_of = group[0].refresh.as_of
            self.catalog.frontiers.advance_unchanged(
                [d.refresh.table.id for d in group], lsn_range.lower, lsn_range.upper, as_of
            )
            for result in group:
                self._note_unchanged(result)

    def _note_unchanged(self, result: RefreshResult) -> None:
        result.discard()
        self._note_success(result)

    def _note_success(self, result: RefreshResult) -> None:
        self.planner.learn(result)
        row, strategy = result.refresh.row, result.refresh.strategy
        if strategy.method is RefreshMethod.IN_POSTGRES:
            self.scheduler.pause_after_query(row.pgt_id, datetime.now(UTC), result.compute_ms)
        self.scheduler.note_success(row.pgt_id)
        noted = self._noted.get(row.pgt_id)
        method, reason = (
            (strategy.method, strategy.reason)
            if strategy.method is not RefreshMethod.NO_DATA or noted is None
            else noted[:2]
        )
        state = method, reason, self.scheduler.next_refresh(row, result.refresh.as_of)
        if noted != state:
            self.catalog.history.note_state(row.pgt_id, method.value, reason.value, state[2])
            self._noted[row.pgt_id] = state

    def publish(self) -> None:
        """Publish all queued deltas in one Kafka transaction; when it fails they stay queued."""
        self.sinks.publish()

    def fail(self, table: StreamTableRow, error: TrickleError, result: RefreshResult | None = None) -> None:
        """Schedule a retry when other rows may solve the problem; else suspend the stream table with the reason."""
        if result is not None:
            self.catalog.history.record_failure(table.pgt_id, result.execution, result.lsn_range, error)
        errors, is_full = None, isinstance(error, TargetFull)
        if isinstance(error, RefreshFailed):
            errors = self.scheduler.note_failure(table.pgt_id, datetime.now(UTC), for_ever=is_full)
        if errors is not None:
            if is_full and errors == 1:
                self.catalog.service.alert("disk_full", pgt_id=table.pgt_id, detail=error.problem)
            log.warning("refresh failed", extra={"table": str(table.table), "error": error.problem, "errors": errors})
            self.catalog.history.note_errors(table.pgt_id, errors)
            self._noted.pop(table.pgt_id, None)
            return
        log.error("stream table suspended", extra={"table": str(table.table), "error": error.problem})
        self.scheduler.forget(table.pgt_id)
        self.catalog.stream_tables.suspend(table.pgt_id, error)
        metrics.SUSPENSIONS.inc()


def _input_range(refresh: Refresh) -> LsnRange:
    """Return the LSN range of the inputs; for a FULL refresh the traces may no longer hold the lower end."""
    is_full = refresh.strategy.method is RefreshMethod.FULL and refresh.strategy.reason is not RefreshReason.REPAIR
    return LsnRange(ORIGIN, refresh.lsn_range.upper) if is_full else refresh.lsn_range


def _mark_append_only(result: RefreshResult, rows: RefreshRows) -> RefreshRows:
    """Mark a delta without deletions for an append-only stream table: PostgreSQL need not look its rows up."""
    if result.refresh.row.append_only and isinstance(rows, MemoryDelta):
        return replace(rows, appended=not rows.has_deletions)
    return rows
