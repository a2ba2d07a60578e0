"""Results of refreshes and states of the scheduler in; rows of `pgt_refresh_history` and `pgt_runtime` out."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import psycopg
from psycopg.errors import ForeignKeyViolation

from applier.catalog.database import Connection, Database
from shared_schema.errors import TrickleError
from shared_schema.lsn import LsnRange

ROWS_OF_STREAM_TABLE = 50_000
"""Rows of history that a stream table keeps: half a day of a refresh per second."""

_PRUNE_ROWS = """
DELETE FROM pgtrickle.pgt_refresh_history h
USING pgtrickle.pgt_stream_tables s, LATERAL (
    SELECT k.refresh_id FROM pgtrickle.pgt_refresh_history k WHERE k.pgt_id = s.pgt_id
    ORDER BY k.refresh_id DESC OFFSET %s LIMIT 1
) last
WHERE h.pgt_id = s.pgt_id AND h.refresh_id <= last.refresh_id
"""


@dataclass(frozen=True)
class RefreshExecution:
    """How the rows of a refresh were computed, for the history."""

    action: str
    reason: str
    detail: str
    initiated_by: str
    started: datetime
    rows_in: int
    compute_ms: float
    fresh_until: datetime | None = None
    """The age of the rows that it replaces counts from here; None for a first fill."""
    request: datetime | None = None
    """When it was requested to compute everything once more, if this does it: always recorded."""
    source_rows: int | None = None
    """Rows of its sources at that time."""
    sla_ms: int | None = None
    """The SLA at that time."""


@dataclass(frozen=True)
class AssignedPace:
    """The tier that was assigned to a stream table for an SLA, and how far its interval is stretched."""

    tier: str | None
    for_ms: int | None
    interval_stretch: float
    version: int = 0
    """It counts until schedule, SLA or tier are altered."""


@dataclass(frozen=True)
class HistoryRow:
    """One row of the history: one refresh of one stream table."""

    pgt_id: int
    execution: RefreshExecution
    rows_inserted: int
    rows_deleted: int
    write_ms: float
    lsn_range: LsnRange


@dataclass(frozen=True, slots=True)
class MeasuredRefresh:
    """What one refresh took: by the history, the method that was executed."""

    at: datetime
    is_full: bool
    rows: float
    """Change rows; of a full refresh the rows of the sources."""
    compute_ms: float
    write_ms: float


@dataclass(frozen=True, slots=True)
class RecentRefresh:
    """What one of the last refreshes of a stream table took, by the history."""

    pgt_id: int
    action: str
    rows: int
    """Change rows."""
    took_ms: float
    write_ms: float
    """How much of it was for writing."""


_COSTS = """
SELECT c.at, c.is_full, c.row_count, c.compute_ms, c.write_ms FROM pgtrickle._measured_costs(%s, %s) c ORDER BY c.at
"""

_RECENT = """
SELECT s.pgt_id, h.action, h.row_count, h.took_ms, h.write_ms
FROM pgtrickle.pgt_stream_tables s CROSS JOIN LATERAL pgtrickle._newest_refreshes(s.pgt_id, %s) h
ORDER BY h.refresh_id
"""


class History:
    """Reads and writes the history and the state of refreshes; every method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @property
    def _connection(self) -> Connection:
        return self._database.connection

    def note_state(self, pgt_id: int, mode: str, reason: str, next_refresh_at: datetime | None) -> None:
        """Store the method and reason of the last refresh, and when the next one is due."""
        with suppress(ForeignKeyViolation):
            self._connection.execute(
                "INSERT INTO pgtrickle.pgt_runtime (pgt_id, effective_refresh_mode, effective_reason, next_refresh_at)"
                " VALUES (%s, %s, %s, %s) ON CONFLICT (pgt_id) DO UPDATE SET consecutive_errors = 0,"
                " effective_refresh_mode = excluded.effective_refresh_mode,"
                " effective_reason = excluded.effective_reason, next_refresh_at = excluded.next_refresh_at",
                (pgt_id, mode, reason, next_refresh_at),
            )

    def note_pace(self, pgt_id: int, pace: AssignedPace) -> None:
        """Store the assigned tier and the stretch of a stream table."""
        self._connection.execute(
            "UPDATE pgtrickle.pgt_runtime SET assigned_tier = %s, assigned_for_ms = %s, interval_stretch = %s,"
            " pace_version = %s WHERE pgt_id = %s",
            (pace.tier, pace.for_ms, pace.interval_stretch, pace.version, pgt_id),
        )

    def note_due(self, due: Mapping[int, datetime | None]) -> None:
        """Store when stream tables are due, for those that were refreshed before."""
        self._connection.execute(
            "UPDATE pgtrickle.pgt_runtime t SET next_refresh_at = d.at"
            " FROM unnest(%s::int8[], %s::timestamptz[]) AS d (pgt_id, at)"
            " WHERE t.pgt_id = d.pgt_id AND t.next_refresh_at IS DISTINCT FROM d.at",
            (list(due), list(due.values())),
        )

    def note_errors(self, pgt_id: int, errors: int) -> None:
        """Store the number of consecutive failures."""
        self._connection.execute(
            "UPDATE pgtrickle.pgt_runtime SET consecutive_errors = %s WHERE pgt_id = %s", (errors, pgt_id)
        )

    def record_failure(
        self, pgt_id: int, execution: RefreshExecution, lsn_range: LsnRange, error: TrickleError
    ) -> None:
        """Write a row of history for a refresh that failed."""
        with suppress(ForeignKeyViolation), self._connection.cursor() as cursor:
            record_refresh(cursor, HistoryRow(pgt_id, execution, 0, 0, 0.0, lsn_range), error.problem)

    def read_costs(self, pgt_id: int, window: timedelta) -> list[MeasuredRefresh]:
        """Return what the refreshes of a stream table took, oldest first: all that a prediction may rest on."""
        found = self._connection.execute(_COSTS, (pgt_id, window)).fetchall()
        return [
            MeasuredRefresh(datetime.fromisoformat(str(at)), bool(is_full), *(float(str(n)) for n in numbers))
            for at, is_full, *numbers in found
        ]

    def read_recent(self, refreshes: int) -> list[RecentRefresh]:
        """Return the last refreshes of every stream table, oldest first."""
        found = self._connection.execute(_RECENT, (refreshes,)).fetchall()
        return [
            RecentRefresh(int(str(pgt_id)), str(action), int(str(rows)), float(str(took_ms)), float(str(write_ms)))
            for pgt_id, action, rows, took_ms, write_ms in found
        ]

    def prune(self, days: int, rows: int = ROWS_OF_STREAM_TABLE) -> int:
        """Delete refreshes older than `days`, and all but the last `rows` of each stream table; return how many.

        The DDL on sources that event triggers saw is kept as long.
        """
        self._connection.execute(
            "DELETE FROM pgtrickle.pgt_source_ddl WHERE seen_at < now() - make_interval(days => %s)"
            " OR ddl_id <= (SELECT max(ddl_id) FROM pgtrickle.pgt_source_ddl) - %s",
            (days, rows),
        )
        old = self._connection.execute(
            "DELETE FROM pgtrickle.pgt_refresh_history WHERE start_time < now() - make_interval(days => %s)", (days,)
        ).rowcount
        return old + self._connection.execute(_PRUNE_ROWS, (rows,)).rowcount


def record_refresh(cursor: psycopg.Cursor[tuple[object, ...]], refresh: HistoryRow, error: str | None = None) -> None:
    """Write a row of history in the caller's transaction."""
    execution, ended = refresh.execution, datetime.now(UTC)
    age = None if execution.fresh_until is None else max(ended - execution.fresh_until, timedelta())
    cursor.execute(
        "INSERT INTO pgtrickle.pgt_refresh_history (pgt_id, start_time, end_time, action, refresh_reason,"
        " refresh_reason_detail, initiated_by, rows_in, rows_inserted, rows_deleted, compute_ms, write_ms,"
        " from_lsn, tick_watermark_lsn, status, error_message, source_rows, freshness_ms, sla_ms)"
        " VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s::pg_lsn, %s::pg_lsn, %s, %s, %s, %s, %s)",
        (
            refresh.pgt_id,
            execution.started,
            ended,
            execution.action,
            execution.reason,
            execution.detail or None,
            execution.initiated_by,
            execution.rows_in,
            refresh.rows_inserted,
            refresh.rows_deleted,
            execution.compute_ms,
            refresh.write_ms,
            str(refresh.lsn_range.lower),
            str(refresh.lsn_range.upper),
            "COMPLETED" if error is None else "FAILED",
            error,
            execution.source_rows,
            None if age is None else age / timedelta(milliseconds=1),
            execution.sla_ms,
        ),
    )
