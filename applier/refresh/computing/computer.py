"""Planned refreshes in; their rows, computed by Spark from the traces or by PostgreSQL, out."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from threading import Lock

import pyarrow as pa
from pyspark.sql import SparkSession

from applier import metrics
from applier.arrange.inputs import SMALL_RANGE_ROWS, TraceInputs
from applier.arrange.traces import Traces
from applier.plan.nodes import StreamPlan
from applier.plan.stream_table import PostgresQuery, StreamTable
from applier.refresh.computing.compute import compute, compute_full, result_schema
from applier.refresh.computing.full_in_postgres import FullInPostgres
from applier.refresh.computing.long_refreshes import LongRefreshes
from applier.refresh.computing.worker_pool import WorkerPool
from applier.refresh.method.refresh import Refresh, RefreshResult, RefreshRows
from applier.refresh.method.refresh_planner import is_long_refresh
from applier.refresh.method.strategy import RefreshMethod, RefreshReason
from applier.sinks.delta import ComputedDelta, MemoryDelta, StagedDelta
from applier.sinks.lease import Lease
from applier.sinks.postgres.full_diff import FullResult
from applier.sinks.postgres.progressive import EarlyParts
from applier.sinks.staging.staging import Staging
from applier.state.store import StateStore
from applier.unexpected import to_trickle_error
from shared_schema.errors import TrickleError
from shared_schema.lsn import ORIGIN, LsnRange

RowsLease = Lease[RefreshRows] | None
"""The rows of a refresh; None when nothing changed."""


@dataclass
class Computer:
    """Computes refreshes: short ones side by side inside of a tick, long ones beside the ticks."""

    spark: SparkSession
    traces: Traces
    states: StateStore
    workers: WorkerPool
    long_refreshes: LongRefreshes
    in_postgres: FullInPostgres
    open_early_parts: Callable[[], EarlyParts]
    """Opens a session that applies the parts of progressive stream tables while the next ones are computed."""
    staging: Staging | None = None
    """Where deltas go that are too large for the driver."""
    _inputs: dict[LsnRange, TraceInputs] = field(default_factory=dict)
    """The inputs of the current tick: stream tables that read the same relations share their frames."""
    _inputs_lock: Lock = field(default_factory=Lock)

    # -- the refreshes of a tick ----------------------------------------------------------------------------------

    def find_finished(self) -> list[Refresh]:
        """Return the long refreshes of earlier ticks that have finished."""
        return self.long_refreshes.find_finished()

    def take_finished(self, refreshes: Sequence[Refresh]) -> list[RefreshResult]:
        """Return the results of these."""
        return self.long_refreshes.take_finished(refreshes)

    def is_running(self, table_id: int) -> bool:
        """Whether a long refresh of the stream table is running or waits to be written."""
        return self.long_refreshes.is_running(table_id)

    def compute(self, refreshes: Sequence[Refresh]) -> list[RefreshResult]:
        """Start the long refreshes in the background; compute the others in parallel and return their results.

        Most of a small query's time is planning, on one core. A refresh that turns out to be long, because few rows
        give many, continues in the background.
        """
        self._close_inputs()
        for refresh in refreshes:
            if is_long_refresh(refresh):
                self._start_long(refresh)
        futures = [self.workers.submit(partial(self._compute, r)) for r in refreshes if not is_long_refresh(r)]
        with ExitStack() as on_failure:
            for future in futures:
                on_failure.callback(_abandon, future)
            results = [future.result() for future in futures]
            on_failure.pop_all()
        return [result for result in results if not self._continue_beside(result)]

    def _close_inputs(self) -> None:
        for inputs in self._inputs.values():
            inputs.__exit__()
        self._inputs.clear()

    def _start_long(self, refresh: Refresh) -> None:
        if refresh.strategy.method is RefreshMethod.IN_POSTGRES:
            self.long_refreshes.start(refresh, partial(_measure, refresh, partial(self._compute_in_postgres, refresh)))
            return
        inputs = self.traces.through(_input_range(refresh))
        # Now, between two checkpoints: the next one may move what it reads.
        inputs.take(refresh.table.sources)
        self.long_refreshes.start(refresh, partial(self._compute_long, refresh, inputs))

    def _continue_beside(self, result: RefreshResult) -> bool:
        """Let a refresh whose rows are still being staged continue in the background; return whether it does."""
        if not isinstance(result.outcome, Lease):
            return False
        match result.outcome.value:
            case StagedDelta() | FullResult(is_staged=True):
                wait = partial(self._wait_for_parts, result.refresh, result.outcome)
                go_on = partial(_measure, result.refresh, wait, first=result)
                self.long_refreshes.start(result.refresh, go_on, rows=result.outcome)
                return True
            case _:
                return False

    def _compute(self, refresh: Refresh) -> RefreshResult:
        lsn_range = _input_range(refresh)
        with self._inputs_lock:
            if lsn_range not in self._inputs:
                self._inputs[lsn_range] = self.traces.through(lsn_range)
            inputs = self._inputs[lsn_range]
        return _measure(refresh, partial(self._compute_in_spark, refresh, inputs))

    def _compute_long(self, refresh: Refresh, inputs: TraceInputs) -> RefreshResult:
        with inputs:
            result = _measure(refresh, partial(self._compute_in_spark, refresh, inputs))
            if not isinstance(rows := result.outcome, Lease) or isinstance(rows.value, MemoryDelta):
                return result
            return _measure(refresh, partial(self._wait_for_parts, refresh, rows), first=result)

    def _compute_in_postgres(self, refresh: Refresh) -> RowsLease:
        return self.in_postgres.run(refresh.table, refresh.lsn_range.lower).lease()

    def _wait_for_parts(self, refresh: Refresh, rows: Lease[RefreshRows]) -> Lease[RefreshRows]:
        """Wait for all parts; parts of a progressive stream table are applied while the next ones are computed, unless
        it may not hold the rows that they delete.

        Takes the lease over: returns it, or closes it when that fails.
        """
        with ExitStack() as on_failure:
            staged = on_failure.enter_context(rows)
            early_parts = self.open_early_parts()
            try:
                match staged:
                    case StagedDelta():
                        if not refresh.row.has_skipped_changes:
                            early_parts.apply(refresh.table, staged)
                        staged.wait_for_all()
                    case FullResult():
                        staged.wait_for_all()
                    case MemoryDelta():
                        pass
            finally:
                early_parts.close()
            on_failure.pop_all()
        return rows

    def _compute_in_spark(self, refresh: Refresh, inputs: TraceInputs) -> RowsLease:
        try:
            return self._compute_rows(refresh, inputs)
        except TrickleError:
            raise
        except Exception:
            # Nobody knows how far it came: the state is computed again from the traces.
            self.states.forget(refresh.table.id)
            raise

    def _compute_rows(self, refresh: Refresh, inputs: TraceInputs) -> RowsLease:
        table, strategy, lsn_range = refresh.table, refresh.strategy, refresh.lsn_range
        if refresh.row.reinitializes:
            self.states.forget(table.id)
        if strategy.reason is RefreshReason.REPAIR:
            # The other sinks hold the rows at the range's lower end: they need the delta, PostgreSQL the full result.
            change = compute(self.spark, table, inputs, staging=self.staging)
            with nullcontext() if change is None else change.lease():
                rows = compute_full(self.spark, table, inputs, self.staging)
                empty = MemoryDelta(lsn_range, rows.schema.empty_table())
                return FullResult(lsn_range, rows, change or empty).lease()
        if strategy.method is RefreshMethod.FULL and lsn_range.lower:
            return FullResult(lsn_range, compute_full(self.spark, table, inputs, self.staging)).lease()
        if strategy.method is RefreshMethod.NO_DATA:
            self.states.unchanged(table, lsn_range)
            return None
        delta = compute(self.spark, table, inputs, self.states, self.staging)
        return None if delta is None else delta.lease()

    def forget(self, table_id: int) -> None:
        """Forget the state of a stream table that was dropped or has a new query."""
        self.states.forget(table_id)

    # -- outside of refreshes -------------------------------------------------------------------------------------

    def compute_full(self, table: StreamTable, lsn_range: LsnRange) -> Lease[RefreshRows]:
        """Compute everything the stream table should hold at the upper end; or the difference, where PostgreSQL runs
        the query."""
        if isinstance(table.plan, PostgresQuery):
            return self.in_postgres.run(table, lsn_range.lower).lease()
        # From ORIGIN: the columns that it reads now may not have been known at its frontier.
        with self.traces.through(LsnRange(ORIGIN, lsn_range.upper)) as inputs, ExitStack() as on_failure:
            lease = FullResult(lsn_range, compute_full(self.spark, table, inputs, self.staging)).lease()
            on_failure.enter_context(lease).wait_for_all()
            on_failure.pop_all()
            return lease

    def can_recompute(self, table: StreamTable, lsn_range: LsnRange) -> bool:
        """Whether the traces still hold the sources at both ends of a past range."""
        is_writable = (
            not isinstance(table.plan, StreamPlan)
            or not table.plan.only_small_deltas
            or not lsn_range.lower
            or self.traces.volume(table.sources, lsn_range) <= SMALL_RANGE_ROWS
        )
        return self.traces.holds_ends(table.sources, lsn_range) and is_writable

    def recompute(self, table: StreamTable, lsn_range: LsnRange) -> ComputedDelta | None:
        """Compute the delta over a past range, without the state of the stream table."""
        with self.traces.through(lsn_range) as inputs:
            return compute(self.spark, table, inputs, staging=self.staging)

    def result_schema(self, table: StreamTable, lsn_range: LsnRange) -> pa.Schema:
        """Return the Arrow schema of the rows as Spark computes them; the traces need not hold the range any more."""
        held = max(lsn_range.upper, self.traces.earliest(table.sources))
        with self.traces.through(LsnRange(ORIGIN, held)) as inputs:
            return result_schema(self.spark, table, inputs)


def _abandon(future: Future[RefreshResult]) -> None:
    """Close the result of a refresh, now or later: nobody will write it, because another one of its tick failed."""
    if not future.cancel():
        future.add_done_callback(_close_result)


def _close_result(future: Future[RefreshResult]) -> None:
    if future.exception() is None:
        future.result().close()


def _measure(refresh: Refresh, run: Callable[[], RowsLease], *, first: RefreshResult | None = None) -> RefreshResult:
    """Compute the outcome of a refresh, with its time and that of its `first` part; any error is an outcome too: no
    other refresh is lost."""
    started, began = datetime.now(UTC), time.monotonic()
    outcome: RowsLease | TrickleError
    try:
        outcome = run()
    except Exception as error:
        outcome = to_trickle_error(refresh.table, error)
    took = time.monotonic() - began
    if refresh.strategy.method is not RefreshMethod.NO_DATA:
        metrics.COMPUTE_SECONDS.observe(took)
    if first is not None:
        return RefreshResult(refresh, outcome, first.started, first.compute_ms + took * 1000)
    return RefreshResult(refresh, outcome, started, took * 1000)


def _input_range(refresh: Refresh) -> LsnRange:
    """Return the LSN range of the inputs; for a FULL refresh the traces may no longer hold the lower end."""
    is_full = refresh.strategy.method is RefreshMethod.FULL and refresh.strategy.reason is not RefreshReason.REPAIR
    return LsnRange(ORIGIN, refresh.lsn_range.upper) if is_full else refresh.lsn_range
