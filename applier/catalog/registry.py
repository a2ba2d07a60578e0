"""The stored stream tables, their frontiers and the checkpoint, in schema `pgtrickle`. IO shell around plain rows."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum

import psycopg
from psycopg.errors import ForeignKeyViolation
from psycopg.rows import class_row, dict_row

from applier.catalog.database import Connection, Database
from applier.errors import AnotherApplier, Superseded
from applier.plan.stream_table import Status
from applier.sql.analyze.function_bodies import digests
from applier.trace.store import EMPTY_MANIFEST, Manifest
from shared_schema.errors import TrickleError
from shared_schema.lsn import ORIGIN, Lsn, Window
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
    schedule: str
    refresh_mode: str
    full_policy: str
    append_only: bool
    auto_threshold: float | None
    frontier: str | None
    data_timestamp: datetime | None
    asked: bool
    """Whether somebody waits for it right now."""
    reads: list[int]
    """Relations of the stream tables it reads."""
    elsewhere: bool
    """Whether it also reads what leaves no rows in the log."""
    partial: bool = False
    """Whether a progressive window was begun and not ended: its rows are those of no frontier."""
    altered: bool = False
    """Whether another query with the same columns waits to be adopted."""
    replaces: int | None = None
    """The stream table whose place this one is built to take."""
    error: str | None = None
    hint: str | None = None

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


class Service(Enum):
    """What is asked of the applier as a whole."""

    RUN = "running"
    DRAIN = "asked"
    """Bring everything up to now, without regard to schedules."""
    REST = "resting"


@dataclass(frozen=True)
class Executed:
    """How a refresh came to its rows, for the history."""

    action: str
    reason: str
    detail: str
    initiated_by: str
    started: datetime
    rows_in: int
    compute_ms: float


@dataclass(frozen=True)
class Refresh:
    """What one refresh of one stream table did, for the history."""

    pgt_id: int
    executed: Executed
    rows_inserted: int
    rows_deleted: int
    write_ms: float
    window: Window


_FINGERPRINTS = """
SELECT c.oid::int8, md5(format('%%s %%s %%s %%s %%s %%s', n.nspname, c.relname,
    -- What a source is refused for: policies, children that are no partitions, partitions that are not logged.
    format('%%s %%s %%s', c.relrowsecurity, c.relispartition, c.relkind = 'r' AND EXISTS (
        SELECT FROM pg_catalog.pg_inherits h WHERE h.inhparent = c.oid)),
    CASE WHEN c.relkind = 'p' THEN (
        SELECT count(*) FROM pg_catalog.pg_partition_tree(c.oid) t JOIN pg_catalog.pg_class p ON p.oid = t.relid
        WHERE p.relkind = 'f' OR p.relpersistence <> 'p') END,
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
                " s.defining_query, s.analysed_at AS created_at, s.status, s.schedule, s.refresh_mode, s.full_policy,"
                " s.append_only,"
                " s.auto_threshold, f.frontier::text AS frontier, f.data_timestamp,"
                " s.pgt_id IN (SELECT pgtrickle._asked_for()) AS asked,"
                " ARRAY(SELECT d.source_relid::int8 FROM pgtrickle.pgt_dependencies d"
                "       WHERE d.pgt_id = s.pgt_id AND d.source_type = 'STREAM_TABLE') AS reads,"
                " EXISTS (SELECT FROM pgtrickle.pgt_dependencies d"
                "         WHERE d.pgt_id = s.pgt_id AND d.source_type = 'UNCAPTURED') AS elsewhere,"
                " s.partial_until IS NOT NULL AS partial,"
                " a.pgt_id IS NOT NULL AS altered, s.replaces, s.last_error_message AS error, s.last_error_hint AS hint"
                " FROM pgtrickle.pgt_stream_tables s"
                " LEFT JOIN pgtrickle.pgt_frontiers f USING (pgt_id)"
                " LEFT JOIN pgtrickle.pgt_alterations a USING (pgt_id) ORDER BY s.pgt_id"
            ).fetchall()

    def base_sources(self, pgt_id: int) -> frozenset[TableId]:
        """The captured tables a stream table is computed from, through any others."""
        rows = self._connection.execute(
            "SELECT source_schema, source_name FROM pgtrickle._base_sources(%s)", (pgt_id,)
        ).fetchall()
        return frozenset(TableId(str(schema), str(name)) for schema, name in rows)

    def position(self) -> Lsn:
        """The end of the log now."""
        row = self._connection.execute("SELECT pg_catalog.pg_current_wal_insert_lsn()::text").fetchone()
        return Lsn.parse(str(row[0])) if row else ORIGIN

    def note_state(self, pgt_id: int, mode: str, reason: str, next_refresh_at: datetime | None) -> None:
        """What people see of the scheduler: what was executed last and when the next refresh is due."""
        with suppress(ForeignKeyViolation):
            self._connection.execute(
                "INSERT INTO pgtrickle.pgt_runtime (pgt_id, effective_refresh_mode, effective_reason, next_refresh_at)"
                " VALUES (%s, %s, %s, %s) ON CONFLICT (pgt_id) DO UPDATE SET consecutive_errors = 0,"
                " effective_refresh_mode = excluded.effective_refresh_mode,"
                " effective_reason = excluded.effective_reason, next_refresh_at = excluded.next_refresh_at",
                (pgt_id, mode, reason, next_refresh_at),
            )

    def note_errors(self, pgt_id: int, errors: int) -> None:
        """Failures in a row, for people."""
        self._connection.execute(
            "UPDATE pgtrickle.pgt_runtime SET consecutive_errors = %s WHERE pgt_id = %s", (errors, pgt_id)
        )

    def service(self) -> Service:
        """What is asked of the applier as a whole."""
        row = self._connection.execute("SELECT pgtrickle._drain_state()").fetchone()
        return Service(str(row[0]) if row else "running")

    def note_service(self, applier: str, state: str, frontier: Lsn) -> None:
        """Say what the applier as a whole does: RUNNING, DRAINED or STOPPED."""
        self._connection.execute(
            "INSERT INTO pgtrickle.pgt_service (applier, state, frontier) VALUES (%s, %s, %s::pg_lsn)"
            " ON CONFLICT (applier) DO UPDATE SET state = excluded.state, frontier = excluded.frontier, since = now()",
            (applier, state, str(frontier)),
        )

    def record_failure(self, pgt_id: int, executed: Executed, window: Window, error: TrickleError) -> None:
        """A line of history for a refresh that failed."""
        with suppress(ForeignKeyViolation), self._connection.cursor() as cursor:
            record_refresh(cursor, Refresh(pgt_id, executed, 0, 0, 0.0, window), error.problem)

    def alert(self, event: str, **about: int | str) -> None:
        """Tell whoever listens; long texts are cut, for the server takes no more than 8 000 bytes."""
        content = {name: value[:2000] if isinstance(value, str) else value for name, value in about.items()}
        self._connection.execute("SELECT pg_notify(%s, %s)", (ALERT_CHANNEL, json.dumps({"event": event} | content)))

    def revert_append_only(self, pgt_id: int) -> None:
        """Rows left an append-only stream table: it is kept like any other from now on."""
        self._connection.execute(
            "UPDATE pgtrickle.pgt_stream_tables SET append_only = false WHERE pgt_id = %s", (pgt_id,)
        )

    def fingerprints(self, relids: Collection[int]) -> dict[int, str]:
        """Per relation a text that changes with its name, its columns and its keys; none for one that is gone."""
        if not relids:
            return {}
        rows = self._connection.execute(_FINGERPRINTS, (list(relids),)).fetchall()
        return {int(str(relid)): str(text) for relid, text in rows}

    def function_digests(self, oids: Collection[int]) -> dict[int, str]:
        """What these functions do now, as a digest; none for one that is gone."""
        return digests(self._connection, oids)

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
            self.alert("suspended", pgt_id=pgt_id, error=error.problem, hint=error.hint)

    def save_plan(self, pgt_id: int, plan: dict[str, object]) -> None:
        """How a stream table is kept, for explain_stream_table(); nothing when it is dropped at this moment."""
        self._connection.execute(
            "INSERT INTO pgtrickle.pgt_plans (pgt_id, plan) SELECT pgt_id, %s::jsonb FROM pgtrickle.pgt_stream_tables"
            " WHERE pgt_id = %s FOR KEY SHARE"
            " ON CONFLICT (pgt_id) DO UPDATE SET plan = excluded.plan, planned_at = now()",
            (json.dumps(plan), pgt_id),
        )

    def readers(self, relid: int) -> set[int]:
        """Which stream tables read one, through any number of others."""
        rows = self._connection.execute("SELECT pgt_id FROM pgtrickle._readers_of(%s::int8::oid)", (relid,)).fetchall()
        return {int(str(row[0])) for row in rows}

    @contextmanager
    def adopting(self, pgt_id: int, expected: str | None = None) -> Iterator[None]:
        """A transaction in which the stream table has the query that waits for it; it does not wait long itself.

        Superseded when that is not the `expected` one any more.
        """
        with self._connection.transaction():
            # Shorter than deadlock_timeout: where somebody drops it meanwhile, it is we who give way.
            self._connection.execute("SET LOCAL lock_timeout = '300ms'")
            self._connection.execute("SELECT pgtrickle._adopt(%s)", (pgt_id,))
            adopted = self._connection.execute(
                "SELECT defining_query FROM pgtrickle.pgt_stream_tables WHERE pgt_id = %s", (pgt_id,)
            ).fetchone()
            if expected is not None and adopted != (expected,):
                raise Superseded(f"stream table {pgt_id} was altered again or dropped")
            yield

    def exchange(self, pgt_id: int) -> None:
        """A stream table that was built beside another takes its place; a reader of the old one is not waited for."""
        with self._connection.transaction():
            self._connection.execute("SET LOCAL lock_timeout = '300ms'")
            self._connection.execute("SELECT pgtrickle._exchange(%s)", (pgt_id,))

    def refuse_alteration(self, pgt_id: int, error: TrickleError) -> None:
        """The old query stays; say why, where people look and to whoever listens."""
        self._connection.execute(
            "SELECT pgtrickle._refuse_alteration(%s, %s, %s, %s)",
            (pgt_id, type(error).__name__, error.problem, error.hint),
        )

    def wake(self) -> None:
        """Let the log move on."""
        self._connection.execute("SELECT pgtrickle._emit('wake')")

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


def record_refresh(cursor: psycopg.Cursor[tuple[object, ...]], refresh: Refresh, error: str | None = None) -> None:
    """Write a line of history, in the caller's transaction."""
    executed = refresh.executed
    cursor.execute(
        "INSERT INTO pgtrickle.pgt_refresh_history (pgt_id, start_time, end_time, action, refresh_reason,"
        " refresh_reason_detail, initiated_by, rows_in, rows_inserted, rows_deleted, compute_ms, write_ms,"
        " from_lsn, tick_watermark_lsn, status, error_message)"
        " VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s::pg_lsn, %s::pg_lsn, %s, %s)",
        (
            refresh.pgt_id,
            executed.started,
            datetime.now(UTC),
            executed.action,
            executed.reason,
            executed.detail or None,
            executed.initiated_by,
            executed.rows_in,
            refresh.rows_inserted,
            refresh.rows_deleted,
            executed.compute_ms,
            refresh.write_ms,
            str(refresh.window.old),
            str(refresh.window.new),
            "COMPLETED" if error is None else "FAILED",
            error,
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
