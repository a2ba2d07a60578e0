"""Finds the first row of a delta that PostgreSQL rejects. It reads the rows in batches, wherever they are stored."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import assert_never

import psycopg
import pyarrow as pa
from psycopg import sql

from applier.errors import TargetDiverged
from applier.plan.stream_table import StreamTable
from applier.sinks.delta import ComputedDelta, MemoryDelta, StagedDelta
from applier.sinks.net_delta import ACT, DELETE, INSERT, UPDATE
from applier.sinks.postgres.arrow_rows import comparable_columns, read_arrow
from applier.sinks.postgres.batches import ApplyMethod, Batch, Cursor, Fill, cut_batches
from applier.sinks.postgres.copy_text import encode_csv
from applier.sinks.postgres.pg_errors import bisect_rejected, row_identity


def find_rejected_row(
    cursor: Cursor, table: StreamTable, method: ApplyMethod, delta: ComputedDelta, size: int
) -> str | None:
    """Write the delta batch by batch, then halve the rejected batch until one row is left; None when all are accepted.

    The caller rolls back what is written.
    """
    method.prepare(cursor)
    first = True
    for rows in _rows_to_write(cursor, table, method, delta, size):
        for batch in cut_batches(rows, size):
            if not _is_accepted(cursor, method, batch.rows, first=first):
                return row_identity(table, bisect_rejected(batch.rows, partial(_is_accepted, cursor, method)))
            first = False
    return None


def _is_accepted(cursor: Cursor, method: ApplyMethod, rows: pa.Table, *, first: bool = False) -> bool:
    try:
        with cursor.connection.transaction():
            method.write(cursor, Batch(rows, encode_csv(rows), first))
    except TargetDiverged:
        # A progressive refresh committed these rows before it reached the rejected one.
        return True
    except psycopg.Error:
        return False
    return True


def _rows_to_write(
    cursor: Cursor, table: StreamTable, method: ApplyMethod, delta: ComputedDelta, size: int
) -> Iterator[pa.Table]:
    """Yield the rows in the order in which they are written: deletions, updates, insertions."""
    match delta:
        case MemoryDelta():
            yield method.arrange(delta.rows)
        case StagedDelta() if isinstance(method, Fill):
            yield from map(method.arrange, delta.batches(size, cursor.connection))
        case StagedDelta():
            for condition in _phase_conditions(table):
                for part in delta.parts():
                    query = _select_phase(table, delta, part.table, condition)
                    for batch in read_arrow(cursor.connection, query, _write_schema(table, delta), size):
                        yield pa.Table.from_batches([batch])
        case _:
            assert_never(delta)


def _phase_conditions(table: StreamTable) -> list[str]:
    if table.key is None:
        return ["n < 0", "n > 0"]
    return [f"act = '{act}'" for act in (DELETE, UPDATE, INSERT)]


def _select_phase(table: StreamTable, delta: StagedDelta, part: sql.Identifier, condition: str) -> sql.Composed:
    """Select rows with `act` and `n`, as `ApplyMethod.arrange` returns them."""
    actions = sql.SQL("NULL::text, n" if table.key is None else "act, NULL::int8")
    columns = sql.SQL(", ").join(comparable_columns(table, delta.schema, positional=True))
    return sql.SQL("SELECT {}, {} FROM {} WHERE {}").format(columns, actions, part, sql.SQL(condition))


def _write_schema(table: StreamTable, delta: StagedDelta) -> pa.Schema:
    values = [delta.schema.field(i) for i in range(len(table.columns))]
    return pa.schema([*values, pa.field(ACT, pa.string()), pa.field("n", pa.int64())])
