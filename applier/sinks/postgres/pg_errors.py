"""An error of PostgreSQL in; an error of the applier, which shows no value of a row but its key, out."""

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

_TRANSIENT = ("08", "40", "57P", "58", "53300", "53200")
"""Beginnings of the SQLSTATEs that are not about the stream table: connection, serialization, shutdown, system, too
many connections, out of memory."""

_MESSAGES: dict[type[psycopg.Error], tuple[str, str]] = {
    errors.UndefinedTable: ("its table does not exist", "drop the stream table and create it again"),
    errors.LockNotAvailable: (
        "another session held a lock on it for too long",
        "end that session (see pg_locks), then SELECT pgtrickle.resume_stream_table(…); see target_lock_timeout_ms",
    ),
    errors.DiskFull: ("the disk is full", "free disk space: then the refresh continues without further action"),
    errors.InsufficientPrivilege: (
        "the applier's role may not write to it",
        "GRANT it the right, then SELECT pgtrickle.resume_stream_table(…)",
    ),
}


_ERROR_CLASSES: dict[type[psycopg.Error], type[TargetError]] = {
    errors.LockNotAvailable: TargetLocked,
    errors.DiskFull: TargetFull,
}


def is_about_rows(error: psycopg.Error) -> bool:
    """Whether one row causes the error: bad data, a constraint, a trigger that raises."""
    return (error.sqlstate or "")[:2] in ("22", "23", "P0")


def is_transient(error: psycopg.Error) -> bool:
    """Whether the rows do not cause the error, so that the same write may succeed later."""
    state = error.sqlstate or ""
    return not state or state.startswith(_TRANSIENT)


def to_refresh_error(error: psycopg.Error, table: StreamTable, row: str | None) -> TrickleError:
    """Return the applier's error: Infrastructure for a transient one, TargetError for one that needs a repair."""
    if is_transient(error):
        message = error.diag.message_primary or str(error)
        return Infrastructure(f"writing {table} failed: {message.splitlines()[0]}")
    for kind, (problem, hint) in _MESSAGES.items():
        if isinstance(error, kind):
            return _ERROR_CLASSES.get(kind, TargetError)(f"{table} cannot be written: {problem}", hint=hint)
    which = f"the row with {row} of {table}" if row else f"the rows of {table}"
    return TargetError(
        f"PostgreSQL rejected {which}: {describe_error(error)}",
        hint="correct the table's constraints or the source's rows, then SELECT pgtrickle.resume_stream_table(…)",
        log_text=f"PostgreSQL rejected the rows of {table}: {_describe_kind(error)}",
    )


def breaks_session(error: psycopg.Error) -> bool:
    """Whether it is an internal error of the server. Then the session itself may be broken as long as it lives: for
    example, after another session dropped its temporary tables, none of its commits succeeds."""
    return (error.sqlstate or "").startswith("XX")


def describe_error(error: psycopg.Error) -> str:
    """Return the kind of error, the constraint or column, and the server's own message."""
    kind, message = _describe_kind(error), _remove_values(error)
    return f"{kind}: {message}" if message else kind


def _describe_kind(error: psycopg.Error) -> str:
    name = "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in type(error).__name__)
    where = [("constraint", error.diag.constraint_name), ("column", error.diag.column_name)]
    return ", ".join([name.strip("_ "), *(f"{what} {named}" for what, named in where if named is not None)])


def _remove_values(error: psycopg.Error) -> str:
    """Return the primary message without values. A data exception has the value at the end, or between quotes."""
    message = (error.diag.message_primary or "").partition("\n")[0]
    if (error.sqlstate or "").startswith("22"):
        return re.sub('".*"', "…", message.partition(": ")[0])
    return message


def bisect_rejected(rows: pa.Table, is_accepted: Callable[[pa.Table], bool]) -> pa.Table:
    """Return the one row that causes PostgreSQL to reject these rows."""
    while rows.num_rows > 1:
        half = rows.slice(0, rows.num_rows // 2)
        rows = rows.slice(rows.num_rows // 2) if is_accepted(half) else half
    return rows


def row_identity(table: StreamTable, row: pa.Table) -> str:
    """Return the key of a row; without a key, a digest that does not reveal its values."""
    if table.key:
        return ", ".join(f"{table.columns[i].name} = {row[column_name(i)][0].as_py()}" for i in table.key)
    values = row.select([column_name(i) for i in range(len(table.columns))])
    return f"digest {hashlib.sha256(encode_csv(values)).hexdigest()[:16]}"


_ENCODED = re.compile(r"\[pgt:(\w+):([0-9a-f]*):([0-9a-f]*):([0-9a-f]*)\]")
_ENCODED_CLASSES: tuple[type[TrickleError], ...] = (Infrastructure, TargetError, TargetFull, TargetLocked)


def encode_for_driver(error: TrickleError) -> RuntimeError:
    """Encode an executor's error as an exception whose text survives the way through Spark."""
    problem, hint, log_text = (text.encode().hex() for text in (error.problem, error.hint, error.log_text))
    return RuntimeError(f"[pgt:{type(error).__name__}:{problem}:{hint}:{log_text}]")


def decode_from_executor(text: str) -> TrickleError | None:
    """Decode the executor's error from Spark's message; None when it holds none."""
    found = _ENCODED.search(text)
    if found is None:
        return None
    problem, hint, log_text = (bytes.fromhex(found[group]).decode() for group in (2, 3, 4))
    kind = next(kind for kind in _ENCODED_CLASSES if kind.__name__ == found[1])
    return kind(problem, hint=hint, log_text=log_text)
