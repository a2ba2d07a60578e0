"""New queries for existing stream tables in; the same stream tables with the rows of the new queries out.

With the same columns: the new query is planned on trial and evaluated, and only rows that differ are written, in one
transaction. Its readers are planned over its query, so all of them change to the new query together.

With further columns after the same ones: likewise, and the table gets the columns in that transaction.

With other columns: a new stream table is built while the old one is maintained, without rows for the other sinks. It
replaces the old one when both have the same frontier. The sinks then start again with a full copy under that name.
"""

from __future__ import annotations

import logging
import time
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from types import TracebackType
from typing import Self

import psycopg

from applier.catalog.alterations import PendingAlterations
from applier.catalog.catalog import Catalog
from applier.catalog.dependencies import DependencyStore, ids_of
from applier.catalog.history import RefreshExecution
from applier.catalog.stream_tables import Status, StreamTableRow
from applier.errors import SourceBusy, Superseded, TargetError, TargetLocked
from applier.plan.nodes import StreamPlan
from applier.plan.stream_table import PostgresQuery, StreamTable
from applier.refresh.computing.computer import Computer
from applier.refresh.holding.fuses import Fuses
from applier.refresh.holding.skip_changes import skip_changes
from applier.refresh.method.refresh import RefreshRows
from applier.refresh.method.strategy import RefreshMethod
from applier.refresh.planning.plan_stream_table import StreamTablePlanner
from applier.refresh.stream_tables import StreamTables
from applier.refresh.vouching.captured_sources import CapturedSources
from applier.refresh.vouching.evolution import Transparent, judge
from applier.refresh.writing.writer import RefreshWriter
from applier.sinks.delta import ComputedDelta
from applier.sinks.lease import Lease
from applier.sinks.postgres.key_index import replace_key
from applier.sinks.postgres.transaction import WriteSession
from applier.unexpected import to_own_error
from shared_schema.errors import TrickleError
from shared_schema.lsn import ORIGIN, Lsn, LsnRange

log = logging.getLogger(__name__)

SERVED = (Status.ACTIVE, Status.INITIALIZING)


@dataclass(frozen=True)
class Alterations:
    """Carries out the requests of `alter_stream_table`, after the intake of a tick and before its refreshes."""

    catalog: Catalog
    session: WriteSession
    """The session of `writer`: new query, rows and frontiers are one transaction."""
    planner: StreamTablePlanner
    tables: StreamTables
    computer: Computer
    writer: RefreshWriter
    sources: CapturedSources
    fuses: Fuses

    def carry_out(self, frontier: Lsn, *, waits: bool = False) -> list[StreamTableRow]:
        """Carry out each alteration that can be done at this frontier; the others wait, with the old query in use.

        None is carried out if it `waits`: then it is not known whether the catalog is that of the frontier. Returns all
        stream tables as they are stored afterwards.
        """
        if self.planner.newly_planned and self.catalog.alterations.evolve(self.planner.newly_planned):
            log.info("sources have new columns, stream tables evolve")
        self.planner.newly_planned.clear()
        rows = self.catalog.stream_tables.all()
        # Before any frontier moves: where the furthest reader is decides where a new gate holds all of them.
        self.tables.holds.look(rows, frontier)
        if any(row.fuse_skips_until for row in rows):
            self._skip_changes(rows)
            rows = self.catalog.stream_tables.all()
        if waits or not any(row.altered or row.replaces is not None for row in rows):
            return rows
        stopped = {pgt_id for row in rows for pgt_id in self._try_one(rows, row, frontier)}
        # A stream table that is built to replace another one is refreshed now, whatever its schedule; and so is one
        # whose fuse stops the new query: it is told at once.
        return [
            replace(row, refresh_requested=True) if row.replaces is not None or row.pgt_id in stopped else row
            for row in self.catalog.stream_tables.all()
        ]

    def _skip_changes(self, rows: list[StreamTableRow]) -> None:
        """Move the frontiers of stream tables whose changes are to be skipped, before anything is planned from them."""
        for row in rows:
            if row.fuse_skips_until and row.lsn:
                skip_changes(self.session, row)
                # What was kept for the next range, and what waits for the other sinks, ends at the old frontier.
                self.computer.forget(row.pgt_id)
                self.writer.forget(row.pgt_id)

    def _try_one(self, rows: list[StreamTableRow], row: StreamTableRow, frontier: Lsn) -> list[int]:
        """Carry out one alteration if it is possible now; return the stream tables whose fuse does not let it."""
        try:
            if row.altered and row.state is not Status.PAUSED:
                readers = self.catalog.stream_tables.readers(row.pgt_relid)
                group = [row, *(other for other in rows if other.pgt_id in readers)]
                if stopped := self._find_stopped(group, frontier):
                    return stopped
                # A suspended reader is computed as a whole when it is resumed, or at once if it was suspended with this
                # one.
                self._adopt([row, *(o for o in group[1:] if o.state is not Status.SUSPENDED)], frontier)
            elif row.replaces is not None:
                old = next((other for other in rows if other.pgt_id == row.replaces), None)
                if stopped := self._find_stopped([old] if old is not None else [], row.lsn):
                    return stopped
                self._exchange(old, row)
        except (psycopg.errors.LockNotAvailable, SourceBusy, TargetLocked, Superseded) as error:
            log.info("alteration waits", extra={"table": str(row.table), "error": str(error).splitlines()[0]})
        except Exception as error:
            own = to_own_error(row.table, error)
            log.warning("alteration refused", extra={"table": str(row.table), "error": own.log_text})
            self.catalog.alterations.refuse(row.pgt_id, own)
        return []

    def _find_stopped(self, group: list[StreamTableRow], upper: Lsn) -> list[int]:
        """Return whose fuse is blown, or would be by its present query: a new one computes the whole, with all changes
        up to `upper`."""
        now = datetime.now(UTC)
        return [row.pgt_id for row in group if row.is_fuse_blown or self._is_stopped(row, upper, now)]

    def _is_stopped(self, row: StreamTableRow, upper: Lsn, now: datetime) -> bool:
        if not (row.in_service and self.fuses.is_on(row) and ORIGIN < row.lsn < upper) or row.reinitializes:
            return False
        try:
            old = self.tables.planned.get(row.pgt_id) or self.tables.plans.plan(row)
        except SourceBusy:
            raise
        except TrickleError:
            # Only the new query can go on.
            return False
        return self.fuses.stops(row, old, upper, now)

    def _adopt(self, group: list[StreamTableRow], frontier: Lsn) -> None:
        row = group[0]
        if row.state is Status.SUSPENDED and row.pgt_id not in self.tables.planned:
            # Its old query may have no plan any more, or none that this process survives.
            self.catalog.alterations.adopt_and_repair(row.pgt_id)
            return
        if any(other.state not in SERVED for other in group[1:]):
            return
        if any(other.lsn >= frontier for other in group):
            # The log must advance first: one frontier stands for one state of the rows.
            self.catalog.frontiers.wake()
            return
        # Before anything is read: what is asked for from now on may not be in the new rows.
        request = self.catalog.alterations.last_request(row.pgt_id)
        planned = self.planner.trial(row.pgt_id, frozenset(other.pgt_id for other in group))
        if planned.keys() != {other.pgt_id for other in group}:
            return
        if not all(self.tables.holds.lets_pass(r, t, frontier) for r, t in planned.values()):
            # What is held stays as it is, also when its query does not.
            return
        # As for an empty stream table: the old rows need not be rows of the new query.
        is_ready = self.tables.readiness.is_ready
        if not all([is_ready(replace(r, frontier=None), t, frontier) for r, t in planned.values()]):
            return
        facts = [table.facts for _, table in planned.values() if table.facts is not None]
        for fact in facts:
            # What the new query reads may be known only from before it was captured.
            self.sources.add(fact)
        if not all([self.sources.are_current(fact, frontier) for fact in facts]):
            return
        if written := [other.pgt_id for other in group if self.writer.is_writing(other.pgt_id)]:
            # With the old query: nobody needs those rows any more.
            for pgt_id in written:
                self.writer.give_up(pgt_id)
            return
        # After the transaction has ended: only then other sessions see the tables of a staged difference.
        with ExitStack() as leases:
            run_by_postgres = [table for _, table in planned.values() if isinstance(table.plan, PostgresQuery)]
            begun = self._digest(run_by_postgres)
            changes = [
                leases.enter_context(self._compute_change(row, other, planned[other.pgt_id][1], frontier))
                for other in group
                if other.lsn
            ]
            self._check_unaltered(run_by_postgres, begun)
            adopt = PendingAlterations(self.session.database).adopt_query(
                row.pgt_id, planned[row.pgt_id][0].defining_query, request
            )
            self._write_changes(leases, adopt, [table for _, table in planned.values()], changes)
        for adopted, table in planned.values():
            self.computer.forget(table.id)
            self.tables.scheduler.forget(table.id)
            self.tables.plans.adopt(adopted, table)
            if isinstance(table.plan, StreamPlan):
                self.planner.save(table.id, table.table, table.plan)
            # Its readers may be written with * too.
            self.planner.newly_planned.add(table.id)
            log.info("stream table has a new query", extra={"table": str(table), "pgt_id": table.id})

    def _digest(self, tables: list[StreamTable]) -> str:
        objects = ids_of(table.facts for table in tables if table.facts is not None)
        return self.catalog.dependencies.digest(objects) if tables else ""

    def _check_unaltered(self, run_by_postgres: list[StreamTable], begun: str) -> None:
        """Raise Superseded when what the new queries read was altered since they were planned.

        PostgreSQL runs queries at a later position than the frontier, with the catalog of that moment.
        """
        for table in run_by_postgres:
            if (facts := table.facts) is not None:
                present = facts.of_now(self.catalog.dependencies.read(ids_of([facts])))
                if not isinstance(judge(facts, present, {}, table.table), Transparent):
                    raise Superseded("what the new query reads was altered meanwhile")
        if self._digest(run_by_postgres) != begun:
            raise Superseded("what the new query reads was altered meanwhile")

    def _compute_change(self, cause: StreamTableRow, row: StreamTableRow, new: StreamTable, frontier: Lsn) -> _Change:
        """Compute the rows of the new query; first its sinks catch up with PostgreSQL, while the old query is known.

        `cause` is the stream table that is altered: itself, or one that it reads.
        """
        old = self.tables.planned.get(row.pgt_id) or self.tables.plans.plan(row)
        self.writer.catch_up(row, old)
        if len(old.columns) != len(new.columns) and not self.writer.drain(row.pgt_id):
            raise Superseded("a sink has not received the rows with the old columns yet")
        started, began = datetime.now(UTC), time.monotonic()
        rows = self.computer.compute_full(new, LsnRange(row.lsn, frontier))
        took = (time.monotonic() - began) * 1000
        method = RefreshMethod.FULL if isinstance(new.plan, StreamPlan) else RefreshMethod.IN_POSTGRES
        execution = RefreshExecution(
            method.value, cause.alter_reason, cause.alter_detail, cause.alter_initiated_by, started, 0, took
        )
        return _Change(row, old, new, rows, started, execution)

    def _write_changes(
        self,
        leases: ExitStack,
        adopt: AbstractContextManager[None],
        tables: list[StreamTable],
        changes: list[_Change],
    ) -> None:
        """Adopt the new query and write the rows of all changes in one transaction; then hand the deltas on.

        What the new plans rest on is part of it: readers of the altered stream table may read other tables now.
        """
        store = DependencyStore(self.session.database)
        try:
            with adopt:
                written = [(change.row, *self._write_change(leases, change)) for change in changes]
                for table in tables:
                    if table.facts is not None:
                        store.store(table.id, table.facts)
        except BaseException:
            # The commit may have arrived: the catalog and the sinks know the present state.
            for table in tables:
                self._forget(table.id)
            raise
        for row, table, delta in written:
            self.writer.hand_on(row, table, delta)

    def _write_change(self, leases: ExitStack, change: _Change) -> tuple[StreamTable, ComputedDelta]:
        rows = change.rows.value
        if change.old.key == change.new.key:
            delta = self.writer.results.replace(change.new, rows, change.as_of, change.execution, new_plan=True)
            leases.enter_context(delta.lease())
            return change.new, delta
        # Two rows of one query may have the same value in the key of the other.
        keyless = replace(change.new, by_count=True)
        with replace_key(self.session, change.old, change.new):
            delta = self.writer.results.replace(keyless, rows, change.as_of, change.execution, new_plan=True)
            leases.enter_context(delta.lease())
        return keyless, delta

    def _exchange(self, old: StreamTableRow | None, row: StreamTableRow) -> None:
        if any(self.writer.is_writing(other.pgt_id) for other in (row, old) if other is not None):
            return
        if row.state is Status.SUSPENDED:
            raise TargetError(f"the new query cannot be used: {row.error}", hint=row.hint or "")
        if old is None or row.state is not Status.ACTIVE or row.lsn < old.lsn:
            return
        try:
            self.catalog.alterations.exchange(row.pgt_id)
        except psycopg.errors.DependentObjectsStillExist as error:
            raise TargetError(
                f"{old.table} cannot be replaced: {error.diag.message_detail}",
                hint="drop the objects that depend on it",
            ) from error
        self._forget(row.pgt_id)
        log.info("stream table has new columns", extra={"table": str(old.table), "pgt_id": row.pgt_id})

    def _forget(self, pgt_id: int) -> None:
        self.tables.forget(pgt_id)
        self.writer.forget(pgt_id)
        self.computer.forget(pgt_id)


@dataclass(frozen=True)
class _Change:
    """The rows that bring one stream table from its old query to the new one. It is a context that ends their lease."""

    row: StreamTableRow
    old: StreamTable
    new: StreamTable
    rows: Lease[RefreshRows]
    as_of: datetime
    execution: RefreshExecution

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.rows.close()
