"""What became of a fuse, and which stream tables catch up, in; the change rows of earlier refreshes out."""

from __future__ import annotations

from collections.abc import Mapping

import psycopg

from applier.catalog.database import Connection, Database
from applier.catalog.service import send_alert
from applier.errors import FuseBlown
from shared_schema.alerts import AlertEvent
from shared_schema.lsn import Lsn

Cursor = psycopg.Cursor[tuple[object, ...]]

LET_THROUGH = "let through by reset_fuse"
"""Marks a refresh in the history: its size was abnormal, so it does not count as a sample of what is normal."""

CATCHES_UP = "catches up"
"""Likewise a refresh that caught up: its size is that of the time that had passed, or of a step."""

_SAMPLES = """
SELECT h.rows_in FROM pgtrickle.pgt_refresh_history h
WHERE h.pgt_id = %s AND h.status = 'COMPLETED' AND h.action IN ('DIFFERENTIAL', 'FULL', 'FULL_IN_POSTGRES')
  AND h.refresh_reason NOT IN ('INITIAL', 'REINITIALIZE', 'REPAIR', 'HISTORY_GONE', 'DEFINITION_CHANGED',
                               'AUTO_SCHEMA_EVOLUTION')
  AND h.rows_in > 0 AND NOT EXISTS (SELECT FROM unnest(%s::text[]) m WHERE strpos(h.refresh_reason_detail, m) > 0)
ORDER BY h.refresh_id DESC LIMIT %s
"""

_NOTE_CATCHING_UP = """
UPDATE pgtrickle.pgt_frontiers f SET catching_up_until = n.until
FROM unnest(%s::bigint[], %s::pg_lsn[]) AS n (pgt_id, until) WHERE f.pgt_id = n.pgt_id
"""


class FuseStore:
    """What fuses know beside the rows of stream tables; every method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def read(self, pgt_id: int, most: int) -> list[int]:
        """Return the change rows of the last refreshes, oldest first, without those that say nothing of the next."""
        rows = self._database.connection.execute(_SAMPLES, (pgt_id, [LET_THROUGH, CATCHES_UP], most)).fetchall()
        return [int(str(row[0])) for row in reversed(rows)]

    def note_catching_up(self, until: Mapping[int, Lsn]) -> None:
        """Store up to where stream tables are behind, by id."""
        self._database.connection.execute(_NOTE_CATCHING_UP, (list(until), [str(lsn) for lsn in until.values()]))


def note_blown(connection: Connection, pgt_id: int, error: FuseBlown) -> None:
    """Store which range was stopped, for `reset_fuse`, and send an alert."""
    connection.execute(
        "UPDATE pgtrickle.pgt_stream_tables SET fuse_blown_at = now(), fuse_blown_until = %s::pg_lsn,"
        " fuse_blown_changes = %s, fuse_blown_limit = %s, fuse_blown_detail = %s WHERE pgt_id = %s",
        (str(error.until), error.changes, error.limit, error.problem, pgt_id),
    )
    counted = {} if error.changes is None else {"changes": error.changes}
    send_alert(
        connection,
        AlertEvent.FUSE_BLOWN,
        pgt_id=pgt_id,
        **counted,
        limit=error.limit,
        until=str(error.until),
        detail=error.problem,
        hint=error.hint,
    )


def note_skipped(cursor: Cursor, pgt_id: int, until: Lsn) -> None:
    """Store that changes up to `until` were left out: its rows are not those of its query."""
    cursor.execute(
        "UPDATE pgtrickle.pgt_stream_tables SET fuse_skips_until = NULL, fuse_skipped_at = coalesce(fuse_skipped_at,"
        " now()), fuse_skipped_changes = CASE WHEN fuse_skipped_at IS NULL THEN 0 ELSE fuse_skipped_changes END"
        " + fuse_blown_changes"
        " WHERE pgt_id = %s AND fuse_skips_until = %s::pg_lsn",
        (pgt_id, str(until)),
    )


def forget_skipped(cursor: Cursor, pgt_id: int) -> None:
    """Store that it was computed as a whole: its rows are those of its query."""
    cursor.execute(
        "UPDATE pgtrickle.pgt_stream_tables SET fuse_skipped_at = NULL, fuse_skipped_changes = NULL"
        " WHERE pgt_id = %s AND fuse_skipped_at IS NOT NULL",
        (pgt_id,),
    )
