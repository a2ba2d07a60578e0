"""Reads and writes rows of `pgt_stream_tables`: the definition of a stream table, its status and its sources."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum

import psycopg
from psycopg.rows import class_row, tuple_row

from applier.catalog.database import Connection, Database
from applier.catalog.fuses import note_blown
from applier.catalog.service import note_suspended, send_alert
from applier.errors import FuseBlown
from shared_schema.alerts import AlertEvent
from shared_schema.errors import TrickleError
from shared_schema.lsn import ORIGIN, Lsn
from shared_schema.table_schema import TableId


class Status(Enum):
    """The values of pgt_stream_tables.status."""

    INITIALIZING = "INITIALIZING"
    ACTIVE = "ACTIVE"
    PAUSED = "PAUSED"
    SUSPENDED = "SUSPENDED"


@dataclass(frozen=True)
class StreamTableRow:
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
    refreshed_at: datetime | None
    """When the applier refreshed it last, by the applier's clock."""
    refresh_requested: bool
    """Whether a user requested a refresh now."""
    reads: list[int]
    """Relids of the stream tables it reads."""
    reads_uncaptured: bool
    """Whether it also reads relations whose changes are not in the log."""
    partial: bool = False
    """Whether a progressive refresh was interrupted: its rows belong to no frontier."""
    altered: bool = False
    """Whether a new query with the same columns, or these and further ones, is pending."""
    alter_reason: str = ""
    """The reason of the pending query for the history, what was seen, and who asked for it."""
    alter_detail: str = ""
    alter_initiated_by: str = ""
    replaces: int | None = None
    """The id of the stream table that this one is built to replace."""
    canary_of: int | None = None
    """The id of the stream table whose new query this one tries out."""
    error: str | None = None
    hint: str | None = None
    reinit_reason: str | None = None
    """Why it has to be computed as a whole once more; None when it has not."""
    reinit_detail: str | None = None
    reinit_initiated_by: str = ""
    reinit_requested_at: datetime | None = None
    sla_ms: int | None = None
    """How old its rows may become; None promises nothing."""
    tier: str = "hot"
    """The tier in use."""
    tier_by_hand: bool = False
    assigned_tier: str | None = None
    """The tier that the applier assigned, for which SLA, and how far it stretched the interval, as stored."""
    assigned_for_ms: int | None = None
    interval_stretch: float = 1.0
    pace_version: int = 0
    """Changes with its schedule, mode, SLA and tier."""
    fresh_until: datetime | None = None
    """The age of its rows counts from here, by the applier's clock: every source commit before it is in them."""
    sinks_differ: bool = False
    """Whether the other sinks may hold other rows than PostgreSQL; only known when a whole computation is pending."""
    gates_version: str | None = None
    """Changes with every gate and watermark group, the same for all; None when none was ever closed."""

    fuse: str | None = None
    fuse_ceiling: float | None = None
    fuse_sensitivity: float | None = None
    fuse_passes_until: str | None = None
    """Up to this position changes are let through: somebody reset its fuse."""
    catching_up_until: str | None = None
    """Up to this position it was behind when its last refresh that caught up was planned."""
    fuse_skips_until: str | None = None
    """Where its frontier is to be moved without the changes; None when nothing is to be skipped."""
    is_fuse_blown: bool = False
    """Whether it waits for `reset_fuse`."""
    has_skipped_changes: bool = False
    """Whether its rows are not those of its query, until it is computed as a whole."""

    @property
    def table(self) -> TableId:
        """Its name."""
        return TableId(self.pgt_schema, self.pgt_name)

    @property
    def is_trial(self) -> bool:
        """Whether only PostgreSQL has its rows: it is built to replace another one, or tries out a new query."""
        return self.replaces is not None or self.canary_of is not None

    @property
    def monitors_itself(self) -> bool:
        """Whether it is of `setup_self_monitoring()`."""
        return self.pgt_schema == "pgtrickle"

    @property
    def lsn(self) -> Lsn:
        """Its frontier; ORIGIN before it is filled."""
        return Lsn.parse(self.frontier) if self.frontier else ORIGIN

    @property
    def state(self) -> Status:
        """Its status."""
        return Status(self.status)

    @property
    def reinitializes(self) -> bool:
        """Whether its next refresh has to compute everything once more."""
        return self.reinit_requested_at is not None

    @property
    def in_service(self) -> bool:
        """Whether it is refreshed; a suspended one only to be repaired, and none while its fuse is blown."""
        if self.is_fuse_blown:
            return False
        match self.state:
            case Status.INITIALIZING | Status.ACTIVE:
                return True
            case Status.SUSPENDED:
                return self.reinitializes
            case Status.PAUSED:
                return False


_BASE_COLUMNS = """
WITH RECURSIVE step (attnum, attname, type, typmod) AS (
    SELECT a.attnum, a.attname::text, a.atttypid, a.atttypmod FROM pg_catalog.pg_attribute a
    WHERE a.attrelid = %s::int8::oid AND a.attnum > 0 AND NOT a.attisdropped
  UNION ALL
    SELECT s.attnum, s.attname, t.typbasetype, CASE WHEN s.typmod >= 0 THEN s.typmod ELSE t.typtypmod END
    FROM step s JOIN pg_catalog.pg_type t ON t.oid = s.type AND t.typtype = 'd'
)
SELECT s.attname, s.type::int8, s.typmod FROM step s JOIN pg_catalog.pg_type t ON t.oid = s.type AND t.typtype <> 'd'
ORDER BY s.attnum
"""


CAUSED_BY_DDL = frozenset({"SourceChanged", "PublicationChanged", "DefinitionError", "Refused"})
"""The classes of errors that DDL on what a stream table reads leads to."""

_UNFINISHED = "unfinished_plans"
"""The key in pgt_plans.plan that counts how often planning began and did not end."""


_UNFINISHED_FILLS = "unfinished_fills"
"""Likewise for computations that may end the process; 0 where one began among others when it ended."""


class StreamTableStore:
    """Reads and writes stream tables; every method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @property
    def _connection(self) -> Connection:
        return self._database.connection

    def all(self) -> list[StreamTableRow]:
        """Return every stream table, oldest first."""
        with self._connection.cursor(row_factory=class_row(StreamTableRow)) as cursor:
            return cursor.execute(
                "WITH fresh AS MATERIALIZED (SELECT pgt_id, staleness FROM pgtrickle._freshness)"
                " SELECT s.pgt_id, s.pgt_relid::int8, s.pgt_schema, s.pgt_name, s.original_query,"
                " s.defining_query, s.analysed_at AS created_at, s.status, s.schedule, s.refresh_mode, s.full_policy,"
                " s.append_only,"
                " s.auto_threshold, f.frontier::text AS frontier, f.refreshed_at,"
                " f.catching_up_until::text AS catching_up_until,"
                # A canary is requested with its stream table, so that both come to one frontier.
                " coalesce(s.canary_of, s.pgt_id) IN (SELECT pgtrickle._refresh_requests()) AS refresh_requested,"
                " ARRAY(SELECT d.source_relid::int8 FROM pgtrickle.pgt_dependencies d"
                "       WHERE d.pgt_id = s.pgt_id AND d.source_type = 'STREAM_TABLE') AS reads,"
                " EXISTS (SELECT FROM pgtrickle.pgt_dependencies d"
                "         WHERE d.pgt_id = s.pgt_id AND d.source_type = 'UNCAPTURED') AS reads_uncaptured,"
                " s.partial_until IS NOT NULL AS partial,"
                " a.pgt_id IS NOT NULL AS altered, coalesce(a.reason, '') AS alter_reason,"
                " coalesce(a.detail, '') AS alter_detail, coalesce(a.initiated_by, '') AS alter_initiated_by,"
                " s.replaces, s.canary_of,"
                " s.last_error_message AS error, s.last_error_hint AS hint,"
                " r.reason AS reinit_reason, r.detail AS reinit_detail, r.requested_at AS reinit_requested_at,"
                " coalesce(r.initiated_by, '') AS reinit_initiated_by,"
                " s.freshness_deadline_ms AS sla_ms, i.tier, s.tier_by_hand, i.assigned_tier, i.assigned_for_ms,"
                " i.interval_stretch, s.pace_version,"
                " coalesce(%s::timestamptz - n.staleness, f.refreshed_at) AS fresh_until,"
                " CASE WHEN r.pgt_id IS NOT NULL THEN pgtrickle._sinks_differ(s) ELSE false END AS sinks_differ,"
                " (SELECT pgtrickle._gates_version()) AS gates_version,"
                " s.fuse, s.fuse_ceiling, s.fuse_sensitivity, s.fuse_passes_until::text AS fuse_passes_until,"
                " s.fuse_skips_until::text AS fuse_skips_until,"
                " s.fuse_blown_at IS NOT NULL AS is_fuse_blown,"
                " s.fuse_skipped_at IS NOT NULL AS has_skipped_changes"
                " FROM pgtrickle.pgt_stream_tables s"
                " JOIN pgtrickle._tiers i USING (pgt_id)"
                " LEFT JOIN pgtrickle.pgt_frontiers f USING (pgt_id)"
                " LEFT JOIN fresh n USING (pgt_id)"
                " LEFT JOIN pgtrickle.pgt_alterations a USING (pgt_id)"
                " LEFT JOIN pgtrickle.pgt_reinitializations r ON r.pgt_id = s.pgt_id AND r.refused_at IS NULL"
                " ORDER BY s.pgt_id",
                (datetime.now(UTC),),
            ).fetchall()

    def base_sources(self, pgt_id: int) -> frozenset[TableId]:
        """Return the captured tables that a stream table reads, directly or through other stream tables."""
        rows = self._connection.execute(
            "SELECT source_schema, source_name FROM pgtrickle._base_sources(%s)", (pgt_id,)
        ).fetchall()
        return frozenset(TableId(str(schema), str(name)) for schema, name in rows)

    def readers(self, relid: int) -> set[int]:
        """Return the stream tables that read a relation, directly or through others."""
        rows = self._connection.execute("SELECT pgt_id FROM pgtrickle._readers_of(%s::int8::oid)", (relid,)).fetchall()
        return {int(str(row[0])) for row in rows}

    def base_columns(self, relid: int) -> list[tuple[str, int, int]]:
        """Return names, types and modifiers of a stream table's columns; a domain is its base type."""
        with self._connection.cursor(row_factory=tuple_row) as cursor:
            return cursor.execute(_BASE_COLUMNS, (relid,)).fetchall()

    def begin_plan(self, pgt_id: int) -> int:
        """Note that planning begins; return how often it began without an end: then it took the process along."""
        row = self._connection.execute(
            "INSERT INTO pgtrickle.pgt_plans AS p (pgt_id, plan)"
            " SELECT pgt_id, jsonb_build_object(%(mark)s::text, 1) FROM pgtrickle.pgt_stream_tables"
            " WHERE pgt_id = %(pgt_id)s FOR KEY SHARE ON CONFLICT (pgt_id) DO UPDATE SET plan ="
            " p.plan || jsonb_build_object(%(mark)s::text, coalesce((p.plan ->> %(mark)s)::int, 0) + 1)"
            " RETURNING (plan ->> %(mark)s)::int",
            {"mark": _UNFINISHED, "pgt_id": pgt_id},
        ).fetchone()
        return int(str(row[0])) - 1 if row else 0

    def unfinished_plans(self) -> set[int]:
        """Return the stream tables whose planning began without an end."""
        rows = self._connection.execute(
            "SELECT pgt_id FROM pgtrickle.pgt_plans WHERE plan ? %s::text", (_UNFINISHED,)
        ).fetchall()
        return {int(str(row[0])) for row in rows}

    def end_plan(self, pgt_id: int) -> None:
        """Note that planning ended, whatever came of it."""
        self._connection.execute(
            "UPDATE pgtrickle.pgt_plans SET plan = plan - %(mark)s::text WHERE pgt_id = %(pgt_id)s AND plan ? %(mark)s",
            {"mark": _UNFINISHED, "pgt_id": pgt_id},
        )

    def unfinished_fills(self, pgt_id: int) -> int:
        """Return how often a computation of all rows began without an end."""
        row = self._connection.execute(
            "SELECT (plan ->> %s)::int FROM pgtrickle.pgt_plans WHERE pgt_id = %s", (_UNFINISHED_FILLS, pgt_id)
        ).fetchone()
        return int(str(row[0])) if row and row[0] is not None else 0

    def suspected(self, pgt_ids: Collection[int]) -> dict[int, int]:
        """Return which of these stream tables an earlier process was computing when it died, or this one is; and how
        often a computation of them that was counted began without an end."""
        rows = self._connection.execute(
            "SELECT pgt_id, (plan ->> %(mark)s)::int FROM pgtrickle.pgt_plans"
            " WHERE pgt_id = ANY (%(ids)s) AND plan ->> %(mark)s IS NOT NULL",
            {"mark": _UNFINISHED_FILLS, "ids": list(pgt_ids)},
        ).fetchall()
        return {int(str(pgt_id)): int(str(count)) for pgt_id, count in rows}

    def begin_fill(self, pgt_id: int) -> None:
        """Note that a computation begins which may end the process."""
        self._connection.execute(
            "UPDATE pgtrickle.pgt_plans SET plan = plan"
            " || jsonb_build_object(%(mark)s::text, coalesce((plan ->> %(mark)s)::int, 0) + 1)"
            " WHERE pgt_id = %(pgt_id)s",
            {"mark": _UNFINISHED_FILLS, "pgt_id": pgt_id},
        )

    def end_fill(self, pgt_id: int) -> None:
        """Note that it ended, whatever came of it."""
        self._connection.execute(
            "UPDATE pgtrickle.pgt_plans SET plan = plan - %s::text WHERE pgt_id = %s", (_UNFINISHED_FILLS, pgt_id)
        )

    def begin_run(self) -> bool:
        """Note that a process begins to refresh; return whether the last one died. What it had noted is suspected."""
        with self._connection.transaction():
            died = self._connection.execute("SELECT pgt_ids FROM pgtrickle.pgt_begun FOR UPDATE").fetchone()
            if died is not None:
                self._connection.execute(
                    "UPDATE pgtrickle.pgt_plans SET plan = jsonb_build_object(%s::text, 0) || plan"
                    " WHERE pgt_id = ANY (%s)",
                    (_UNFINISHED_FILLS, died[0]),
                )
            self._connection.execute(
                "INSERT INTO pgtrickle.pgt_begun DEFAULT VALUES ON CONFLICT (only_row) DO UPDATE SET pgt_ids = '{}'"
            )
        return died is not None

    def note_begun(self, pgt_ids: Collection[int]) -> None:
        """Note which refreshes the process is about to compute, instead of those that it noted before.

        It is to outlive the process, not the server: nobody waits for the disk.
        """
        self._connection.execute(
            "UPDATE pgtrickle.pgt_begun SET pgt_ids = %s WHERE set_config('synchronous_commit', 'off', true) = 'off'",
            (sorted(pgt_ids),),
        )

    def end_run(self) -> None:
        """Note that the process ends by itself."""
        self._connection.execute("DELETE FROM pgtrickle.pgt_begun")

    def save_plan(self, pgt_id: int, plan: dict[str, object]) -> None:
        """Store how a stream table is maintained, for explain_stream_table(); nothing if it was just dropped."""
        self._connection.execute(
            "INSERT INTO pgtrickle.pgt_plans (pgt_id, plan) SELECT pgt_id, %s::jsonb FROM pgtrickle.pgt_stream_tables"
            " WHERE pgt_id = %s FOR KEY SHARE"
            " ON CONFLICT (pgt_id) DO UPDATE SET planned_at = now(), plan = excluded.plan"
            # Another plan may do the same again.
            " || jsonb_strip_nulls(jsonb_build_object(%s::text, pgt_plans.plan -> %s))",
            (json.dumps(_without_nul(plan)), pgt_id, _UNFINISHED_FILLS, _UNFINISHED_FILLS),
        )

    def revert_append_only(self, pgt_id: int) -> None:
        """Maintain a stream table like any other from now on: rows were deleted from it."""
        self._connection.execute(
            "UPDATE pgtrickle.pgt_stream_tables SET append_only = false WHERE pgt_id = %s", (pgt_id,)
        )

    def suspend(self, pgt_id: int, error: TrickleError) -> None:
        """Suspend a stream table with the reason, and send an alert."""
        with self._connection.transaction():
            problem = error.problem + self._describe_ddl(pgt_id, type(error).__name__)
            is_fuse = isinstance(error, FuseBlown)
            # A fuse may also blow while its stream table is out of service for another reason: that stays.
            is_new = self._connection.execute(
                "UPDATE pgtrickle.pgt_stream_tables SET status = 'SUSPENDED', last_error_at = now(),"
                " last_error_code = %s, last_error_message = %s, last_error_hint = %s"
                " WHERE pgt_id = %s AND NOT (%s AND status IN ('PAUSED', 'SUSPENDED'))",
                (type(error).__name__, problem, error.hint, pgt_id, is_fuse),
            ).rowcount
            if isinstance(error, FuseBlown):
                # A request that has come meanwhile waits for `reset_fuse`.
                note_blown(self._connection, pgt_id, error)
            else:
                # One that could not be carried out waits for `resume`: its rows are still not those of its query.
                self._connection.execute(
                    "UPDATE pgtrickle.pgt_reinitializations SET refused_at = now() WHERE pgt_id = %s", (pgt_id,)
                )
            if is_new:
                send_alert(self._connection, AlertEvent.AUTO_SUSPENDED, pgt_id=pgt_id, error=problem, hint=error.hint)
        if is_new:
            note_suspended(pgt_id)

    def _describe_ddl(self, pgt_id: int, error: str) -> str:
        """Return the DDL that event triggers saw since the stream table was planned, where it can be the cause."""
        if error not in CAUSED_BY_DDL:
            return ""
        row = self._connection.execute("SELECT pgtrickle._ddl_since(%s)", (pgt_id,)).fetchone()
        return f" ({row[0]})" if row and row[0] else ""


def lock_in_service(cursor: psycopg.Cursor[tuple[object, ...]], pgt_id: int) -> bool:
    """Whether a stream table is in service, from now until the end of the caller's transaction."""
    cursor.execute(_LOCK_IN_SERVICE, (pgt_id,))
    return cursor.fetchone() == (True,)


_LOCK_IN_SERVICE = """
SELECT s.fuse_blown_at IS NULL AND (
    s.status = 'ACTIVE' OR s.status = 'INITIALIZING' OR s.status = 'SUSPENDED' AND EXISTS (
        SELECT FROM pgtrickle.pgt_reinitializations r WHERE r.pgt_id = s.pgt_id AND r.refused_at IS NULL))
FROM pgtrickle.pgt_stream_tables s WHERE s.pgt_id = %s FOR NO KEY UPDATE OF s
"""


def _without_nul(value: object) -> object:
    """Return JSON that PostgreSQL can store: a plan may hold NUL characters, between the labels of an enum."""
    match value:
        case str():
            return value.replace("\0", " ")
        case dict():
            return {name: _without_nul(inner) for name, inner in value.items()}
        case list() | tuple():
            return [_without_nul(inner) for inner in value]
        case _:
            return value
