"""What PostgreSQL reports -> our typed errors. The only place that knows SQLSTATEs."""

from __future__ import annotations

import psycopg

from cdc_consumer.errors import (
    CaptureFailed,
    ConnectionLost,
    MissingRights,
    NoFreeSlot,
    PublicationMissing,
    SlotActive,
    SlotLost,
    SourceError,
    WrongWalLevel,
)

RESYNC_HINT = "run `pg-trickle-cdc drop-slot` and start again: every table is then captured anew"


VALUE_ERRORS = ("22", "23")
"""SQLSTATE classes about data and constraints."""


def diagnose_postgres(sqlstate: str, message: str) -> SourceError:
    """SQLSTATE (empty when the connection itself broke) and the server's first line -> error."""
    said = message.strip().removeprefix("ERROR:").strip().splitlines()[0] if message.strip() else "no reason given"
    match sqlstate:
        case "":
            return ConnectionLost(f"no connection to PostgreSQL: {said}", hint="is the server running?")
        case "42501" | "28000":
            return MissingRights(
                f"PostgreSQL refused: {said}",
                hint="the role needs REPLICATION, SELECT on the tables and, to create the publication, CREATE",
            )
        case "53400":
            return NoFreeSlot(f"PostgreSQL refused: {said}", hint="raise max_replication_slots and restart it")
        case "53300":
            return NoFreeSlot(f"PostgreSQL refused: {said}", hint="raise max_wal_senders or max_connections")
        case "55006":
            return SlotActive(f"PostgreSQL refused: {said}", hint="stop the other instance or let it finish")
        case "55000" if "wal_level" in said:
            return WrongWalLevel(f"PostgreSQL refused: {said}", hint="set wal_level = logical and restart it")
        case "55000":
            return SlotLost(f"the slot cannot be streamed from: {said}", hint=RESYNC_HINT)
        case "42704" if "publication" in said:
            return PublicationMissing(f"PostgreSQL refused: {said}", hint="create the publication again and restart")
        case "42704" if "slot" in said:
            return SlotLost(f"PostgreSQL refused: {said}", hint=RESYNC_HINT)
        case "58P01":
            return SlotLost(f"the server removed log we still need: {said}", hint=RESYNC_HINT)
        case "54000" | "53200":
            return SourceError(
                f"a row is larger than PostgreSQL can send: {said}",
                hint="a row's text may have 1 GB at most: make it smaller, or take its table out of the publication; "
                f"then {RESYNC_HINT}",
            )
        case "57P01" | "57P02" | "57P03" | "08006" | "08003" | "08001":
            return ConnectionLost(f"PostgreSQL closed the connection: {said}", hint="is the server restarting?")
        case "55P03" | "57014" | "40001" | "40P01" | "42P01":
            return CaptureFailed(f"PostgreSQL did not let us in yet: {said}", hint="it is tried again")
        case "XX000" if "could not open relation" in said or "cache lookup failed" in said:
            # The catalog's own functions do not expect that a table is dropped while they look at it.
            return CaptureFailed(f"a table vanished while it was looked at: {said}", hint="it is tried again")
        case _ if sqlstate[:2] in VALUE_ERRORS:
            # The server's sentence may repeat the value, and logs must not.
            return SourceError(
                f"PostgreSQL failed on a value with SQLSTATE {sqlstate}",
                hint="a publication's row filter or a generated column may be the cause: see the server's log",
            )
        case _:
            return SourceError(f"PostgreSQL reported {sqlstate}: {said}", hint="see the server's log")


def _refused_connection(message: str) -> str:
    """libpq has no SQLSTATE for a connection that was refused, only the server's sentence."""
    for words, sqlstate in (
        ("authentication", "28000"),
        ("permission denied", "42501"),
        ("replication role", "42501"),
        ("max_wal_senders", "53300"),
    ):
        if words in message:
            return sqlstate
    return ""


def diagnose_exception(error: psycopg.Error) -> SourceError:
    """The same for an exception psycopg raised."""
    sqlstate = error.sqlstate or _refused_connection(str(error))
    if not sqlstate and not isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return SourceError(f"PostgreSQL client error: {error}", hint="this is a defect, please report it")
    return diagnose_postgres(sqlstate, error.diag.message_primary or str(error))
