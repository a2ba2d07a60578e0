"""New queries for existing stream tables in; the same stream tables with the rows of the new queries out.

With the same columns: the new query is planned on trial and evaluated, and only rows that differ are written, in one
transaction. Its readers are planned over its query, so all of them change to the new query together.

With other columns: a new stream table is built while the old one is maintained, without rows for the other sinks. It
replaces the old one when both have the same frontier. The sinks then start again with a full copy under that name.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import psycopg

from applier.catalog.history import RefreshExecution
from applier.catalog.stream_tables import Status, StreamTableRow
from applier.errors import Superseded, TargetError, TargetLocked
from applier.plan.nodes import StreamPlan
from applier.plan.stream_table import StreamTable
from applier.refresh.compute import compute_full
from applier.refresh.engine import Engine
from applier.refresh.strategy import RefreshMethod, RefreshReason
from applier.sinks.postgres.full_diff import FullResult
from applier.sinks.staging.staged_delta import Delta
from shared_schema.errors import TrickleError
from shared_schema.lsn import ORIGIN, Lsn, LsnRange
from shared_schema.table_schema import TableId

log = logging.getLogger(__name__)

SERVED = (Status.ACTIVE, Status.INITIALIZING)

Trial = Callable[[int, frozenset[int]], dict[int, tuple[StreamTableRow, StreamTable]]]
"""The id of the altered stream table and the ids to plan in; their rows and plans under the new query out."""


@dataclass(frozen=True)
class AlterStreamTables:
    """Carries out the requests of `alter_stream_table`, after the intake of a tick and before its refreshes."""

    trial: Trial
    save: Callable[[int, TableId, StreamPlan], None]
    """Stores the facts of a plan in the catalog."""

    def run(self, engine: Engine, rows: list[StreamTableRow], frontier: Lsn) -> None:
        """Carry out each alteration that can be done at this frontier; the others wait, with the old query in use."""
        for row in rows:
            try:
                if row.altered and row.state is not Status.PAUSED:
                    self._adopt(engine, rows, row, frontier)
                elif row.replaces is not None:
                    self._exchange(engine, rows, row)
            except (psycopg.errors.LockNotAvailable, TargetLocked, Superseded) as error:
                log.info("alteration waits", extra={"table": str(row.table), "error": str(error).splitlines()[0]})
            except TrickleError as error:
                if error.retryable:
                    raise
                log.warning("alteration refused", extra={"table": str(row.table), "error": error.problem})
                engine.catalog.alterations.refuse(row.pgt_id, error)

    def _adopt(self, engine: Engine, rows: list[StreamTableRow], row: StreamTableRow, frontier: Lsn) -> None:
        readers = engine.catalog.stream_tables.readers(row.pgt_relid)
        group = [row, *(other for other in rows if other.pgt_id in readers)]
        if any(other.state not in SERVED for other in group[1:]):
            return
        if any(other.lsn >= frontier for other in group):
            # The log must advance first: one frontier stands for one state of the rows.
            engine.catalog.frontiers.wake()
            return
        planned = self.trial(row.pgt_id, frozenset(other.pgt_id for other in group))
        if planned.keys() != {other.pgt_id for other in group}:
            return
        # As for an empty stream table: the old rows need not be rows of the new query.
        if not all(
            [engine.stream_tables.is_ready(replace(r, frontier=None), t, frontier) for r, t in planned.values()]
        ):
            return
        changes = [_compute_change(engine, other, planned[other.pgt_id][1], frontier) for other in group if other.lsn]
        try:
            with engine.sinks.postgres.adopt_query(row.pgt_id, planned[row.pgt_id][0].defining_query):
                written = [_write_change(engine, change) for change in changes]
        except BaseException:
            for change in changes:
                change.rows.release(all_holders=True)
            # The commit may have arrived: the catalog and the sinks know the present state.
            for other in group:
                engine.forget(other.pgt_id)
            raise
        for change, (table, delta) in zip(changes, written, strict=True):
            engine.sinks.hand_to_sinks(table, delta, release=delta is not change.rows)
            change.rows.release()
        for adopted, table in planned.values():
            engine.state_store.forget(table.id)
            engine.stream_tables.adopt(adopted, table)
            if isinstance(table.plan, StreamPlan):
                self.save(table.id, table.table, table.plan)
            log.info("stream table has a new query", extra={"table": str(table), "pgt_id": table.id})

    @staticmethod
    def _exchange(engine: Engine, rows: list[StreamTableRow], row: StreamTableRow) -> None:
        old = next((other for other in rows if other.pgt_id == row.replaces), None)
        if row.state is Status.SUSPENDED:
            raise TargetError(f"the new query cannot be used: {row.error}", hint=row.hint or "")
        if old is None or row.state is not Status.ACTIVE or row.lsn < old.lsn:
            return
        try:
            engine.catalog.alterations.exchange(row.pgt_id)
        except psycopg.errors.DependentObjectsStillExist as error:
            raise TargetError(
                f"{old.table} cannot be replaced: {error.diag.message_detail}",
                hint="drop the objects that depend on it",
            ) from error
        engine.forget(row.pgt_id)
        log.info("stream table has new columns", extra={"table": str(old.table), "pgt_id": row.pgt_id})


@dataclass(frozen=True)
class _Change:
    """The rows that bring one stream table from its old query to the new one."""

    old: StreamTable
    new: StreamTable
    rows: FullResult | Delta
    as_of: datetime
    execution: RefreshExecution


def _compute_change(engine: Engine, row: StreamTableRow, new: StreamTable, frontier: Lsn) -> _Change:
    """Compute the rows of the new query; first its sinks catch up with PostgreSQL, while the old query is known."""
    old = engine.planned.get(row.pgt_id) or engine.stream_tables.plan(row)
    engine.catch_up(old, row.lsn)
    started, began = datetime.now(UTC), time.monotonic()
    method = RefreshMethod.FULL if isinstance(new.plan, StreamPlan) else RefreshMethod.IN_POSTGRES
    rows: FullResult | Delta
    if method is RefreshMethod.IN_POSTGRES:
        rows = engine.run_in_postgres(new, row.lsn)
    else:
        # From ORIGIN: the columns that it reads now may not have been known at its frontier.
        with engine.traces.through(LsnRange(ORIGIN, frontier)) as inputs:
            result = FullResult(LsnRange(row.lsn, frontier), compute_full(engine.spark, new, inputs, engine.staging))
            rows = result.wait_for_all()
    took = (time.monotonic() - began) * 1000
    reason = RefreshReason.DEFINITION_CHANGED.value
    return _Change(old, new, rows, started, RefreshExecution(method.value, reason, "", "MANUAL", started, 0, took))


def _write_change(engine: Engine, change: _Change) -> tuple[StreamTable, Delta]:
    if change.old.key == change.new.key:
        return change.new, engine.sinks.replace(change.new, change.rows, change.as_of, change.execution)
    # Two rows of one query may have the same value in the key of the other.
    keyless = replace(change.new, by_count=True)
    with engine.sinks.postgres.replace_key(change.old, change.new):
        return keyless, engine.sinks.replace(keyless, change.rows, change.as_of, change.execution)
