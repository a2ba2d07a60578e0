"""The replication slot: what it looks like, whether our progress may go on from it, how it comes and goes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import psycopg

from cdc_consumer.errors import ForeignServer, ForeignSlot, ServerBehind, SlotLost, WrongWalLevel
from cdc_consumer.slot_gauges import SlotReading
from cdc_consumer.wal.catalog import Connection
from cdc_consumer.wal.diagnosis import RESYNC_HINT, diagnose_exception
from cdc_consumer.wal.session import ServerIdentity
from shared_schema.lsn import Lsn
from shared_schema.progress import Progress

Branches = Mapping[int, Lsn]
"""Earlier timelines of a server's history, and where it left each of them."""


def new_history_hint(slot: str) -> str:
    """What to do when positions of this server cannot be compared with those that were published."""
    return (
        "its positions cannot be compared with the published ones: publish anew with "
        f"`pg-trickle-cdc run --slot {slot}_2 --topic-prefix NEW`, and `pg-trickle-cdc drop-slot` for the old"
    )


@dataclass(frozen=True, slots=True)
class SlotState:
    """A row of pg_replication_slots."""

    name: str
    plugin: str
    database: str
    ours: bool
    """Whether it belongs to the database we are connected to."""
    active_pid: int | None
    confirmed_flush: Lsn | None
    restart_lsn: Lsn | None
    wal_status: str


_SLOT = """
SELECT slot_name, coalesce(plugin, ''), coalesce(database, ''), coalesce(database = current_database(), false),
       active_pid, confirmed_flush_lsn::text, restart_lsn::text, coalesce(wal_status, 'lost')
FROM pg_replication_slots WHERE slot_name = %s
"""


def inspect_slot(connection: Connection, name: str) -> SlotState | None:
    """The slot as the server has it now."""
    try:
        row = connection.execute(_SLOT, (name,)).fetchone()
    except psycopg.Error as error:
        raise diagnose_exception(error) from error
    if row is None:
        return None
    slot, plugin, database, ours, pid, confirmed, restart, status = row
    return SlotState(
        slot,
        plugin,
        database,
        ours,
        pid,
        Lsn.parse(confirmed) if confirmed else None,
        Lsn.parse(restart) if restart else None,
        status,
    )


_READING = """
SELECT CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END::text,
       s.confirmed_flush_lsn::text, s.restart_lsn::text, coalesce(s.wal_status, 'lost'), s.safe_wal_size,
       coalesce(age(s.catalog_xmin), 0), coalesce(r.spill_txns, 0), coalesce(r.spill_bytes, 0),
       coalesce((SELECT extract(epoch FROM max(clock_timestamp() - a.xact_start))::float8 FROM pg_stat_activity a
                 WHERE a.backend_xid IS NOT NULL), 0)
FROM pg_replication_slots s LEFT JOIN pg_stat_replication_slots r USING (slot_name) WHERE s.slot_name = %s
"""


def read_slot(connection: Connection, name: str) -> SlotReading | None:
    """What the slot costs the server now; None while there is none, or one that was given up."""
    try:
        row = connection.execute(_READING, (name,)).fetchone()
    except psycopg.Error as error:
        raise diagnose_exception(error) from error
    if row is None or row[1] is None:
        return None
    position, confirmed, restart, *rest = row
    return SlotReading(Lsn.parse(position), Lsn.parse(confirmed), Lsn.parse(restart or position), *rest)


STANDBY_LOCKS = 0x70675F74
"""Namespace of the advisory locks by which standbys are counted."""

_STANDBYS = """
SELECT a.pid, coalesce(host(a.client_addr), 'local'), a.backend_start::text
FROM pg_locks l JOIN pg_stat_activity a USING (pid)
WHERE l.locktype = 'advisory' AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND l.classid = %s::oid AND l.objid = (hashtext(%s)::bigint & 4294967295)::oid AND l.objsubid = 2 AND l.granted
ORDER BY 1
"""


def announce_standby(connection: Connection, name: str, *, waiting: bool) -> None:
    """Say that this session's process waits for the slot, or that it does no more; nobody is blocked by it."""
    function = "pg_advisory_lock_shared" if waiting else "pg_advisory_unlock_shared"
    try:
        connection.execute(f"SELECT {function}(%s::int4, hashtext(%s))".encode(), (STANDBY_LOCKS, name))
    except psycopg.Error as error:
        raise diagnose_exception(error) from error


def standbys(connection: Connection, name: str) -> list[tuple[int, str, str]]:
    """Who waits for the slot: server process of its session, address, since when."""
    try:
        return [(pid, at, since) for pid, at, since in connection.execute(_STANDBYS, (STANDBY_LOCKS, name))]
    except psycopg.Error as error:
        raise diagnose_exception(error) from error


def server_position(connection: Connection) -> Lsn:
    """Where the server's log ends now."""
    query = "SELECT CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END::text"
    try:
        row = connection.execute(query).fetchone()
    except psycopg.Error as error:
        raise diagnose_exception(error) from error
    return Lsn.parse(row[0] if row else "0/0")


def check_wal_level(connection: Connection) -> None:
    """Logical decoding must be on; from PostgreSQL 19 `replica` is enough."""
    if connection.info.server_version >= 190000:
        return
    row = connection.execute("SHOW wal_level").fetchone()
    if row is None or row[0] != "logical":
        raise WrongWalLevel(
            f"wal_level is {row[0] if row else 'unknown'}, logical decoding needs logical",
            hint="ALTER SYSTEM SET wal_level = logical, then restart PostgreSQL",
        )


def drop_replication_slot(connection: Connection, name: str) -> bool:
    """Drop the slot; False when there was none. An active slot is refused by the server."""
    try:
        connection.execute("SELECT pg_drop_replication_slot(%s)", (name,))
    except psycopg.errors.UndefinedObject:
        return False
    except psycopg.Error as error:
        raise diagnose_exception(error) from error
    return True


def check_usable(slot: SlotState) -> None:
    """Refuse a slot of our name that another program made, or one the server gave up."""
    if slot.plugin != "pgoutput" or not slot.ours:
        raise ForeignSlot(
            f"slot {slot.name} belongs to plugin {slot.plugin or 'none'} in database {slot.database or 'none'}",
            hint="choose another name with PG_TRICKLE_SLOT",
        )
    if slot.wal_status == "lost" or slot.confirmed_flush is None:
        raise SlotLost(
            f"slot {slot.name} was invalidated: the server removed log that was not read in time",
            hint=f"{RESYNC_HINT}; raise max_slot_wal_keep_size so that it does not happen again",
        )


def check_resumable(
    progress: Progress, server: ServerIdentity, slot: SlotState | None, branches: Callable[[int], Branches]
) -> None:
    """Whether streaming may go on at the stored frontier without a gap; otherwise a sentence about why not.

    `branches` asks the server for the history of a timeline; asked only when the timeline is not the one we know.
    """
    if server.system_id != progress.system_id:
        raise ForeignServer(
            f"the topics were written from server {progress.system_id}, this is {server.system_id}",
            hint=new_history_hint(progress.slot),
        )
    if server.timeline != progress.timeline:
        _check_branch(progress, server, branches(server.timeline).get(progress.timeline))
    if server.position < progress.resume_at:
        raise ServerBehind(
            f"the server's log ends at {server.position}, the topics already hold {progress.resume_at}",
            hint=f"it was restored to an older state; {new_history_hint(progress.slot)}",
        )
    if slot is None:
        raise SlotLost(
            f"slot {progress.slot} is gone, changes after {progress.resume_at} may be lost", hint=RESYNC_HINT
        )
    check_usable(slot)
    confirmed = slot.confirmed_flush
    if confirmed is None or confirmed > progress.resume_at or confirmed < progress.slot_lsn:
        raise ForeignSlot(
            f"slot {slot.name} stands at {confirmed}, our progress is {progress.resume_at} of a slot made at "
            f"{progress.slot_lsn}: it was dropped and made again, or moved by somebody else",
            hint=RESYNC_HINT,
        )


def _check_branch(progress: Progress, server: ServerIdentity, left_at: Lsn | None) -> None:
    """A promoted standby continues our history if it left our timeline at or after our position."""
    if left_at is None:
        raise ForeignServer(
            f"the topics were written on timeline {progress.timeline}, which is not in the history of timeline "
            f"{server.timeline} of this server",
            hint=new_history_hint(progress.slot),
        )
    if left_at < progress.resume_at:
        raise ForeignServer(
            f"the server left timeline {progress.timeline} at {left_at}, the topics already hold {progress.resume_at} "
            "of it: it was promoted or restored without the last changes that were published",
            hint=new_history_hint(progress.slot),
        )
