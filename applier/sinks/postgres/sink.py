"""The PostgreSQL sink: a delta or a full result in; its rows and the new frontier, in one transaction, out.

Progressive stream tables are the exception: see `progressive.py`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import assert_never

import pyarrow as pa

from applier.catalog.frontiers import Frontiers, RefreshTimes, move_frontier
from applier.catalog.fuses import forget_skipped
from applier.catalog.history import HistoryRow, RefreshExecution, record_refresh
from applier.ingest.source_times import SourceTimes
from applier.plan.stream_table import StreamTable
from applier.sinks.delta import ComputedDelta, Delta, MemoryDelta, StagedDelta
from applier.sinks.outbox import acknowledge, enqueue, enqueue_gap, enqueue_refill, stored_frontiers
from applier.sinks.postgres.full_diff import FullResult, diff_by_key, diff_with_target
from applier.sinks.postgres.gather import DriverLimit, collect_delta
from applier.sinks.postgres.key_index import create_key_index
from applier.sinks.postgres.progressive import ProgressiveWriter
from applier.sinks.postgres.transaction import Cursor, WriteSession
from applier.sinks.postgres.writer import TargetWriter
from applier.trace.volume import volume
from shared_schema.beats import to_datetime
from shared_schema.lsn import Lsn, LsnRange

TICK_ROWS = 50_000
"""Most rows, or kilobytes, of one stream table that a tick writes: all others wait for it, about half a second."""

DRIVER_ROWS = 200_000
"""Most rows of a difference that are collected on the driver."""


class PostgresSink:
    """Writes stream tables into PostgreSQL; `batch_size` returns the rows per COPY + MERGE at present, `source_times`
    knows what belongs to a frontier. `confirm` is called before the frontier moves, and raises what forbids that."""

    def __init__(
        self,
        session: WriteSession,
        batch_size: Callable[[], int],
        driver_rows: int = DRIVER_ROWS,
        source_times: SourceTimes | None = None,
        confirm: Callable[[Cursor], None] | None = None,
    ) -> None:
        self.session = session
        self._confirm = confirm
        self._batch_size = batch_size
        self._source_times = source_times or SourceTimes()
        self._driver_limit = DriverLimit(driver_rows, session.database.url)
        self._writer = TargetWriter(session, batch_size)
        self._progressive = ProgressiveWriter(session, self._writer)

    def apply(self, table: StreamTable, delta: ComputedDelta, as_of: datetime, execution: RefreshExecution) -> None:
        """Apply the delta once: moves the frontier from the lower to the upper end of its range."""
        started = time.monotonic()
        with self.session.translate_errors(table, lambda: self._writer.find_rejected(table, lambda _: delta)):
            is_large = isinstance(delta, StagedDelta) or delta.count > self._batch_size()
            early_counts = delta.applied if isinstance(delta, StagedDelta) else None
            if early_counts is None and is_large and self._progressive.is_progressive(table):
                early_counts = self._progressive.write(table, delta)
            with self.session.transaction() as cursor:
                counts = early_counts or self._writer.write(
                    cursor, table, self._writer.method_for(cursor, table, delta), delta
                )
                refresh = HistoryRow(table.id, execution, *counts, _elapsed_ms(started), delta.lsn_range)
                self._finish(cursor, table, delta, as_of, refresh, was_partial=is_large)

    def replace(
        self,
        table: StreamTable,
        rows: FullResult | ComputedDelta,
        as_of: datetime,
        execution: RefreshExecution,
        *,
        also_enqueue: Sequence[Delta] = (),
        acknowledged: Lsn | None = None,
        has_gap: bool = False,
        new_plan: bool = False,
        refills: bool = False,
        by_key: bool = False,
    ) -> ComputedDelta:
        """Make the table hold a full result, writing only rows that differ; return the difference.

        `rows` may be the difference itself, when it was found before. With `acknowledged`, the frontier that every
        other sink has reached, the difference goes to the outbox until they have it, together with `also_enqueue`:
        earlier deltas that they still need and that cannot be computed again. With `has_gap` they may need more than
        these: then all rows. With `new_plan` also when nothing differs: what was written before cannot be computed with
        the plan of now. With `refills` the other sinks are given all rows instead, and the outbox only remembers that.
        With `by_key`, `rows` is a delta to rows that the table may not hold: only what it leaves of its keys counts.
        """
        started = time.monotonic()

        def find_difference(cursor: Cursor) -> ComputedDelta:
            if isinstance(rows, FullResult):
                difference = diff_with_target(cursor, table, rows)
            elif by_key and table.key is not None:
                difference = diff_by_key(cursor, table, rows, self._writer.key_of(cursor, table, table.key))
            else:
                return rows
            return collect_delta(cursor, table, difference, rows.lsn_range, self._driver_limit)

        with (
            self.session.translate_errors(table, lambda: self._writer.find_rejected(table, find_difference)),
            self.session.transaction() as cursor,
        ):
            delta = find_difference(cursor)
            counts = self._writer.write(cursor, table, self._writer.merge_method(cursor, table), delta)
            if acknowledged is not None:
                acknowledge(cursor, table.id, acknowledged)
                if has_gap and delta.lsn_range.lower:
                    enqueue_gap(cursor, table.id, delta.lsn_range.lower)
                stored = stored_frontiers(cursor, table.id) if also_enqueue else set()
                for pending in also_enqueue:
                    if pending.lsn_range.upper > acknowledged and pending.lsn_range.upper not in stored:
                        enqueue(cursor, table, pending)
                enqueue(cursor, table, delta, also_empty=new_plan)
            if refills:
                enqueue_refill(cursor, table.id, rows.lsn_range.upper)
            refresh = HistoryRow(table.id, execution, *counts, _elapsed_ms(started), rows.lsn_range)
            self._finish(cursor, table, delta, as_of, refresh, was_partial=True, is_whole=not by_key)
        return delta

    def can_group_commit(self, table: StreamTable, rows: ComputedDelta | FullResult) -> bool:
        """Whether it may be part of a group commit."""
        if isinstance(rows, FullResult):
            return rows.change is None and isinstance(rows.rows, pa.Table) and not self.takes_long(table, rows)
        return isinstance(rows, MemoryDelta) and not rows.is_fill and not self.takes_long(table, rows)

    def takes_long(self, table: StreamTable, rows: ComputedDelta | FullResult) -> bool:
        """Whether a tick, in which all others wait, should not write these rows: they are many, or each batch is
        committed alone, so that nobody may begin again after some of them."""
        match rows:
            case FullResult(rows=pa.Table() as expected):
                # It is compared with all rows that the table holds.
                return max(volume(expected), self._held_volume(table)) > TICK_ROWS
            case FullResult():
                return True
            case StagedDelta():
                return rows.applied is None
            case MemoryDelta():
                is_large = rows.count > self._batch_size()
                return volume(rows.rows) > TICK_ROWS or (is_large and self._progressive.is_progressive(table))
            case _:
                assert_never(rows)

    def _held_volume(self, table: StreamTable) -> int:
        """Return about how many rows the stream table holds; without a lock on it."""
        row = self.session.connection.execute(_HELD, (table.relid,)).fetchone()
        return int(str(row[0])) if row else 0

    def advance(self, ids: list[int], lsn_range: LsnRange, as_of: datetime) -> None:
        """Move the frontiers of stream tables without changes in the range."""
        times = self.refresh_times(lsn_range.upper, as_of)
        Frontiers(self.session.database).advance_unchanged(ids, lsn_range.lower, lsn_range.upper, times)

    def refresh_times(self, frontier: Lsn, refreshed_at: datetime) -> RefreshTimes:
        """Return what is stored with a frontier."""
        known = self._source_times.at(frontier)
        last_us, until_us = known.last_commit_us, known.complete_until_us
        return RefreshTimes(
            refreshed_at,
            None if last_us is None else to_datetime(last_us),
            None if until_us is None else to_datetime(until_us),
        )

    def _finish(
        self,
        cursor: Cursor,
        table: StreamTable,
        delta: ComputedDelta,
        as_of: datetime,
        refresh: HistoryRow,
        *,
        was_partial: bool,
        is_whole: bool = False,
    ) -> None:
        """Write what belongs to the rows: the index of a new table, the frontier and the row of history."""
        if delta.is_fill:
            create_key_index(self.session, table)
            cursor.execute("SELECT pgtrickle._ensure_publication(%s)", (table.id,))
        if self._confirm is not None:
            # After all that takes long, before its row of the catalog is changed.
            self._confirm(cursor)
        if was_partial:
            cursor.execute(
                "UPDATE pgtrickle.pgt_stream_tables SET partial_until = NULL"
                " WHERE pgt_id = %s AND partial_until IS NOT NULL",
                (table.id,),
            )
        if is_whole:
            forget_skipped(cursor, table.id)
        upper = delta.lsn_range.upper
        move_frontier(cursor, table.id, delta.lsn_range.lower, upper, self.refresh_times(upper, as_of))
        request = refresh.execution.request
        if request is not None:
            cursor.execute("SELECT pgtrickle._note_reinitialized(%s, %s)", (table.id, request))
        if refresh.rows_inserted or refresh.rows_deleted or delta.is_fill or request is not None:
            record_refresh(cursor, refresh)


_HELD = (
    "SELECT greatest(reltuples, relpages * (current_setting('block_size')::int8 / 1024))::int8"
    " FROM pg_catalog.pg_class WHERE oid = %s::int8::oid"
)
"""Selects the rows of a table, or its kilobytes, as of its last ANALYZE, VACUUM or new index."""


def _elapsed_ms(started: float) -> float:
    return (time.monotonic() - started) * 1000
