"""What PostgreSQL says against the rows of a stream table, in words that hold no value of a row but its key."""

from __future__ import annotations

import hashlib
import re

import psycopg
import pyarrow as pa
from psycopg import errors

from applier.apply.batches import Batch, Cursor, Way, cut
from applier.apply.copy_text import encode
from applier.errors import Infrastructure, TargetError, TargetFull, TargetLocked
from applier.stream_table import StreamTable
from applier.zset import column_name
from shared_schema.errors import TrickleError

_PASSING = ("08", "40", "57", "58")
"""Classes of SQLSTATE that say nothing about the stream table: connection, serialization, operator, system."""

_PASSING_CODES = ("53300", "53200")
"""Too many connections; out of memory."""

_WORDS: dict[type[psycopg.Error], tuple[str, str]] = {
    errors.UndefinedTable: ("its table is gone", "drop the stream table and create it again"),
    errors.LockNotAvailable: (
        "somebody held a lock on it for too long",
        "end what holds it (pg_locks), then SELECT pgtrickle.resume_stream_table(…); see target_lock_timeout_ms",
    ),
    errors.DiskFull: ("the disk is full", "make room: it goes on by itself then"),
    errors.InsufficientPrivilege: (
        "the applier's role may not write to it",
        "GRANT it the right, then SELECT pgtrickle.resume_stream_table(…)",
    ),
}


_KINDS: dict[type[psycopg.Error], type[TargetError]] = {
    errors.LockNotAvailable: TargetLocked,
    errors.DiskFull: TargetFull,
}


def is_about_rows(error: psycopg.Error) -> bool:
    """Whether one row is to blame: bad data, a constraint, a trigger that raised."""
    return (error.sqlstate or "")[:2] in ("22", "23", "P0")


def passes(error: psycopg.Error) -> bool:
    """Whether it says nothing about the rows: the same may succeed in a moment."""
    state = error.sqlstate or ""
    return not state or state[:2] in _PASSING or state in _PASSING_CODES


def explained(error: psycopg.Error, table: StreamTable, row: str | None) -> TrickleError:
    """One of ours: Infrastructure for what passes, TargetError for what somebody has to mend."""
    if passes(error):
        message = error.diag.message_primary or str(error)
        return Infrastructure(f"writing {table} failed: {message.splitlines()[0]}")
    for kind, (problem, hint) in _WORDS.items():
        if isinstance(error, kind):
            return _KINDS.get(kind, TargetError)(f"{table} cannot be written: {problem}", hint=hint)
    which = f"the row with {row} of {table}" if row else f"the rows of {table}"
    return TargetError(
        f"PostgreSQL refused {which}: {_reason(error)}",
        hint="correct the table's constraints or the source's rows, then SELECT pgtrickle.resume_stream_table(…)",
    )


def breaks_session(error: psycopg.Error) -> bool:
    """Whether the server stumbled over itself. A session can be what is broken, and stays so as long as it lives:
    after somebody dropped its temporary tables, for one, no commit of it succeeds any more."""
    return (error.sqlstate or "").startswith("XX")


def _reason(error: psycopg.Error) -> str:
    """Kind, constraint or column, and the server's own sentence."""
    name = "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in type(error).__name__)
    where = [("constraint", error.diag.constraint_name), ("column", error.diag.column_name)]
    name = ", ".join([name.strip("_ "), *(f"{what} {named}" for what, named in where if named is not None)])
    said = _without_values(error)
    return f"{name}: {said}" if said else name


def _without_values(error: psycopg.Error) -> str:
    """The primary message. That of a data exception ends with the value, or has it between quotation marks."""
    said = (error.diag.message_primary or "").partition("\n")[0]
    if (error.sqlstate or "").startswith("22"):
        return re.sub('".*"', "…", said.partition(": ")[0])
    return said


def first_refused(cursor: Cursor, table: StreamTable, way: Way, rows: pa.Table, size: int) -> str | None:
    """Write the rows, batch by batch, then by halves, until one is left that cannot be written; None when all can."""
    for batch in cut(rows, size):
        if not _taken(cursor, way, batch.rows, first=batch.first):
            left = batch.rows
            while left.num_rows > 1:
                half = left.slice(0, left.num_rows // 2)
                left = left.slice(left.num_rows // 2) if _taken(cursor, way, half, first=False) else half
            return identity_text(table, left)
    return None


def _taken(cursor: Cursor, way: Way, rows: pa.Table, *, first: bool) -> bool:
    try:
        with cursor.connection.transaction():
            way.write(cursor, Batch(rows, encode(rows), first))
    except psycopg.Error:
        return False
    return True


def identity_text(table: StreamTable, row: pa.Table) -> str:
    """Its key; a row without one is told apart by a digest, which gives nothing away."""
    if table.key:
        return ", ".join(f"{table.columns[i].name} = {row[column_name(i)][0].as_py()}" for i in table.key)
    values = row.select([column_name(i) for i in range(len(table.columns))])
    return f"digest {hashlib.sha256(encode(values)).hexdigest()[:16]}"
