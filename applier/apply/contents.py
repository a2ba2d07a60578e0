"""What a stream table should hold -> how that differs from what it holds. PostgreSQL compares.

    difference = contents − held

Two rows are the same when PostgreSQL prints them the same: 1.0 and 1.00 are equal, and yet the table should show the
one its query returns.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

import psycopg
import pyarrow as pa
from psycopg import sql

from applier.apply import copy_text, merge_sql
from applier.stream_table import StreamTable
from applier.trace.rows import arrow_type
from applier.zset import WEIGHT, column_name, column_names, copies

Cursor = psycopg.Cursor[tuple[object, ...]]

Contents: TypeAlias = pa.Table | sql.Composable
"""The rows as a Z-set in Arrow, or a SELECT that PostgreSQL evaluates in the same transaction."""

FETCH_ROWS = 4_096


def difference(cursor: Cursor, table: StreamTable, contents: Contents) -> pa.Table:
    """The net rows that make the stream table hold `contents`, in the caller's transaction."""
    schema = _schema(table, contents)
    whole = sql.Identifier(f"pgt_whole_{table.id}")
    cursor.execute(merge_sql.create_whole_table(table, whole))
    if isinstance(contents, pa.Table):
        with cursor.copy(sql.SQL("COPY {} FROM STDIN " + copy_text.OPTIONS).format(whole)) as copy:
            for piece in copy_text.pieces(copies(contents, len(table.columns))):
                copy.write(piece)
    else:
        cursor.execute(sql.SQL("INSERT INTO {} {}").format(whole, contents))
    found = read(cursor.connection, _difference_sql(table, whole, schema), schema, FETCH_ROWS)
    rows = pa.Table.from_batches(found, schema)
    cursor.execute(sql.SQL("DROP TABLE {}").format(whole))
    return rows


def _schema(table: StreamTable, contents: Contents) -> pa.Schema:
    if isinstance(contents, pa.Table):
        return contents.select([*column_names(len(table.columns)), WEIGHT]).schema
    fields = [pa.field(column_name(i), arrow_type(c.type)) for i, c in enumerate(table.columns)]
    return pa.schema([*fields, pa.field(WEIGHT, pa.int64())])


def shown(table: StreamTable, schema: pa.Schema, *, by_place: bool = False) -> list[sql.Composable]:
    """The columns as they are compared and read: what rests as text is the text PostgreSQL prints."""
    return [
        sql.SQL('{}::text COLLATE "C"' if pa.types.is_string(schema.field(i).type) else "{}").format(
            sql.Identifier(column_name(i) if by_place else column.name)
        )
        for i, column in enumerate(table.columns)
    ]


def _difference_sql(table: StreamTable, whole: sql.Identifier, schema: pa.Schema) -> sql.Composed:
    places = [sql.Identifier(column_name(i)) for i in range(len(table.columns))]
    named = [
        sql.SQL("{} AS {}").format(expression, place)
        for expression, place in zip(shown(table, schema), places, strict=True)
    ]
    return sql.SQL(
        "SELECT {names}, sum(w)::int8 AS w FROM ("
        "SELECT {shown}, 1 AS w FROM {whole} UNION ALL SELECT {shown}, -1 FROM {target}"
        ") both_sides GROUP BY {names} HAVING sum(w) <> 0"
    ).format(
        names=sql.SQL(", ").join(places),
        shown=sql.SQL(", ").join(named),
        whole=whole,
        target=merge_sql.target(table),
    )


def read(
    connection: psycopg.Connection[tuple[object, ...]], query: sql.Composed, schema: pa.Schema, size: int
) -> Iterator[pa.RecordBatch]:
    """What a query returns, `size` rows at a time, in the caller's transaction."""
    with connection.cursor("pgt_rows") as rows:
        rows.itersize = size
        rows.execute(query)
        while some := rows.fetchmany(size):
            columns = zip(*some, strict=True)
            yield pa.RecordBatch.from_arrays(
                [pa.array(column, f.type) for column, f in zip(columns, schema, strict=True)], schema=schema
            )
