"""A delta that PostgreSQL refuses -> the row it is because of. Rows are read some at a time, wherever they are."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import psycopg
import pyarrow as pa
from psycopg import sql

from applier.errors import TargetDiverged
from applier.plan.stream_table import StreamTable
from applier.sinks.net_delta import ACT, DELETE, INSERT, UPDATE
from applier.sinks.postgres.arrow_rows import comparable_columns, read_arrow
from applier.sinks.postgres.batches import ApplyMethod, Batch, Cursor, Fill, cut_batches
from applier.sinks.postgres.copy_text import encode_csv
from applier.sinks.postgres.pg_errors import bisect_rejected, row_identity
from applier.sinks.staging.staged_delta import Delta, StagedDelta


def find_rejected_row(cursor: Cursor, table: StreamTable, way: ApplyMethod, delta: Delta, size: int) -> str | None:
    """Write the delta, batch by batch, then by halves, until one row is left that cannot be written; None when all can.

    The caller takes back what is written.
    """
    way.prepare(cursor)
    first = True
    for rows in _arranged(cursor, table, way, delta, size):
        for batch in cut_batches(rows, size):
            if not _taken(cursor, way, batch.rows, first=first):
                return row_identity(table, bisect_rejected(batch.rows, partial(_taken, cursor, way)))
            first = False
    return None


def _taken(cursor: Cursor, way: ApplyMethod, rows: pa.Table, *, first: bool = False) -> bool:
    try:
        with cursor.connection.transaction():
            way.write(cursor, Batch(rows, encode_csv(rows), first))
    except TargetDiverged:
        # A progressive window wrote these before it met the row that is looked for.
        return True
    except psycopg.Error:
        return False
    return True


def _arranged(cursor: Cursor, table: StreamTable, way: ApplyMethod, delta: Delta, size: int) -> Iterator[pa.Table]:
    """As they are written: what leaves, what changes, what comes."""
    if not isinstance(delta, StagedDelta):
        yield way.arrange(delta.rows)
    elif isinstance(way, Fill):
        yield from map(way.arrange, delta.batches(size, cursor.connection))
    else:
        for which in _phases(table):
            for part in delta.parts():
                query = _acting(table, delta, part.table, which)
                for batch in read_arrow(cursor.connection, query, _schema(table, delta), size):
                    yield pa.Table.from_batches([batch])


def _phases(table: StreamTable) -> list[str]:
    if table.key is None:
        return ["n < 0", "n > 0"]
    return [f"act = '{act}'" for act in (DELETE, UPDATE, INSERT)]


def _acting(table: StreamTable, delta: StagedDelta, part: sql.Identifier, which: str) -> sql.Composed:
    """Rows with `act` and `n`, as `way.arrange` gives them."""
    acts = sql.SQL("NULL::text, n" if table.key is None else "act, NULL::int8")
    columns = sql.SQL(", ").join(comparable_columns(table, delta.schema, by_place=True))
    return sql.SQL("SELECT {}, {} FROM {} WHERE {}").format(columns, acts, part, sql.SQL(which))


def _schema(table: StreamTable, delta: StagedDelta) -> pa.Schema:
    values = [delta.schema.field(i) for i in range(len(table.columns))]
    return pa.schema([*values, pa.field(ACT, pa.string()), pa.field("n", pa.int64())])
