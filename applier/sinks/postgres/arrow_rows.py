"""Rows of a PostgreSQL query in, Arrow batches out."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pyarrow as pa
from psycopg import sql

from applier.plan.stream_table import StreamTable
from applier.sinks.postgres.equality import printed
from applier.trace.align import arrow_type
from applier.zset import WEIGHT, column_name


def zset_schema(table: StreamTable) -> pa.Schema:
    """Return the Arrow schema of the stream table's columns under positional names, then the weight."""
    fields = [pa.field(column_name(i), arrow_type(c.type)) for i, c in enumerate(table.columns)]
    return pa.schema([*fields, pa.field(WEIGHT, pa.int64())])


def comparable_columns(table: StreamTable, schema: pa.Schema, *, positional: bool = False) -> list[sql.Composable]:
    """Return the SQL of the columns for comparison: a column whose physical type is text is the text PostgreSQL prints.

    With `positional` the columns of the source are called c0..
    """
    names = [sql.Identifier(column_name(i) if positional else c.name) for i, c in enumerate(table.columns)]
    return [
        sql.SQL('({}) COLLATE "C"').format(printed(name, column)) if pa.types.is_string(schema.field(i).type) else name
        for i, (name, column) in enumerate(zip(names, table.columns, strict=True))
    ]


def read_arrow(
    connection: psycopg.Connection[tuple[object, ...]], query: sql.Composed, schema: pa.Schema, size: int
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a query, `size` at a time, in the caller's transaction."""
    with connection.cursor("pgt_rows") as rows:
        rows.itersize = size
        rows.execute(query)
        while some := rows.fetchmany(size):
            columns = zip(*some, strict=True)
            yield pa.RecordBatch.from_arrays(
                [pa.array(column, f.type) for column, f in zip(columns, schema, strict=True)], schema=schema
            )
