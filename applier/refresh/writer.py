"""Computed refreshes in; committed rows in PostgreSQL first, then the same deltas on the topic and in Delta, out."""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime

from applier import metrics
from applier.catalog.catalog import Catalog
from applier.catalog.history import RefreshExecution
from applier.catalog.stream_tables import StreamTableRow
from applier.errors import GroupCommitRefused, Infrastructure, RefreshFailed, SinkAhead, TargetLocked
from applier.plan.stream_table import PostgresQuery, StreamTable
from applier.refresh.catch_up import CatchUp
from applier.refresh.refresh import RefreshResult, RefreshRows, group_by_range
from applier.refresh.strategy import RefreshMethod
from applier.sinks.commit_to_visible import POSTGRES, CommitToVisible
from applier.sinks.delta import ComputedDelta, MemoryDelta
from applier.sinks.downstream import Downstream
from applier.sinks.lease import Lease
from applier.sinks.postgres.full_diff import FullResult, result_fields
from applier.sinks.postgres.sink import PostgresSink
from applier.unexpected import to_own_error
from shared_schema.errors import TrickleError
from shared_schema.lsn import ORIGIN, Lsn, LsnRange

log = logging.getLogger(__name__)


@dataclass
class RefreshWriter:
    """Brings the rows of refreshes into every sink."""

    postgres: PostgresSink
    downstream: Downstream
    catch_up_sinks: CatchUp
    catalog: Catalog
    visible: CommitToVisible = field(default_factory=CommitToVisible)

    def catch_up(self, row: StreamTableRow, table: StreamTable) -> None:
        """Once after a start: give the other sinks what they missed up to PostgreSQL's frontier."""
        self.catch_up_sinks.run(row, table)

    def group_commit(self, changed: Sequence[RefreshResult], unchanged: Sequence[RefreshResult]) -> list[RefreshResult]:
        """Write the rows and frontiers of as many as possible in one transaction, and move all unchanged frontiers.

        Returns the refreshes that are committed. The others have to be written alone, which tells why one is rejected.
        """
        can_group = self.postgres.can_group_commit
        short = [
            result
            for result in changed
            if not result.refresh.row.reinitializes and can_group(result.refresh.table, result.rows)
        ]
        if len(short) + bool(unchanged) < 2 or not short:
            self._advance(unchanged)
            return [*unchanged]
        started = time.monotonic()
        try:
            written = self._commit_group(short, unchanged)
        except GroupCommitRefused as error:
            log.info("stream tables are written one by one", extra={"error": error.log_text})
            self._advance(unchanged)
            return [*unchanged]
        metrics.APPLY_SECONDS.observe(time.monotonic() - started)
        return [*written, *unchanged]

    def _commit_group(
        self, changed: Sequence[RefreshResult], unchanged: Sequence[RefreshResult]
    ) -> list[RefreshResult]:
        """Return the refreshes that PostgreSQL accepted; raise GroupCommitRefused when it accepted none."""
        written: list[tuple[RefreshResult, ComputedDelta]] = []
        with ExitStack() as leases:
            with self._forget_on_failure(result.refresh.table.id for result in changed), self.postgres.group_commit():
                for result in changed:
                    try:
                        written.append((result, leases.enter_context(self._write_postgres(result))))
                    except (Infrastructure, GroupCommitRefused, TargetLocked):
                        raise
                    except TrickleError:
                        continue
                    except Exception as error:
                        raise GroupCommitRefused(to_own_error(result.refresh.table, error).problem) from error
                for lsn_range, group in group_by_range(unchanged).items():
                    self.postgres.advance([d.refresh.table.id for d in group], lsn_range, group[0].refresh.as_of)
            for result, delta in written:
                self.hand_on(result.refresh.row, result.refresh.table, delta)
        for result, delta in written:
            self._note_written(result, delta)
        return [result for result, _ in written]

    def write_back(self, result: RefreshResult) -> None:
        """Commit the rows in PostgreSQL, then queue the delta for the other sinks."""
        started = time.monotonic()
        refresh = result.refresh
        with self._forget_on_failure([refresh.table.id]), ExitStack() as leases:
            if refresh.row.reinitializes and refresh.row.lsn:
                table, delta = self._write_repair(result, leases)
            else:
                table, delta = refresh.table, leases.enter_context(self._write_postgres(result))
            self.hand_on(refresh.row, table, delta)
        metrics.APPLY_SECONDS.observe(time.monotonic() - started)
        self._note_written(result, delta)

    def _write_postgres(self, result: RefreshResult) -> Lease[ComputedDelta]:
        """Write the rows into PostgreSQL; return the delta that the other sinks need."""
        table, as_of, rows = result.refresh.table, result.refresh.as_of, _mark_append_only(result)
        if isinstance(rows, FullResult) and rows.change is not None:
            # The difference that PostgreSQL finds is to rows that no other sink has.
            self.postgres.replace(table, rows, as_of, result.execution).lease().close()
            return rows.change.lease()
        if isinstance(rows, FullResult) or (
            result.refresh.strategy.method is RefreshMethod.IN_POSTGRES and not rows.is_fill
        ):
            return self.replace(table, rows, as_of, result.execution).lease()
        self.postgres.apply(table, rows, as_of, result.execution)
        return rows.lease()

    def _write_repair(self, result: RefreshResult, leases: ExitStack) -> tuple[StreamTable, ComputedDelta]:
        """Make PostgreSQL hold the full result. Return the delta for the other sinks, and the stream table by whose key
        they have to apply it: the rows before may have had another one.

        Where the other sinks may hold other rows than PostgreSQL, they are given all rows.
        """
        refresh, rows = result.refresh, result.rows
        if refresh.row.sinks_differ:
            # Before its position is read: what is being published of it would not end soon.
            self.downstream.forget(refresh.table.id)
            self._check_sinks_behind(refresh.table, rows.lsn_range.upper)
        with self.postgres.fit_key(refresh.table) as table:
            if not refresh.row.sinks_differ:
                delta = self.replace(table, rows, refresh.as_of, result.execution, new_plan=True)
                leases.enter_context(delta.lease())
                return table, delta
            by_count = dataclasses.replace(table, by_count=True)
            self.postgres.replace(by_count, rows, refresh.as_of, result.execution, refills=True).lease().close()
        table, everything = refresh.table, LsnRange(ORIGIN, rows.lsn_range.upper)
        committed = self.catch_up_sinks.committed
        held: Lease[ComputedDelta] = committed.target_rows(table, everything, result_fields(table, rows)).lease()
        return table, leases.enter_context(held)

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
    ) -> ComputedDelta:
        """Write only the rows that differ; the outbox holds the difference until all sinks have it.

        A full result cannot be computed again from an LSN range, so nothing else would remember it. Nor can anything
        before a `new_plan`.
        """
        durable = self.downstream.frontiers(table)
        acknowledged = min(durable.values(), default=ORIGIN) if durable else None
        # The outbox has every delta that PostgreSQL computed.
        has_gap = not isinstance(table.plan, PostgresQuery) and not self.downstream.follows(table.id)
        with self.downstream.queued(table.id) as queued:
            return self.postgres.replace(
                table,
                rows,
                as_of,
                execution,
                also_enqueue=queued,
                acknowledged=acknowledged,
                has_gap=has_gap,
                new_plan=new_plan,
            )

    def hand_on(self, row: StreamTableRow, table: StreamTable, delta: ComputedDelta) -> None:
        """Queue a delta that PostgreSQL has committed for the other sinks.

        Not of a stream table that is built to replace another one: until then only PostgreSQL receives its rows.
        """
        if row.replaces is not None:
            return
        if delta.is_fill:
            # All rows: whatever the sinks lack is among them.
            self.downstream.follow(table.id)
        self.downstream.add(table, delta)

    def publish(self) -> None:
        """Have all queued deltas published to the topics, on another thread."""
        self.downstream.wake()

    def drain(self, table_id: int) -> bool:
        """Bring everything that is queued for a stream table into the other sinks; return whether nothing is left."""
        return self.downstream.drain(table_id)

    def forget(self, table_id: int) -> None:
        """Drop what is queued for a stream table; its next refresh reads the frontiers of the sinks again."""
        self.downstream.forget(table_id)

    @contextmanager
    def _forget_on_failure(self, table_ids: Iterable[int]) -> Iterator[None]:
        """A commit that seems to fail may have arrived: then the next tick reads the frontiers of the sinks again."""
        try:
            yield
        except Infrastructure:
            for table_id in table_ids:
                self.forget(table_id)
            raise

    def _advance(self, unchanged: Sequence[RefreshResult]) -> None:
        """Move the frontiers of stream tables without changes, one statement per LSN range."""
        for lsn_range, group in group_by_range(unchanged).items():
            times = self.postgres.refresh_times(lsn_range.upper, group[0].refresh.as_of)
            self.catalog.frontiers.advance_unchanged(
                [d.refresh.table.id for d in group], lsn_range.lower, lsn_range.upper, times
            )

    def _note_written(self, result: RefreshResult, delta: ComputedDelta) -> None:
        row, table = result.refresh.row, result.refresh.table
        metrics.ROWS_OUT.labels(metrics.name_of(str(table))).inc(delta.count)
        self.visible.observe(POSTGRES, table, delta.lsn_range.lower)
        if row.append_only and delta.has_deletions:
            self._revert_append_only(row)
        extra = {"table": str(table), "frontier": str(delta.lsn_range.upper), "rows": delta.count}
        log.log(logging.INFO if delta.is_fill else logging.DEBUG, "stream table refreshed", extra=extra)

    def _revert_append_only(self, row: StreamTableRow) -> None:
        log.warning("rows were deleted from an append-only stream table", extra={"table": str(row.table)})
        self.catalog.stream_tables.revert_append_only(row.pgt_id)
        detail = "rows were deleted from it: it is no longer append-only"
        self.catalog.service.alert("append_only_reverted", pgt_id=row.pgt_id, detail=detail)


def _mark_append_only(result: RefreshResult) -> RefreshRows:
    """Mark a delta without deletions for an append-only stream table: PostgreSQL need not look its rows up."""
    rows = result.rows
    if result.refresh.row.append_only and isinstance(rows, MemoryDelta):
        return dataclasses.replace(rows, appended=not rows.has_deletions)
    return rows
