"""What a stream table should hold -> how that differs from what it holds. PostgreSQL compares.

    difference = contents − held

Two rows are the same when PostgreSQL prints them the same: 1.0 and 1.00 are equal, and yet the table should show the
one its query returns.
"""

from __future__ import annotations

from dataclasses import dataclass

import psycopg
import pyarrow as pa
from psycopg import sql

from applier.plan.stream_table import StreamTable
from applier.sinks.postgres import copy_text, merge_sql
from applier.sinks.postgres.arrow_rows import comparable_columns, zset_schema
from applier.sinks.postgres.gather import NetRows, evaluate_net_rows
from applier.sinks.staging.staged_delta import NUMBERS, Delta, StagedDelta
from applier.zset import WEIGHT, column_name, column_names, copies_of
from shared_schema.lsn import LsnRange

Cursor = psycopg.Cursor[tuple[object, ...]]


@dataclass(frozen=True)
class FullResult:
    """Everything a stream table should hold at the window's end."""

    lsn_range: LsnRange
    rows: pa.Table | StagedDelta | sql.Composable
    """A Z-set in Arrow or in PostgreSQL, or a SELECT that PostgreSQL evaluates in the same transaction."""
    change: Delta | None = None
    """Over the window, where it is known: PostgreSQL holds the rows of no frontier, the other sinks those of its
    beginning."""

    @property
    def is_staged(self) -> bool:
        """Whether any of it is not on the driver, and may not be there yet."""
        return isinstance(self.rows, StagedDelta) or isinstance(self.change, StagedDelta)

    def awaited(self) -> FullResult:
        """Itself, once all of it is there."""
        for part in (self.rows, self.change):
            if isinstance(part, StagedDelta):
                part.awaited()
        return self

    def release(self, *, all_holders: bool = False) -> None:
        """PostgreSQL has read it; the change belongs to whoever it is handed on to, unless nobody gets it."""
        if isinstance(self.rows, StagedDelta):
            self.rows.release()
        if all_holders and self.change is not None:
            self.change.release(all_holders=True)


def diff_with_target(cursor: Cursor, table: StreamTable, contents: FullResult) -> NetRows:
    """The net rows that make the stream table hold `contents`, in the caller's transaction."""
    rows = contents.rows
    schema = _schema(table, rows)
    if isinstance(rows, StagedDelta):
        should = [_weighted(table, schema, part.table) for part in rows.parts()]
    else:
        should = [_counted(table, schema, _copied(cursor, table, rows), 1)]
    names = sql.SQL(", ").join(sql.Identifier(column_name(i)) for i in range(len(table.columns)))
    query = sql.SQL("SELECT {}, sum(w)::int8 AS w FROM ({}) both_sides GROUP BY {} HAVING sum(w) <> 0").format(
        names, sql.SQL(" UNION ALL ").join([*should, _counted(table, schema, merge_sql.target(table), -1)]), names
    )
    return evaluate_net_rows(cursor, query, schema)


def target_rows(cursor: Cursor, table: StreamTable, schema: pa.Schema | None = None) -> NetRows:
    """What the stream table holds, each row once with its count, in the types of the schema if there is one."""
    schema = schema or zset_schema(table)
    names = sql.SQL(", ").join(sql.Identifier(column_name(i)) for i in range(len(table.columns)))
    query = sql.SQL("SELECT {}, sum(w)::int8 AS w FROM ({}) held GROUP BY {}").format(
        names, _counted(table, schema, merge_sql.target(table), 1), names
    )
    return evaluate_net_rows(cursor, query, schema)


def _schema(table: StreamTable, rows: pa.Table | StagedDelta | sql.Composable) -> pa.Schema:
    if isinstance(rows, sql.Composable):
        return zset_schema(table)
    return pa.schema([rows.schema.field(name) for name in (*column_names(len(table.columns)), WEIGHT)])


def _copied(cursor: Cursor, table: StreamTable, rows: pa.Table | sql.Composable) -> sql.Identifier:
    """Rows that PostgreSQL does not have yet, in a table of the session."""
    whole = sql.Identifier(f"pgt_whole_{next(NUMBERS)}")
    cursor.execute(merge_sql.create_whole_table(table, whole))
    if isinstance(rows, sql.Composable):
        cursor.execute(sql.SQL("INSERT INTO {} {}").format(whole, rows))
        return whole
    with cursor.copy(sql.SQL("COPY {} FROM STDIN " + copy_text.OPTIONS).format(whole)) as copy:
        for piece in copy_text.csv_pieces(copies_of(rows, len(table.columns))):
            copy.write(piece)
    return whole


def _counted(table: StreamTable, schema: pa.Schema, rows: sql.Identifier, each: int) -> sql.Composed:
    """The stream table's columns, as often as they are there."""
    return sql.SQL("SELECT {}, {} AS w FROM {}").format(_placed(table, schema), sql.Literal(each), rows)


def _weighted(table: StreamTable, schema: pa.Schema, part: sql.Identifier) -> sql.Composed:
    return sql.SQL("SELECT {}, n AS w FROM {}").format(_placed(table, schema, by_place=True), part)


def _placed(table: StreamTable, schema: pa.Schema, *, by_place: bool = False) -> sql.Composed:
    return sql.SQL(", ").join(
        sql.SQL("{} AS {}").format(expression, sql.Identifier(column_name(i)))
        for i, expression in enumerate(comparable_columns(table, schema, by_place=by_place))
    )
