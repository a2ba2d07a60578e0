"""The stored stream tables, their frontiers and the checkpoint, in schema `pgtrickle`. IO shell around plain rows."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime

import psycopg
from psycopg.rows import class_row, dict_row

from applier.database import Connection, Database
from applier.errors import AnotherApplier
from applier.stream_table import Status
from applier.trace.store import EMPTY_MANIFEST, Manifest
from shared_schema.errors import TrickleError
from shared_schema.lsn import ORIGIN, Lsn
from shared_schema.table_schema import TableId

ALERT_CHANNEL = "pg_trickle_alert"


@dataclass(frozen=True)
class Registered:
    """A row of pgt_stream_tables with its frontier, as stored."""

    pgt_id: int
    pgt_relid: int
    pgt_schema: str
    pgt_name: str
    original_query: str
    defining_query: str
    created_at: datetime
    status: str
    frontier: str | None
    partial: bool = False
    """Whether a progressive window was begun and not ended: its rows are those of no frontier."""

    @property
    def table(self) -> TableId:
        """Its name."""
        return TableId(self.pgt_schema, self.pgt_name)

    @property
    def lsn(self) -> Lsn:
        """Its frontier; ORIGIN before it is filled."""
        return Lsn.parse(self.frontier) if self.frontier else ORIGIN

    @property
    def state(self) -> Status:
        """Its status."""
        return Status(self.status)


@dataclass(frozen=True)
class Refresh:
    """What one refresh of one stream table did, for the history."""

    pgt_id: int
    started: datetime
    action: str
    reason: str
    rows_inserted: int
    rows_deleted: int
    tick: Lsn


_FINGERPRINTS = """
SELECT c.oid::int8, md5(format('%%s %%s %%s %%s', n.nspname, c.relname,
    (SELECT string_agg(format('%%s %%s %%s %%s %%s', a.attnum, a.attname, a.atttypid, a.atttypmod, a.attnotnull), ','
                       ORDER BY a.attnum)
     FROM pg_catalog.pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped),
    (SELECT string_agg(format('%%s %%s', k.contype, k.conkey), ',' ORDER BY k.oid)
     FROM pg_catalog.pg_constraint k WHERE k.conrelid = c.oid AND k.contype IN ('p', 'u'))))
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid = ANY (%s::int8[]::oid[])
"""


class Registry:
    """Reads and writes the catalog; every method is one transaction unless it says otherwise."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @property
    def _connection(self) -> Connection:
        return self._database.connection

    def stream_tables(self) -> list[Registered]:
        """Every stream table, oldest first."""
        with self._connection.cursor(row_factory=class_row(Registered)) as cursor:
            return cursor.execute(
                "SELECT s.pgt_id, s.pgt_relid::int8, s.pgt_schema, s.pgt_name, s.original_query,"
                " s.defining_query, s.created_at, s.status,"
                " f.frontier::text AS frontier, s.partial_until IS NOT NULL AS partial"
                " FROM pgtrickle.pgt_stream_tables s"
                " LEFT JOIN pgtrickle.pgt_frontiers f USING (pgt_id) ORDER BY s.pgt_id"
            ).fetchall()

    def fingerprints(self, relids: Collection[int]) -> dict[int, str]:
        """Per relation a text that changes with its name, its columns and its keys; none for one that is gone."""
        if not relids:
            return {}
        rows = self._connection.execute(_FINGERPRINTS, (list(relids),)).fetchall()
        return {int(str(relid)): str(text) for relid, text in rows}

    def result_columns(self, query: str) -> list[tuple[object, ...]]:
        """Names and types of what a query returns, as the server describes them; nothing is executed."""
        described = self._connection.execute(f"SELECT * FROM ({query.rstrip().rstrip(';')}) AS q LIMIT 0".encode())
        return [(c.name, c.type_code, c.display_size, c.precision, c.scale) for c in described.description or ()]

    def request_recapture(self, relid: int) -> None:
        """Ask the consumer to copy a relation anew."""
        self._connection.execute("SELECT pgtrickle._request_recapture(%s::int8::oid)", (relid,))

    def recapture_epoch(self, relid: int) -> int:
        """How often that was asked for."""
        row = self._connection.execute(
            "SELECT epoch FROM pgtrickle.pgt_recaptures WHERE source_relid = %s::int8::oid", (relid,)
        ).fetchone()
        return int(str(row[0])) if row else 0

    def advance_unchanged(self, ids: list[int], old: Lsn, new: Lsn, as_of: datetime) -> list[int]:
        """Move the frontier of stream tables whose rows the window does not touch; return those moved."""
        rows = self._connection.execute(
            "UPDATE pgtrickle.pgt_frontiers SET frontier = %s::pg_lsn, data_timestamp = %s"
            " WHERE pgt_id = ANY(%s) AND frontier = %s::pg_lsn RETURNING pgt_id",
            (str(new), as_of, ids, str(old)),
        ).fetchall()
        return [int(str(row[0])) for row in rows]

    def suspend(self, pgt_id: int, error: TrickleError) -> None:
        """Take a stream table out of service with its reason, and tell whoever listens."""
        with self._connection.transaction():
            self._connection.execute(
                "UPDATE pgtrickle.pgt_stream_tables SET status = 'SUSPENDED', last_error_at = now(),"
                " last_error_code = %s, last_error_message = %s, last_error_hint = %s WHERE pgt_id = %s",
                (type(error).__name__, error.problem, error.hint, pgt_id),
            )
            alert = {"event": "suspended", "pgt_id": pgt_id, "error": error.problem[:2000]}
            self._connection.execute("SELECT pg_notify(%s, %s)", (ALERT_CHANNEL, json.dumps(alert)))

    def save_plan(self, pgt_id: int, plan: dict[str, object]) -> None:
        """How a stream table is kept, for explain_stream_table(); nothing when it is dropped at this moment."""
        self._connection.execute(
            "INSERT INTO pgtrickle.pgt_plans (pgt_id, plan) SELECT pgt_id, %s::jsonb FROM pgtrickle.pgt_stream_tables"
            " WHERE pgt_id = %s FOR KEY SHARE"
            " ON CONFLICT (pgt_id) DO UPDATE SET plan = excluded.plan, planned_at = now()",
            (json.dumps(plan), pgt_id),
        )

    def prune_history(self, days: int) -> int:
        """Forget refreshes older than that; return how many."""
        return self._connection.execute(
            "DELETE FROM pgtrickle.pgt_refresh_history WHERE start_time < now() - make_interval(days => %s)", (days,)
        ).rowcount

    def load_manifest(self, applier: str) -> Manifest:
        """The last checkpoint; the empty one before the first."""
        with self._connection.cursor(row_factory=dict_row) as cursor:
            row = cursor.execute(
                "SELECT manifest FROM pgtrickle.pgt_checkpoints WHERE applier = %s", (applier,)
            ).fetchone()
        return Manifest.from_json(row["manifest"]) if row else EMPTY_MANIFEST

    def save_manifest(self, applier: str, manifest: Manifest) -> None:
        """Make a checkpoint the one to load."""
        self._connection.execute(
            "INSERT INTO pgtrickle.pgt_checkpoints (applier, frontier, manifest) VALUES (%s, %s::pg_lsn, %s::jsonb)"
            " ON CONFLICT (applier) DO UPDATE SET frontier = excluded.frontier, manifest = excluded.manifest,"
            " written_at = now()",
            (applier, str(manifest.frontier), json.dumps(manifest.to_json())),
        )


def record_refresh(cursor: psycopg.Cursor[tuple[object, ...]], refresh: Refresh) -> None:
    """Write a line of history, in the caller's transaction."""
    cursor.execute(
        "INSERT INTO pgtrickle.pgt_refresh_history (pgt_id, start_time, end_time, action, refresh_reason,"
        " rows_inserted, rows_deleted, tick_watermark_lsn, status)"
        " VALUES (%s, %s, %s, %s, %s, %s, %s, %s::pg_lsn, 'COMPLETED')",
        (
            refresh.pgt_id,
            refresh.started,
            datetime.now(UTC),
            refresh.action,
            refresh.reason,
            refresh.rows_inserted,
            refresh.rows_deleted,
            str(refresh.tick),
        ),
    )


def move_frontier(cursor: psycopg.Cursor[tuple[object, ...]], pgt_id: int, old: Lsn, new: Lsn, as_of: datetime) -> None:
    """Move a stream table's frontier in the caller's transaction; it must stand where we believe it does."""
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
