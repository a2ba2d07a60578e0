"""Reads, checks and drops the replication slot, and decides whether the stored progress can be resumed from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import psycopg

from cdc_consumer.errors import ForeignServer, ForeignSlot, ServerBehind, SlotLost, WrongWalLevel
from cdc_consumer.health import SlotReading
from cdc_consumer.wal.catalog import Connection
from cdc_consumer.wal.diagnosis import RESYNC_HINT, diagnose_exception
from cdc_consumer.wal.session import ServerIdentity
from shared_schema.lsn import Lsn
from shared_schema.progress import Progress

Branches = Mapping[int, Lsn]
"""The earlier timelines of a server's history, and where the server left each of them."""


def new_history_hint(slot: str) -> str:
    """Return the hint for a server whose positions cannot be compared with those that were published."""
    return (
        f"run `pg-trickle-cdc resync --restored --slot {slot}`: it moves the server's log past the published position, "
        "shows which tables will be copied again, and asks"
    )


@dataclass(frozen=True, slots=True)
class SlotState:
    """A row of pg_replication_slots."""

    name: str
    plugin: str
    database: str
    ours: bool
    """Whether it belongs to the database of this connection."""
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
    """Return the current state of the slot; None if it does not exist."""
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
    """Return what the slot costs the server now; None if there is no slot or the server has invalidated it."""
    try:
        row = connection.execute(_READING, (name,)).fetchone()
    except psycopg.Error as error:
        raise diagnose_exception(error) from error
    if row is None or row[1] is None:
        return None
    position, confirmed, restart, *rest = row
    return SlotReading(Lsn.parse(position), Lsn.parse(confirmed), Lsn.parse(restart or position), *rest)


STANDBY_LOCKS = 0x70675F74
"""Namespace of the advisory locks that show how many standbys there are."""

_STANDBYS = """
SELECT a.pid, coalesce(host(a.client_addr), 'local'), a.backend_start::text
FROM pg_locks l JOIN pg_stat_activity a USING (pid)
WHERE l.locktype = 'advisory' AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND l.classid = %s::oid AND l.objid = (hashtext(%s)::bigint & 4294967295)::oid AND l.objsubid = 2 AND l.granted
ORDER BY 1
"""


def announce_standby(connection: Connection, name: str, *, waiting: bool) -> None:
    """Show, by a shared advisory lock, that this process waits for the slot, or that it no longer does.

    The lock blocks no other session.
    """
    function = "pg_advisory_lock_shared" if waiting else "pg_advisory_unlock_shared"
    try:
        connection.execute(f"SELECT {function}(%s::int4, hashtext(%s))".encode(), (STANDBY_LOCKS, name))
    except psycopg.Error as error:
        raise diagnose_exception(error) from error


def standbys(connection: Connection, name: str) -> list[tuple[int, str, str]]:
    """Return the standbys that wait for the slot: server process of the session, address, start time."""
    try:
        return [(pid, at, since) for pid, at, since in connection.execute(_STANDBYS, (STANDBY_LOCKS, name))]
    except psycopg.Error as error:
        raise diagnose_exception(error) from error


def server_position(connection: Connection) -> Lsn:
    """Return the current end of the server's log."""
    query = "SELECT CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END::text"
    try:
        row = connection.execute(query).fetchone()
    except psycopg.Error as error:
        raise diagnose_exception(error) from error
    return Lsn.parse(row[0] if row else "0/0")


def insert_position(connection: Connection) -> Lsn:
    """Return the position after everything that a transaction which is visible by now has written, flushed or not."""
    query = (
        "SELECT CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_insert_lsn() END::text"
    )
    try:
        row = connection.execute(query).fetchone()
    except psycopg.Error as error:
        raise diagnose_exception(error) from error
    return Lsn.parse(row[0] if row else "0/0")


def check_wal_level(connection: Connection) -> None:
    """Raise WrongWalLevel if logical decoding is not possible; from PostgreSQL 19 on `replica` is enough."""
    if connection.info.server_version >= 190000:
        return
    row = connection.execute("SHOW wal_level").fetchone()
    if row is None or row[0] != "logical":
        raise WrongWalLevel(
            f"wal_level is {row[0] if row else 'unknown'}, but logical decoding needs wal_level = logical",
            hint="ALTER SYSTEM SET wal_level = logical, then restart PostgreSQL",
        )


def drop_replication_slot(connection: Connection, name: str) -> bool:
    """Drop the slot -> False if there was none. The server does not drop an active slot."""
    try:
        connection.execute("SELECT pg_drop_replication_slot(%s)", (name,))
    except psycopg.errors.UndefinedObject:
        return False
    except psycopg.Error as error:
        raise diagnose_exception(error) from error
    return True


def check_usable(slot: SlotState) -> None:
    """Raise an error for a slot of another program with the configured name, and for a slot that was invalidated."""
    if slot.plugin != "pgoutput" or not slot.ours:
        raise ForeignSlot(
            f"slot {slot.name} belongs to plugin {slot.plugin or 'none'} in database {slot.database or 'none'}",
            hint="choose another name with PG_TRICKLE_SLOT",
        )
    if slot.wal_status == "lost" or slot.confirmed_flush is None:
        raise SlotLost(
            f"slot {slot.name} was invalidated: the server removed log before it was read",
            hint=f"{RESYNC_HINT}; raise max_slot_wal_keep_size so that it does not happen again",
        )


def check_resumable(
    progress: Progress, server: ServerIdentity, slot: SlotState | None, branches: Callable[[int], Branches]
) -> None:
    """Raise an error if streaming cannot resume at the stored frontier without a gap.

    `branches` reads the history of a timeline from the server; called only if the server's timeline is another one than
    that of the progress.
    """
    if server.system_id != progress.system_id:
        raise ForeignServer(
            f"the topics were written from server {progress.system_id}, but this server is {server.system_id}",
            hint=new_history_hint(progress.slot),
        )
    if server.timeline != progress.timeline:
        _check_branch(progress, server, branches(server.timeline).get(progress.timeline))
    if server.position < progress.resume_at:
        raise ServerBehind(
            f"the server's log ends at {server.position}, but the topics already hold changes up to "
            f"{progress.resume_at}",
            hint=f"the server was restored to an older state; {new_history_hint(progress.slot)}",
        )
    if slot is None:
        raise SlotLost(
            f"slot {progress.slot} does not exist any more, changes after {progress.resume_at} may be lost",
            hint=RESYNC_HINT,
        )
    check_usable(slot)
    confirmed = slot.confirmed_flush
    if confirmed is None or confirmed > progress.resume_at or confirmed < progress.slot_lsn:
        raise ForeignSlot(
            f"the position of slot {slot.name} is {confirmed}, but the stored progress is {progress.resume_at} of a "
            f"slot that was created at {progress.slot_lsn}: the slot was dropped and created again, or another program "
            "moved it",
            hint=RESYNC_HINT,
        )


def _check_branch(progress: Progress, server: ServerIdentity, left_at: Lsn | None) -> None:
    """Raise an error unless the server left the progress's timeline at or after the position of the progress.

    Then a promoted standby continues the published history.
    """
    if left_at is None:
        raise ForeignServer(
            f"the topics were written on timeline {progress.timeline}, which is not in the history of timeline "
            f"{server.timeline} of this server",
            hint=new_history_hint(progress.slot),
        )
    if left_at < progress.resume_at:
        raise ForeignServer(
            f"the server left timeline {progress.timeline} at {left_at}, but the topics already hold changes up to "
            f"{progress.resume_at} of it: the server was promoted or restored without the last published changes",
            hint=new_history_hint(progress.slot),
        )
