"""The large delta of a progressive stream table in; its rows, committed batch by batch before the frontier moves, out.

Until the last batch the catalog says that the rows belong to no frontier. A crash in between is repaired by comparing
the table with its full result, which does not need to know how many batches were committed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import assert_never

from applier.catalog.database import Database
from applier.catalog.epochs import confirm_epoch
from applier.plan.stream_table import StreamTable
from applier.sinks.delta import ComputedDelta, MemoryDelta, StagedDelta
from applier.sinks.postgres.batches import ApplyMethod, cut_batches
from applier.sinks.postgres.prefetch import prefetch
from applier.sinks.postgres.transaction import Cursor, WriteSession
from applier.sinks.postgres.writer import Counts, TargetWriter

log = logging.getLogger(__name__)


class ProgressiveWriter:
    """Commits rows before the frontier moves."""

    def __init__(self, session: WriteSession, writer: TargetWriter) -> None:
        self._session = session
        self._writer = writer

    def is_progressive(self, table: StreamTable) -> bool:
        """Whether readers may see a part of a refresh of this stream table."""
        found = self._session.connection.execute(
            "SELECT visibility = 'progressive' FROM pgtrickle.pgt_stream_tables WHERE pgt_id = %s", (table.id,)
        ).fetchone()
        return found == (True,)

    def write(self, table: StreamTable, delta: ComputedDelta) -> Counts:
        """Commit each batch alone; meanwhile the catalog says that the table has no frontier."""
        with self._session.connection.cursor() as cursor:
            method = self._writer.method_for(cursor, table, delta)
            if delta.is_fill:
                self._writer.check_empty(cursor, table)
            cursor.execute(
                "UPDATE pgtrickle.pgt_stream_tables SET partial_until = %s::pg_lsn WHERE pgt_id = %s",
                (str(delta.lsn_range.upper), table.id),
            )
            match delta:
                case StagedDelta():
                    return self._writer.merge_staged(cursor, table, delta)
                case MemoryDelta():
                    return self._write_batches(cursor, table, method, delta)
                case _:
                    assert_never(delta)

    def _write_batches(self, cursor: Cursor, table: StreamTable, method: ApplyMethod, delta: MemoryDelta) -> Counts:
        inserted = deleted = 0
        method.prepare(cursor)
        for batch in prefetch(cut_batches(method.arrange(delta.rows), self._writer.batch_size())):
            with self._session.connection.transaction():
                confirm_epoch(cursor)
                more, less = method.write(cursor, batch)
            log.debug("batch committed", extra={"table": str(table), "rows": batch.rows.num_rows})
            inserted, deleted = inserted + more, deleted + less
        return inserted, deleted


class EarlyParts:
    """Applies the parts of staged deltas as they arrive, beside the ticks, in a session of its own."""

    def __init__(self, database: Database, batch_size: Callable[[], int]) -> None:
        self._session = WriteSession(database)
        self._writer = TargetWriter(self._session, batch_size)
        self._progressive = ProgressiveWriter(self._session, self._writer)

    def apply(self, table: StreamTable, delta: StagedDelta) -> None:
        """Apply the parts of a progressive stream table; `PostgresSink.apply` moves the frontier later."""
        with self._session.translate_errors(table, lambda: self._writer.find_rejected(table, lambda _: delta)):
            if self._progressive.is_progressive(table):
                delta.note_applied(*self._progressive.write(table, delta))

    def close(self) -> None:
        """Close the session."""
        self._session.close()
