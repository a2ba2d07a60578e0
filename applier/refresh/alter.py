"""New queries for stream tables that are there: planned on trial, then put in place of the old ones in one transaction.

The same columns: what the new query returns is written over what the old one left, rows that differ only; whoever reads
the stream table is planned over its query, so all of them change to the new one together.

Other columns: a stream table of its own is built beside the old one, kept from the sinks, and takes the old one's place
when both stand at one frontier. To the sinks it is then one of that name that begins anew.
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
"""The stream table with a new query, and those to plan: each as it would be then. Nothing stays of it."""


@dataclass(frozen=True)
class AlterStreamTables:
    """Carries out what `alter_stream_table` asked for, between taking in and computing."""

    trial: Trial
    save: Callable[[int, TableId, StreamPlan], None]
    """Keeps the facts of a plan."""

    def run(self, engine: Engine, rows: list[StreamTableRow], frontier: Lsn) -> None:
        """Each alteration that can be done at this frontier; for the others the old query is kept meanwhile."""
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
            # The log must move on: a frontier names one content.
            engine.catalog.frontiers.wake()
            return
        planned = self.trial(row.pgt_id, frozenset(other.pgt_id for other in group))
        if planned.keys() != {other.pgt_id for other in group}:
            return
        # As if nothing was there yet: the old rows need not be explained by the new query.
        if not all([engine.stream_tables.ready(replace(r, frontier=None), t, frontier) for r, t in planned.values()]):
            return
        changes = [_change(engine, other, planned[other.pgt_id][1], frontier) for other in group if other.lsn]
        try:
            with engine.sinks.postgres.adopting(row.pgt_id, planned[row.pgt_id][0].defining_query):
                written = [_put_in_place(engine, change) for change in changes]
        except BaseException:
            for change in changes:
                change.rows.release(all_holders=True)
            # The commit may have arrived: what they are now is in the catalog and in the sinks.
            for other in group:
                engine.forget(other.pgt_id)
            raise
        for change, (table, delta) in zip(changes, written, strict=True):
            engine.sinks.written(table, delta, found=delta is not change.rows)
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
            raise TargetError(f"the new query is refused: {row.error}", hint=row.hint or "")
        if old is None or row.state is not Status.ACTIVE or row.lsn < old.lsn:
            return
        try:
            engine.catalog.alterations.exchange(row.pgt_id)
        except psycopg.errors.DependentObjectsStillExist as error:
            raise TargetError(
                f"{old.table} cannot be exchanged: {error.diag.message_detail}", hint="drop what is built upon it"
            ) from error
        engine.forget(row.pgt_id)
        log.info("stream table has new columns", extra={"table": str(old.table), "pgt_id": row.pgt_id})


@dataclass(frozen=True)
class _Change:
    """One stream table from the rows of one query to those of another."""

    old: StreamTable
    new: StreamTable
    rows: FullResult | Delta
    as_of: datetime
    executed: RefreshExecution


def _change(engine: Engine, row: StreamTableRow, new: StreamTable, frontier: Lsn) -> _Change:
    """What it should hold; its sinks are brought to where PostgreSQL stands while the old query is known."""
    old = engine.defined.get(row.pgt_id) or engine.stream_tables.define(row)
    engine.catch_up(old, row.lsn)
    started, began = datetime.now(UTC), time.monotonic()
    way = RefreshMethod.FULL if isinstance(new.plan, StreamPlan) else RefreshMethod.IN_POSTGRES
    rows: FullResult | Delta
    if way is RefreshMethod.IN_POSTGRES:
        rows = engine.run_in_postgres(new, row.lsn)
    else:
        # From the beginning: what it reads now may not have been known at its frontier.
        with engine.traces.through(LsnRange(ORIGIN, frontier)) as inputs:
            contents = FullResult(LsnRange(row.lsn, frontier), compute_full(engine.spark, new, inputs, engine.staging))
            rows = contents.awaited()
    took = (time.monotonic() - began) * 1000
    why = RefreshReason.DEFINITION_CHANGED.value
    return _Change(old, new, rows, started, RefreshExecution(way.value, why, "", "MANUAL", started, 0, took))


def _put_in_place(engine: Engine, change: _Change) -> tuple[StreamTable, Delta]:
    if change.old.key == change.new.key:
        return change.new, engine.sinks.replace(change.new, change.rows, change.as_of, change.executed)
    # Rows of the one query may share a key of the other.
    counted = replace(change.new, by_count=True)
    with engine.sinks.postgres.rekeyed(change.old, change.new):
        return counted, engine.sinks.replace(counted, change.rows, change.as_of, change.executed)
