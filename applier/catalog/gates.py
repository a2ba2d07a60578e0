"""Reads gates and watermark groups; writes where they hold their readers, and SKIP lines of the history."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from typing import LiteralString

from psycopg.errors import ForeignKeyViolation
from psycopg.rows import class_row
from psycopg.sql import SQL

from applier.catalog.database import Connection, Database
from applier.catalog.service import send_alert
from shared_schema.alerts import AlertEvent
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
    detail: str | None
    readers_at: str | None
    log_end: str
    age_s: float
    """For how long it has been closed, by the server's clock, when it was read."""

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
                " opened_lsn::text, detail, readers_at::text, log_end::text,"
                " extract(epoch FROM clock_timestamp() - closed_at)::float8 AS age_s FROM pgtrickle._gates()"
            ).fetchall()

    def note_position(self, kind: str, gate: str, closed_lsn: Lsn, held_lsn: Lsn) -> None:
        """Store where the readers of a gate that was closed are held; what was stored for an earlier closing ends."""
        self._connection.execute(
            "INSERT INTO pgtrickle.pgt_held_positions (kind, gate, closed_lsn, held_lsn)"
            " VALUES (%s, %s, %s::pg_lsn, %s::pg_lsn) ON CONFLICT (kind, gate)"
            " DO UPDATE SET closed_lsn = excluded.closed_lsn, held_lsn = excluded.held_lsn, stuck_alerted_at = NULL",
            (kind, gate, str(closed_lsn), str(held_lsn)),
        )

    def alerted(self, kind: str) -> set[tuple[str, Lsn]]:
        """Return what was reported as stuck and not yet as going on: its id and where it was closed."""
        rows = self._connection.execute(
            "SELECT gate, closed_lsn::text FROM pgtrickle.pgt_held_positions"
            " WHERE kind = %s AND stuck_alerted_at IS NOT NULL",
            (kind,),
        ).fetchall()
        return {(str(gate), Lsn.parse(str(closed))) for gate, closed in rows}

    def alert_stuck(self, kind: str, gate: str, closed_lsn: Lsn, **about: int | float | str) -> None:
        """Send the alert that it holds its readers for too long, and store that it was sent."""
        with self._connection.transaction():
            self._note_alerted(kind, gate, closed_lsn, "clock_timestamp()")
            send_alert(self._connection, AlertEvent.WATERMARK_STUCK, group=gate, **about)

    def alert_resumed(self, kind: str, gate: str, closed_lsn: Lsn) -> None:
        """Send the alert that it holds nobody any more."""
        with self._connection.transaction():
            self._note_alerted(kind, gate, closed_lsn, "NULL")
            send_alert(self._connection, AlertEvent.WATERMARK_RESUMED, group=gate)

    def _note_alerted(self, kind: str, gate: str, closed_lsn: Lsn, at: LiteralString) -> None:
        self._connection.execute(
            SQL("UPDATE pgtrickle.pgt_held_positions SET stuck_alerted_at = {}").format(SQL(at))
            + SQL(" WHERE (kind, gate, closed_lsn) = (%s, %s, %s::pg_lsn)"),
            (kind, gate, str(closed_lsn)),
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
