"""Turns errors that PostgreSQL reports into this project's typed errors. The only module that knows SQLSTATEs."""

from __future__ import annotations

import psycopg

from cdc_consumer.errors import (
    CaptureFailed,
    ConnectionLost,
    MissingRights,
    NoFreeSlot,
    PublicationMissing,
    ServerOutOfMemory,
    SlotActive,
    SlotLost,
    SourceError,
    WrongWalLevel,
)

RESYNC_HINT = "run `pg-trickle-cdc resync`: it shows which tables will be copied again, and asks"


VALUE_ERRORS = ("22", "23")
"""SQLSTATE classes for data errors and constraint violations."""


def diagnose_postgres(sqlstate: str, message: str) -> SourceError:
    """Return the typed error for a SQLSTATE (empty if the connection itself failed) and the server's message."""
    said = message.strip().removeprefix("ERROR:").strip().splitlines()[0] if message.strip() else "no reason given"
    match sqlstate:
        case "":
            return ConnectionLost(f"no connection to PostgreSQL: {said}", hint="is the server running?")
        case "42501" | "28000":
            return MissingRights(
                f"PostgreSQL refused: {said}",
                hint="the role needs REPLICATION, SELECT on the tables and, to create the publication, CREATE on the "
                "database",
            )
        case "53400":
            return NoFreeSlot(f"PostgreSQL refused: {said}", hint="raise max_replication_slots and restart PostgreSQL")
        case "53300":
            return NoFreeSlot(f"PostgreSQL refused: {said}", hint="raise max_wal_senders or max_connections")
        case "55006":
            return SlotActive(f"PostgreSQL refused: {said}", hint="stop the other instance or wait until it ends")
        case "55000" if "wal_level" in said:
            return WrongWalLevel(f"PostgreSQL refused: {said}", hint="set wal_level = logical and restart PostgreSQL")
        case "55000":
            return SlotLost(f"PostgreSQL cannot stream from the slot: {said}", hint=RESYNC_HINT)
        case "42704" if "publication" in said:
            return PublicationMissing(
                f"PostgreSQL refused: {said}",
                hint="run `pg-trickle-cdc resync`: it creates the publication again and shows what will be copied",
            )
        case "42704" if "slot" in said:
            return SlotLost(f"PostgreSQL refused: {said}", hint=RESYNC_HINT)
        case "58P01":
            return SlotLost(f"the server removed log that is still needed: {said}", hint=RESYNC_HINT)
        case "53200":
            return ServerOutOfMemory(
                f"PostgreSQL is out of memory: {said}",
                hint="it is tried again automatically; if that does not help, give the server more memory",
            )
        case "54000":
            return SourceError(
                f"a row is larger than PostgreSQL can send: {said}",
                hint="the text of a row may have at most 1 GB: make the row smaller, or remove its table from the "
                f"publication; then {RESYNC_HINT}",
            )
        case "57P01" | "57P02" | "57P03" | "08006" | "08003" | "08001":
            return ConnectionLost(f"PostgreSQL closed the connection: {said}", hint="is the server restarting?")
        case "57P05" | "25P03" | "25P04":
            return ConnectionLost(
                f"PostgreSQL closed the connection: {said}",
                hint="it is opened again automatically; our sessions lift time limits, unless somebody sets them later",
            )
        case "55P03" | "57014" | "40001" | "40P01" | "42P01" | "42703" | "3F000":
            return CaptureFailed(
                f"PostgreSQL cannot export the table yet: {said}", hint="it is tried again automatically"
            )
        case "XX000" if "could not open relation" in said or "cache lookup failed" in said:
            # PostgreSQL's catalog functions fail in this way if a table is dropped while they read it.
            return CaptureFailed(
                f"a table was dropped while it was read: {said}", hint="it is tried again automatically"
            )
        case _ if sqlstate[:2] in VALUE_ERRORS:
            # The server's message may repeat the value, and logs must not contain values.
            return SourceError(
                f"PostgreSQL failed on a value with SQLSTATE {sqlstate}",
                hint="the row filter of a publication or a generated column may be the cause: see the server's log",
            )
        case _:
            return SourceError(f"PostgreSQL reported {sqlstate}: {said}", hint="see the server's log")


def _sqlstate_of_refusal(message: str) -> str:
    """Return the SQLSTATE of a refused connection: libpq gives only the server's message."""
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
    """Return the typed error for an exception of psycopg."""
    sqlstate = error.sqlstate or _sqlstate_of_refusal(str(error))
    if not sqlstate and not isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return SourceError(f"PostgreSQL client error: {error}", hint="this is a defect, please report it")
    return diagnose_postgres(sqlstate, error.diag.message_primary or str(error))
