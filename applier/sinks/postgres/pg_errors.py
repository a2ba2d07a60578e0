"""What PostgreSQL says against the rows of a stream table, in words that hold no value of a row but its key."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable

import psycopg
import pyarrow as pa
from psycopg import errors

from applier.errors import Infrastructure, TargetError, TargetFull, TargetLocked
from applier.plan.stream_table import StreamTable
from applier.sinks.postgres.copy_text import encode_csv
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


def is_transient(error: psycopg.Error) -> bool:
    """Whether it says nothing about the rows: the same may succeed in a moment."""
    state = error.sqlstate or ""
    return not state or state[:2] in _PASSING or state in _PASSING_CODES


def to_refresh_error(error: psycopg.Error, table: StreamTable, row: str | None) -> TrickleError:
    """One of ours: Infrastructure for what passes, TargetError for what somebody has to mend."""
    if is_transient(error):
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


def bisect_rejected(rows: pa.Table, taken: Callable[[pa.Table], bool]) -> pa.Table:
    """Rows that are not taken -> the one among them that is to blame."""
    while rows.num_rows > 1:
        half = rows.slice(0, rows.num_rows // 2)
        rows = rows.slice(rows.num_rows // 2) if taken(half) else half
    return rows


def row_identity(table: StreamTable, row: pa.Table) -> str:
    """Its key; a row without one is told apart by a digest, which gives nothing away."""
    if table.key:
        return ", ".join(f"{table.columns[i].name} = {row[column_name(i)][0].as_py()}" for i in table.key)
    values = row.select([column_name(i) for i in range(len(table.columns))])
    return f"digest {hashlib.sha256(encode_csv(values)).hexdigest()[:16]}"


_HOME = re.compile(r"\[pgt:([0-9a-f]*):(\w+):([0-9a-f]*)\]")
_TOLD: tuple[type[TrickleError], ...] = (Infrastructure, TargetError, TargetFull, TargetLocked)


def encode_for_driver(error: TrickleError) -> RuntimeError:
    """An error that an executor found the words for, as something whose text gets through Spark."""
    problem, hint = (text.encode().hex() for text in (error.problem, error.hint))
    return RuntimeError(f"[pgt:{problem}:{type(error).__name__}:{hint}]")


def decode_from_executor(text: str) -> TrickleError | None:
    """The error again, from what Spark says; None where it is another one."""
    found = _HOME.search(text)
    if found is None:
        return None
    problem, hint = (bytes.fromhex(found[group]).decode() for group in (1, 3))
    return next(kind for kind in _TOLD if kind.__name__ == found[2])(problem, hint=hint)
