"""Moves the frontiers of stream tables (`pgt_frontiers`) and reads the end of the log."""

from __future__ import annotations

from datetime import datetime

import psycopg

from applier.catalog.database import Connection, Database
from applier.errors import AnotherApplier
from shared_schema.lsn import ORIGIN, Lsn


class Frontiers:
    """Moves frontiers of stream tables whose rows did not change; every method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @property
    def _connection(self) -> Connection:
        return self._database.connection

    def log_end(self) -> Lsn:
        """Return the present end of the log."""
        row = self._connection.execute("SELECT pg_catalog.pg_current_wal_insert_lsn()::text").fetchone()
        return Lsn.parse(str(row[0])) if row else ORIGIN

    def wake(self) -> None:
        """Write a message to the log, so that the frontier advances."""
        self._connection.execute("SELECT pgtrickle._emit('wake')")

    def advance_unchanged(self, ids: list[int], old: Lsn, new: Lsn, as_of: datetime) -> list[int]:
        """Move the frontiers of stream tables without changes in the range; return the ids that were moved."""
        rows = self._connection.execute(
            "UPDATE pgtrickle.pgt_frontiers SET frontier = %s::pg_lsn, data_timestamp = %s"
            " WHERE pgt_id = ANY(%s) AND frontier = %s::pg_lsn RETURNING pgt_id",
            (str(new), as_of, ids, str(old)),
        ).fetchall()
        return [int(str(row[0])) for row in rows]


def move_frontier(cursor: psycopg.Cursor[tuple[object, ...]], pgt_id: int, old: Lsn, new: Lsn, as_of: datetime) -> None:
    """Move a stream table's frontier in the caller's transaction; raise AnotherApplier when it is not at `old`."""
    if not old:
        cursor.execute(
            "INSERT INTO pgtrickle.pgt_frontiers (pgt_id, frontier, data_timestamp) VALUES (%s, %s::pg_lsn, %s)"
            " ON CONFLICT DO NOTHING",
            (pgt_id, str(new), as_of),
        )
        moved = cursor.rowcount
        cursor.execute("UPDATE pgtrickle.pgt_stream_tables SET status = 'ACTIVE' WHERE pgt_id = %s", (pgt_id,))
    else:
        cursor.execute(
            "UPDATE pgtrickle.pgt_frontiers SET frontier = %s::pg_lsn, data_timestamp = %s"
            " WHERE pgt_id = %s AND frontier = %s::pg_lsn",
            (str(new), as_of, pgt_id, str(old)),
        )
        moved = cursor.rowcount
    if moved != 1:
        raise AnotherApplier(
            f"the frontier of stream table {pgt_id} is no longer {old}", hint="stop the other pg-trickle-applier"
        )
