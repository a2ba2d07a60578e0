"""Implements `pg-trickle-cdc resync`: a slot that can no longer be resumed in; a plan of what will be copied, and a new
beginning on the same topics, out.

Every published table is copied again when the consumer starts. The stream tables are told before, so that each of them
is computed as a whole from the new copies and only rows that differ are written.

Positions on the topics never go back. The log of a server that was restored to an older state ends before the published
position, so it is moved past it first: a switch of the log file skips the rest of the file.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

import psycopg
from psycopg import sql

from cdc_consumer.errors import MissingRights, SlotActive, SourceError
from cdc_consumer.settings import ConsumerSettings
from cdc_consumer.sinks.open_sink import read_state
from cdc_consumer.status import drop_progress
from cdc_consumer.wal.catalog import Connection, connect, create_publication, missing_publications, published_tables
from cdc_consumer.wal.diagnosis import diagnose_exception
from cdc_consumer.wal.session import ReplicationSession
from cdc_consumer.wal.slot import SlotState, check_resumable, check_usable, inspect_slot
from shared_schema.lsn import Lsn
from shared_schema.progress import Progress
from shared_schema.stored_settings import INSTALLED
from shared_schema.table_schema import TableId

log = logging.getLogger(__name__)

MAX_SWITCHES = 65_536
"""Most log files that are skipped: 1 TB with the usual files of 16 MB."""


@dataclass(frozen=True, slots=True)
class ResyncPlan:
    """What a resync does."""

    slot: str
    cause: str | None
    """Why the stored progress cannot be resumed; None when it can."""
    restored: bool
    """Whether the server has another history than the one that was published."""
    missing: tuple[str, ...]
    """Publications that do not exist."""
    unpublished: tuple[str, ...]
    """Sources of stream tables that are in none of the publications."""
    tables: tuple[tuple[TableId, int], ...]
    """The tables that are copied again, with their size in bytes."""
    skip_to: Lsn | None
    """The published position, when the server's log ends before it."""
    skipped_bytes: int = 0


def plan_resync(settings: ConsumerSettings, *, restored: bool) -> ResyncPlan:
    """Look at slot, server, publications and progress; change nothing. Raises SlotActive while a consumer runs."""
    url = settings.database_url.get_secret_value()
    with connect(url) as catalog, ReplicationSession(url) as session:
        slot = inspect_slot(catalog, settings.slot)
        if slot is not None and slot.active_pid is not None:
            raise SlotActive(
                f"slot {settings.slot} is active: server process {slot.active_pid} streams from it",
                hint="stop pg-trickle-cdc first",
            )
        progress = read_state(settings).progress
        server = session.identify()
        blocker = _find_cause(session, slot, progress)
        missing = tuple(missing_publications(catalog, settings.publications))
        behind = progress is not None and server.position < progress.resume_at
        return ResyncPlan(
            slot=settings.slot,
            cause=blocker.problem if blocker else None,
            restored=restored
            or behind
            or (progress is not None and server.system_id != progress.system_id)
            or _left_timeline(progress, server.timeline),
            missing=missing,
            unpublished=_unpublished_sources(catalog, settings.publications),
            tables=tuple((t.table, t.bytes) for t in published_tables(catalog, settings.publications)),
            skip_to=progress.resume_at if progress is not None and behind else None,
            skipped_bytes=progress.resume_at.value - server.position.value if progress is not None and behind else 0,
        )


def _left_timeline(progress: Progress | None, timeline: int) -> bool:
    """Whether the server is on another timeline; a promoted standby counts, and costs no more than a comparison."""
    return progress is not None and progress.timeline != timeline


def _find_cause(session: ReplicationSession, slot: SlotState | None, progress: Progress | None) -> SourceError | None:
    try:
        if progress is not None:
            check_resumable(progress, session.identify(), slot, session.branches)
        elif slot is not None:
            check_usable(slot)
    except SourceError as error:
        return error
    return None


_UNPUBLISHED = """
SELECT DISTINCT format('%%I.%%I', d.source_schema, d.source_name) FROM pgtrickle.pgt_dependencies d
JOIN pg_catalog.pg_class c ON c.oid = d.source_relid
WHERE d.source_type = 'TABLE' AND NOT EXISTS (
    SELECT FROM pg_catalog.pg_publication_tables p JOIN pg_catalog.pg_namespace n ON n.nspname = p.schemaname
    JOIN pg_catalog.pg_class t ON t.relnamespace = n.oid AND t.relname = p.tablename
    WHERE p.pubname = ANY (%s) AND (t.oid = c.oid OR EXISTS (
        SELECT FROM pg_catalog.pg_partition_tree(c.oid) l WHERE l.relid = t.oid)))
ORDER BY 1
"""


def _unpublished_sources(catalog: Connection, publications: tuple[str, ...]) -> tuple[str, ...]:
    """Return the sources of stream tables that are in none of the publications; none where no applier is installed."""
    if not _is_installed(catalog):
        return ()
    try:
        return tuple(str(name) for (name,) in catalog.execute(_UNPUBLISHED, (list(publications),)))
    except psycopg.errors.InsufficientPrivilege:
        return ()


def _is_installed(catalog: Connection) -> bool:
    try:
        return catalog.execute(INSTALLED).fetchone() == (True,)
    except psycopg.Error as error:
        raise diagnose_exception(error) from error


def describe_plan(plan: ResyncPlan) -> str:
    """Format the plan as text: what is wrong, and what will be done about it, in order."""
    lines = [f"slot {plan.slot}: {plan.cause or 'nothing is wrong that a check at the start can see'}"]
    if plan.skip_to is not None:
        size = _megabytes(plan.skipped_bytes)
        lines.append(f"  the server's log is moved past the published position {plan.skip_to}, by {size}")
    lines += [f"  publication {name} is created" for name in plan.missing]
    lines += [f"  {name} is published again, and copied" for name in plan.unpublished]
    lines.append("  the slot and its stored progress are dropped; the next run makes a new slot on the same topics")
    total = sum(size for _, size in plan.tables)
    lines.append(f"  {len(plan.tables)} tables are copied again, {_megabytes(total)} in all:")
    lines += [f"    {table} {_megabytes(size)}" for table, size in plan.tables]
    lines.append(
        "  then every stream table is computed as a whole, and rows that differ are written"
        + (": all rows to Delta and topics, which hold those of the lost history" if plan.restored else "")
    )
    return "\n".join(lines)


def _megabytes(size: int) -> str:
    return f"{size / 1_000_000:,.1f} MB"


def carry_out(settings: ConsumerSettings, plan: ResyncPlan) -> list[str]:
    """Do what the plan says, up to the start of the consumer; return what somebody else has to do before that.

    Safe to repeat: the progress goes last.
    """
    left: list[str] = []
    with connect(settings.database_url.get_secret_value()) as catalog:
        if plan.skip_to is not None:
            _move_log(catalog, plan.skip_to)
        if _is_installed(catalog):
            because = plan.cause or "resync"
            try:
                catalog.execute("SELECT pgtrickle.note_resync(%s, %s)", (because, plan.restored))
            except psycopg.errors.InsufficientPrivilege:
                call = sql.SQL("SELECT pgtrickle.note_resync({}, {})").format(because, plan.restored)
                left.append(f"as a member of the role that owns schema pgtrickle: {call.as_string(catalog)}")
            except psycopg.Error as error:
                raise diagnose_exception(error) from error
        else:
            for name in plan.missing:
                create_publication(catalog, name)
                left.append(f"add the tables to publication {name}")
    drop_progress(settings)
    return left


def _move_log(catalog: Connection, past: Lsn) -> None:
    """Switch log files until the log ends after the position."""
    try:
        for _ in range(MAX_SWITCHES):
            row = catalog.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone()
            if row is not None and Lsn.parse(row[0]) > past:
                return
            # A file is switched only when something was written to it.
            catalog.execute("SELECT pg_logical_emit_message(false, 'pg_trickle', '')")
            catalog.execute("SELECT pg_switch_wal()")
    except psycopg.errors.InsufficientPrivilege as error:
        raise MissingRights(
            f"the role may not move the server's log past {past}",
            hint="run resync with the connection of a superuser, or GRANT EXECUTE ON FUNCTION pg_switch_wal() to it",
        ) from error
    except psycopg.Error as error:
        raise diagnose_exception(error) from error
    raise SourceError(
        f"the server's log ends too far before {past}",
        hint="start with a new slot and new topics (PG_TRICKLE_SLOT, PG_TRICKLE_TOPIC_PREFIX)",
    )
