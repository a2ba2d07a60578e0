"""Reads gates and watermark groups; writes where they hold their readers, and SKIP lines of the history."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

from psycopg.errors import ForeignKeyViolation
from psycopg.rows import class_row

from applier.catalog.database import Connection, Database
from shared_schema.lsn import Lsn
from shared_schema.table_schema import TableId


@dataclass(frozen=True)
class GateRow:
    """A gate or a watermark group as `pgtrickle._gates()` returns it, with the end of the log after it was read."""

    kind: str
    gate: str
    name: str
    sources: list[str]
    min_sources: int
    is_closed: bool
    closed_lsn: str
    held_lsn: str | None
    opened_lsn: str | None
    closed_at: datetime
    detail: str | None
    readers_at: str | None
    log_end: str

    @property
    def source_tables(self) -> frozenset[TableId]:
        """The names of its sources, as their readers know them."""
        return frozenset(TableId(*json.loads(source)) for source in self.sources)


class GateStore:
    """Reads gates; every method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @property
    def _connection(self) -> Connection:
        return self._database.connection

    def all(self) -> list[GateRow]:
        """Return every gate and every watermark group that was ever closed."""
        with self._connection.cursor(row_factory=class_row(GateRow)) as cursor:
            return cursor.execute(
                "SELECT kind, gate, name, sources, min_sources, is_closed, closed_lsn::text, held_lsn::text,"
                " opened_lsn::text, closed_at, detail, readers_at::text, log_end::text FROM pgtrickle._gates()"
            ).fetchall()

    def note_position(self, kind: str, gate: str, closed_lsn: Lsn, held_lsn: Lsn) -> None:
        """Store where the readers of a gate that was closed are held; what was stored for an earlier closing ends."""
        self._connection.execute(
            "INSERT INTO pgtrickle.pgt_held_positions (kind, gate, closed_lsn, held_lsn)"
            " VALUES (%s, %s, %s::pg_lsn, %s::pg_lsn) ON CONFLICT (kind, gate)"
            " DO UPDATE SET closed_lsn = excluded.closed_lsn, held_lsn = excluded.held_lsn",
            (kind, gate, str(closed_lsn), str(held_lsn)),
        )

    def record_skip(self, pgt_id: int, at: Lsn, reason: str, detail: str) -> None:
        """Write that a stream table is held; nothing if the last line of its history says the same."""
        with suppress(ForeignKeyViolation):
            self._connection.execute(
                "INSERT INTO pgtrickle.pgt_refresh_history (pgt_id, start_time, end_time, action, refresh_reason,"
                " refresh_reason_detail, initiated_by, rows_in, rows_inserted, rows_deleted, compute_ms, write_ms,"
                " from_lsn, tick_watermark_lsn, status)"
                " SELECT %(id)s, now(), now(), 'SKIP', %(reason)s, %(detail)s, 'SCHEDULER', 0, 0, 0, 0, 0,"
                " %(at)s::pg_lsn, %(at)s::pg_lsn, 'COMPLETED'"
                " WHERE NOT EXISTS (SELECT FROM (SELECT h.action, h.refresh_reason, h.refresh_reason_detail"
                " FROM pgtrickle.pgt_refresh_history h WHERE h.pgt_id = %(id)s"
                " ORDER BY h.refresh_id DESC LIMIT 1) last"
                " WHERE last.action = 'SKIP' AND last.refresh_reason = %(reason)s"
                " AND last.refresh_reason_detail = %(detail)s)",
                {"id": pgt_id, "at": str(at), "reason": reason, "detail": detail},
            )
