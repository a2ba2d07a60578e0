"""One computed refresh in; its rows and frontier, committed in PostgreSQL, and the delta for the other sinks, out."""

from __future__ import annotations

import dataclasses
import time
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime

from applier.catalog.history import RefreshExecution
from applier.errors import RefreshFailed, SinkAhead
from applier.plan.stream_table import PostgresQuery, StreamTable
from applier.refresh.method.refresh import RefreshResult, RefreshRows
from applier.refresh.method.strategy import RefreshMethod
from applier.sinks.delta import ComputedDelta, MemoryDelta
from applier.sinks.downstream import Downstream
from applier.sinks.lease import Lease
from applier.sinks.postgres.committed_rows import CommittedRows
from applier.sinks.postgres.full_diff import FullResult, result_fields
from applier.sinks.postgres.key_index import fit_key
from applier.sinks.postgres.sink import PostgresSink
from shared_schema.lsn import ORIGIN, Lsn, LsnRange


@dataclass(frozen=True)
class WrittenRows:
    """The delta that the other sinks need, and the stream table by whose key they have to apply it."""

    table: StreamTable
    delta: Lease[ComputedDelta]


@dataclass(frozen=True)
class ResultWriter:
    """Writes into PostgreSQL, in one session; of the other sinks it reads what they have and what they wait for."""

    postgres: PostgresSink
    downstream: Downstream
    committed: CommittedRows

    def write(self, result: RefreshResult) -> WrittenRows:
        """Commit the rows and the frontier of one refresh."""
        started = time.monotonic()
        if result.refresh.row.reinitializes and result.refresh.row.lsn:
            written = self._write_repair(result)
        else:
            written = WrittenRows(result.refresh.table, self._write_rows(result))
        result.write_time.ms = (time.monotonic() - started) * 1000
        return written

    def _write_rows(self, result: RefreshResult) -> Lease[ComputedDelta]:
        table, as_of, rows = result.refresh.table, result.refresh.as_of, _mark_append_only(result)
        if isinstance(rows, FullResult) and rows.change is not None:
            # The difference that PostgreSQL finds is to rows that no other sink has.
            self.postgres.replace(table, rows, as_of, result.execution).lease().close()
            return rows.change.lease()
        if isinstance(rows, FullResult) or (
            result.refresh.strategy.method is RefreshMethod.IN_POSTGRES and not rows.is_fill
        ):
            return self.replace(table, rows, as_of, result.execution).lease()
        if result.refresh.row.has_skipped_changes:
            return self.replace(table, rows, as_of, result.execution, by_key=True).lease()
        self.postgres.apply(table, rows, as_of, result.execution)
        return rows.lease()

    def _write_repair(self, result: RefreshResult) -> WrittenRows:
        """Make PostgreSQL hold the full result. The rows before may have had another key.

        Where the other sinks may hold other rows than PostgreSQL, they are given all rows.
        """
        refresh, rows = result.refresh, result.rows
        if refresh.row.sinks_differ:
            # Before its position is read: what is being published of it would not end soon.
            self.downstream.forget(refresh.table.id)
            self._check_sinks_behind(refresh.table, rows.lsn_range.upper)
        held: Lease[ComputedDelta] | None = None
        with ExitStack() as on_failure:
            with fit_key(self.postgres.session, refresh.table) as table:
                if refresh.row.sinks_differ:
                    by_count = dataclasses.replace(table, by_count=True)
                    unread = self.postgres.replace(by_count, rows, refresh.as_of, result.execution, refills=True)
                    unread.lease().close()
                else:
                    held = self.replace(table, rows, refresh.as_of, result.execution, new_plan=True).lease()
                    on_failure.enter_context(held)
            on_failure.pop_all()
        if held is not None:
            return WrittenRows(table, held)
        table, everything = refresh.table, LsnRange(ORIGIN, rows.lsn_range.upper)
        return WrittenRows(table, self.committed.target_rows(table, everything, result_fields(table, rows)).lease())

    def _check_sinks_behind(self, table: StreamTable, frontier: Lsn) -> None:
        """Raise SinkAhead when a sink has a later frontier: it would take these rows for old ones."""
        frontiers = self.downstream.await_frontiers(table)
        if frontiers is None:
            raise RefreshFailed(
                f"the topic of {table} has to begin again, and the broker does not say where it ends",
                hint="see the log of the applier; it is tried again",
            )
        for sink, durable in frontiers.items():
            if durable >= frontier:
                raise SinkAhead(
                    f"the {sink} sink of {table} stands at {durable}, and PostgreSQL's log at {frontier}",
                    hint="stop pg-trickle-cdc and run `pg-trickle-cdc resync`, which moves the log",
                )

    def replace(
        self,
        table: StreamTable,
        rows: RefreshRows,
        as_of: datetime,
        execution: RefreshExecution,
        *,
        new_plan: bool = False,
        by_key: bool = False,
    ) -> ComputedDelta:
        """Write only the rows that differ; the outbox holds the difference until all sinks have it.

        A full result cannot be computed again from an LSN range, so nothing else would remember it. Nor can anything
        before a `new_plan`, nor, `by_key`, the difference to rows that are not those of the query.
        """
        durable = self.downstream.frontiers(table)
        acknowledged = min(durable.values(), default=ORIGIN) if durable else None
        # The outbox has every delta that PostgreSQL computed.
        unfollowed = self.downstream.followed.unfollowed_sinks(table.id)
        has_gap = not isinstance(table.plan, PostgresQuery) and bool(unfollowed)
        with self.downstream.queued(table.id) as queued:
            return self.postgres.replace(
                table,
                rows,
                as_of,
                execution,
                also_enqueue=queued,
                acknowledged=acknowledged,
                has_gap=has_gap,
                new_plan=new_plan or by_key,
                by_key=by_key,
            )


def _mark_append_only(result: RefreshResult) -> RefreshRows:
    """Mark a delta without deletions for an append-only stream table: PostgreSQL need not look its rows up."""
    rows = result.rows
    if result.refresh.row.append_only and isinstance(rows, MemoryDelta):
        return dataclasses.replace(rows, appended=not rows.has_deletions)
    return rows
