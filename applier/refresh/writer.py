"""Computed refreshes in; committed rows in PostgreSQL first, then the same deltas on the topic and in Delta, out."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime

from applier import metrics
from applier.catalog.catalog import Catalog
from applier.catalog.history import RefreshExecution
from applier.catalog.stream_tables import StreamTableRow
from applier.errors import GroupCommitRefused, Infrastructure, TargetLocked
from applier.plan.stream_table import StreamTable
from applier.refresh.catch_up import CatchUp
from applier.refresh.refresh import RefreshResult, RefreshRows, group_by_range
from applier.refresh.strategy import RefreshMethod
from applier.sinks.delta import ComputedDelta, MemoryDelta
from applier.sinks.downstream import Downstream
from applier.sinks.lease import Lease
from applier.sinks.postgres.full_diff import FullResult
from applier.sinks.postgres.sink import PostgresSink
from shared_schema.errors import TrickleError
from shared_schema.lsn import ORIGIN

log = logging.getLogger(__name__)


@dataclass
class RefreshWriter:
    """Brings the rows of refreshes into every sink."""

    postgres: PostgresSink
    downstream: Downstream
    catch_up_sinks: CatchUp
    catalog: Catalog

    def catch_up(self, row: StreamTableRow, table: StreamTable) -> None:
        """Once after a start: give the other sinks what they missed up to PostgreSQL's frontier."""
        self.catch_up_sinks.run(row, table)

    def group_commit(self, changed: Sequence[RefreshResult], unchanged: Sequence[RefreshResult]) -> list[RefreshResult]:
        """Write the rows and frontiers of as many as possible in one transaction, and move all unchanged frontiers.

        Returns the refreshes that are committed. The others have to be written alone, which tells why one is rejected.
        """
        can_group = self.postgres.can_group_commit
        short = [result for result in changed if can_group(result.refresh.table, result.rows)]
        if len(short) + bool(unchanged) < 2 or not short:
            self._advance(unchanged)
            return [*unchanged]
        started = time.monotonic()
        try:
            written = self._commit_group(short, unchanged)
        except GroupCommitRefused as error:
            log.info("stream tables are written one by one", extra={"error": error.problem})
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
        with self._forget_on_failure([refresh.table.id]), self._write_postgres(result) as delta:
            self.hand_on(refresh.row, refresh.table, delta)
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

    def replace(
        self, table: StreamTable, rows: RefreshRows, as_of: datetime, execution: RefreshExecution
    ) -> ComputedDelta:
        """Write only the rows that differ; the outbox holds the difference until all sinks have it.

        A full result cannot be computed again from an LSN range, so nothing else would remember it.
        """
        durable = self.downstream.frontiers(table)
        acknowledged = min(durable.values(), default=ORIGIN) if durable else None
        with self.downstream.queued(table.id) as queued:
            return self.postgres.replace(table, rows, as_of, execution, also_enqueue=queued, acknowledged=acknowledged)

    def hand_on(self, row: StreamTableRow, table: StreamTable, delta: ComputedDelta) -> None:
        """Queue a delta that PostgreSQL has committed for the other sinks.

        Not of a stream table that is built to replace another one: until then only PostgreSQL receives its rows.
        """
        if row.replaces is None:
            self.downstream.add(table, delta)
        self.catch_up_sinks.note_current(table.id)

    def publish(self) -> None:
        """Publish all queued deltas to the topics, in one Kafka transaction; when it fails they stay queued."""
        self.downstream.publish()

    def forget(self, table_id: int) -> None:
        """Drop what is queued for a stream table; its next refresh reads the frontiers of the sinks again."""
        self.catch_up_sinks.forget(table_id)
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
            self.catalog.frontiers.advance_unchanged(
                [d.refresh.table.id for d in group], lsn_range.lower, lsn_range.upper, group[0].refresh.as_of
            )

    def _note_written(self, result: RefreshResult, delta: ComputedDelta) -> None:
        row, table = result.refresh.row, result.refresh.table
        metrics.ROWS_OUT.labels(str(table)).inc(delta.count)
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
        return replace(rows, appended=not rows.has_deletions)
    return rows
