"""Computed refreshes in; committed rows in PostgreSQL first, then the same deltas on the topic and in Delta, out."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import assert_never

from applier import metrics
from applier.catalog.catalog import Catalog
from applier.catalog.stream_tables import StreamTableRow
from applier.errors import GroupCommitRefused, Infrastructure, Superseded, TargetLocked
from applier.plan.stream_table import StreamTable
from applier.refresh.method.refresh import RefreshResult, group_by_range
from applier.refresh.writing.catch_up import CatchUp
from applier.refresh.writing.long_writes import LongWrite, LongWrites
from applier.refresh.writing.result_writer import ResultWriter, WrittenRows
from applier.sinks.commit_to_visible import POSTGRES, CommitToVisible
from applier.sinks.delta import ComputedDelta
from applier.sinks.downstream import Downstream
from applier.sinks.postgres.sink import PostgresSink
from applier.unexpected import to_own_error
from shared_schema.alerts import AlertEvent
from shared_schema.errors import TrickleError

log = logging.getLogger(__name__)


@dataclass
class RefreshWriter:
    """Brings the rows of refreshes into every sink. What takes long is written into PostgreSQL beside the ticks."""

    results: ResultWriter
    """Writes inside of a tick; its session waits for locks only shortly."""
    long_writes: LongWrites
    catch_up_sinks: CatchUp
    catalog: Catalog
    visible: CommitToVisible = field(default_factory=CommitToVisible)

    @property
    def postgres(self) -> PostgresSink:
        """The sink of the ticks."""
        return self.results.postgres

    @property
    def downstream(self) -> Downstream:
        """The other sinks."""
        return self.results.downstream

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
            with (
                self._forget_on_failure(result.refresh.table.id for result in changed),
                self.postgres.session.group_commit(),
            ):
                for result in changed:
                    try:
                        written.append((result, leases.enter_context(self.results.write(result).delta)))
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

    def write_back(self, result: RefreshResult, is_current: Callable[[], bool]) -> bool:
        """Commit the rows in PostgreSQL, then queue the delta for the other sinks. Return False when they are being
        written beside the ticks: there are many, or another session has locked the stream table. They are then
        committed only while `is_current`, which that thread asks."""
        if not self.postgres.takes_long(result.refresh.table, result.rows):
            try:
                self._write_now(result)
                return True
            except TargetLocked as error:
                log.info("stream table is written beside the ticks", extra={"error": error.log_text})
        self.long_writes.start(result, is_current)
        return False

    def _write_now(self, result: RefreshResult) -> None:
        started = time.monotonic()
        with self._forget_on_failure([result.refresh.table.id]):
            written = self.results.write(result)
            with written.delta as delta:
                self.hand_on(result.refresh.row, written.table, delta)
        metrics.APPLY_SECONDS.observe(time.monotonic() - started)
        self._note_written(result, delta)

    def take_written(self) -> list[LongWrite]:
        """Return the writes beside the ticks that have ended."""
        return self.long_writes.take_finished()

    def is_writing(self, table_id: int) -> bool:
        """Whether rows of the stream table are being written beside the ticks."""
        return self.long_writes.is_writing(table_id)

    def give_up(self, table_id: int) -> None:
        """Interrupt a write beside the ticks: what it was computed from has changed."""
        self.long_writes.give_up(table_id)

    def conclude(self, write: LongWrite, *, is_current: bool) -> bool:
        """Queue the delta of a write beside the ticks for the other sinks; return whether it was committed.

        Raises what failed, unless the rows are those of a stream table that is not `is_current` any more.
        """
        table = write.result.refresh.table
        match write.outcome:
            case WrittenRows() as written if is_current:
                self.hand_on(write.result.refresh.row, written.table, written.delta.value)
                self._note_written(write.result, written.delta.value)
                return True
            case WrittenRows():
                # If it still exists, its sinks are compared with PostgreSQL before its next refresh.
                self.forget(table.id)
            case Superseded():
                log.info("written rows are discarded", extra={"table": str(table)})
            case TrickleError() as error:
                if error.retryable:
                    # The commit may have arrived.
                    self.forget(table.id)
                if is_current and not write.is_given_up:
                    raise error
            case _:
                assert_never(write.outcome)
        return False

    def hand_on(self, row: StreamTableRow, table: StreamTable, delta: ComputedDelta) -> None:
        """Queue a delta that PostgreSQL has committed for the other sinks.

        Not of a stream table that is built to replace another one, nor of a canary: only PostgreSQL has their rows.
        """
        if row.is_trial:
            return
        if delta.is_fill:
            # All rows: whatever the sinks lack is among them.
            self.downstream.followed.follow(table.id)
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
        self.catalog.service.alert(AlertEvent.APPEND_ONLY_REVERTED, pgt_id=row.pgt_id, detail=detail)
