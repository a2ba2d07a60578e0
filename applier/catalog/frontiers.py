"""Moves the frontiers of stream tables (`pgt_frontiers`), and reads which server this is and where its log ends."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import psycopg

from applier.catalog.database import Connection, Database
from applier.errors import AnotherApplier
from shared_schema.lsn import ORIGIN, Lsn


@dataclass(frozen=True, slots=True)
class RefreshTimes:
    """What is stored with a frontier."""

    refreshed_at: datetime
    """When the applier refreshed it, by the applier's clock; only schedules use it."""
    data_timestamp: datetime | None = None
    """Commit time of the last source commit that the rows include; None leaves what is stored."""
    complete_until: datetime | None = None
    """The source's clock up to which every source commit is included; None leaves what is stored."""


@dataclass(frozen=True, slots=True)
class ServerPosition:
    """Which server this is, and where its log ends."""

    system_id: str
    timeline: int
    log_end: Lsn


_SERVER = """
SELECT s.system_identifier::text, ('x' || left(pg_catalog.pg_walfile_name(e.lsn), 8))::bit(32)::int8, e.lsn::text
FROM pg_catalog.pg_control_system() s,
     (SELECT CASE WHEN NOT pg_catalog.pg_is_in_recovery() THEN pg_catalog.pg_current_wal_insert_lsn() END AS lsn) e
WHERE e.lsn IS NOT NULL
"""

_MOVE = (
    "UPDATE pgtrickle.pgt_frontiers SET frontier = %s::pg_lsn, refreshed_at = %s,"
    " data_timestamp = coalesce(%s, data_timestamp), complete_until = coalesce(%s, complete_until)"
)


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

    def server(self) -> ServerPosition | None:
        """Return the server's identity and the present end of its log; None while it only replays a log."""
        row = self._connection.execute(_SERVER.encode(), prepare=True).fetchone()
        return ServerPosition(str(row[0]), int(str(row[1])), Lsn.parse(str(row[2]))) if row else None

    @property
    def are_durable(self) -> bool:
        """Whether a frontier that is visible survives a crash of the server."""
        row = self._connection.execute("SELECT pg_catalog.current_setting('synchronous_commit')").fetchone()
        return row != ("off",)

    def wake(self) -> None:
        """Write a message to the log, so that the frontier advances."""
        self._connection.execute("SELECT pgtrickle._emit('wake')")

    def advance_unchanged(self, ids: list[int], old: Lsn, new: Lsn, times: RefreshTimes) -> list[int]:
        """Move the frontiers of stream tables without changes in the range; return the ids that were moved."""
        rows = self._connection.execute(
            _MOVE + " WHERE pgt_id = ANY(%s) AND frontier = %s::pg_lsn RETURNING pgt_id",
            (str(new), times.refreshed_at, times.data_timestamp, times.complete_until, ids, str(old)),
        ).fetchall()
        return [int(str(row[0])) for row in rows]


def move_frontier(
    cursor: psycopg.Cursor[tuple[object, ...]], pgt_id: int, old: Lsn, new: Lsn, times: RefreshTimes
) -> None:
    """Move a stream table's frontier in the caller's transaction; raise AnotherApplier when it is not at `old`."""
    if not old:
        cursor.execute(
            "INSERT INTO pgtrickle.pgt_frontiers (pgt_id, frontier, refreshed_at, data_timestamp, complete_until)"
            " VALUES (%s, %s::pg_lsn, %s, %s, %s) ON CONFLICT DO NOTHING",
            (pgt_id, str(new), times.refreshed_at, times.data_timestamp, times.complete_until),
        )
        moved = cursor.rowcount
        # One that was paused or suspended while its rows were computed stays so.
        cursor.execute(
            "UPDATE pgtrickle.pgt_stream_tables SET status = 'ACTIVE' WHERE pgt_id = %s AND status = 'INITIALIZING'",
            (pgt_id,),
        )
    else:
        cursor.execute(
            _MOVE + " WHERE pgt_id = %s AND frontier = %s::pg_lsn",
            (str(new), times.refreshed_at, times.data_timestamp, times.complete_until, pgt_id, str(old)),
        )
        moved = cursor.rowcount
    if moved != 1:
        raise AnotherApplier(
            f"the frontier of stream table {pgt_id} is no longer {old}", hint="stop the other pg-trickle-applier"
        )
