"""The full result of a stream table in; its difference to the rows that the table holds, found by PostgreSQL, out.

    difference = full result − rows of the table

Two rows are the same when PostgreSQL prints them the same: 1.0 and 1.00 are equal, but the table should show the one
that its query returns.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass

import psycopg
import pyarrow as pa
from psycopg import sql

from applier.plan.stream_table import StreamTable
from applier.sinks.delta import ComputedDelta, MemoryDelta, StagedDelta
from applier.sinks.lease import Lease
from applier.sinks.postgres import copy_text, merge_sql
from applier.sinks.postgres.arrow_rows import comparable_columns, zset_schema
from applier.sinks.postgres.gather import NetRows, evaluate_net_rows
from applier.sinks.staging.staged_delta import NUMBERS
from applier.zset import WEIGHT, column_name, column_names, copies_of
from shared_schema.lsn import LsnRange

Cursor = psycopg.Cursor[tuple[object, ...]]


@dataclass(frozen=True)
class FullResult:
    """Everything a stream table should hold at the upper end of the range."""

    lsn_range: LsnRange
    rows: pa.Table | StagedDelta | sql.Identifier
    """A Z-set in Arrow or in PostgreSQL, or a temporary table of this session that holds the rows."""
    change: ComputedDelta | None = None
    """The delta over the range, for a repair: the rows in PostgreSQL belong to no frontier, those of the other sinks
    to the lower end."""

    @property
    def is_staged(self) -> bool:
        """Whether a part of it is staged, and may not have arrived yet."""
        return isinstance(self.rows, StagedDelta) or isinstance(self.change, StagedDelta)

    def wait_for_all(self) -> FullResult:
        """Wait until all parts have arrived; return itself."""
        for part in (self.rows, self.change):
            if isinstance(part, StagedDelta):
                part.wait_for_all()
        return self

    def lease(self) -> Lease[FullResult]:
        """Open a lease on its rows and on the delta of the other sinks."""
        leases = ExitStack()
        for part in (self.rows, self.change):
            if isinstance(part, StagedDelta):
                leases.enter_context(part.lease())
        return Lease(self, leases.close)


def diff_with_target(cursor: Cursor, table: StreamTable, full_result: FullResult) -> NetRows:
    """Return the net rows that make the stream table equal to the full result, in the caller's transaction."""
    rows = full_result.rows
    schema = result_fields(table, full_result) or zset_schema(table)
    if isinstance(rows, StagedDelta):
        expected = [_select_part(table, schema, part.table) for part in rows.parts()]
    else:
        expected = [_select_rows(table, schema, _copy_to_session(cursor, table, rows), 1)]
    both = sql.SQL(" UNION ALL ").join([*expected, _select_rows(table, schema, merge_sql.target(table), -1)])
    differing = sql.SQL("{} HAVING sum(w) OPERATOR(pg_catalog.<>) 0").format(_sum_same_rows(schema, both))
    return evaluate_net_rows(cursor, differing, schema)


def diff_by_key(cursor: Cursor, table: StreamTable, delta: ComputedDelta, key: merge_sql.Key) -> NetRows:
    """Return the net rows after which the table holds, for each key of the delta, what the delta leaves there.

    The table may hold other rows of these keys than those that the delta deletes, or none.
    """
    schema = pa.schema([delta.schema.field(name) for name in (*column_names(len(table.columns)), WEIGHT)])
    parts = (
        [part.table for part in delta.parts()]
        if isinstance(delta, StagedDelta)
        else [_copy_delta_to_session(cursor, table, delta)]
    )
    columns = sql.SQL(", ").join(sql.Identifier(column_name(i)) for i in range(len(table.columns)))
    changed = sql.SQL(" UNION ALL ").join(sql.SQL("SELECT {} FROM {}").format(columns, part) for part in parts)
    left = [sql.SQL("{} WHERE n > 0").format(_select_part(table, schema, part)) for part in parts]
    held = [
        sql.SQL("{} t WHERE EXISTS (SELECT FROM ({}) d WHERE {} AND {})").format(
            _select_rows(table, schema, merge_sql.target(table), -1), changed, which, same
        )
        for which, same in merge_sql.matches(table, key)
    ]
    both = sql.SQL(" UNION ALL ").join([*left, *held])
    differing = sql.SQL("{} HAVING sum(w) OPERATOR(pg_catalog.<>) 0").format(_sum_same_rows(schema, both))
    return evaluate_net_rows(cursor, differing, schema)


def target_rows(cursor: Cursor, table: StreamTable, schema: pa.Schema | None = None) -> NetRows:
    """Return all rows of the stream table, each once with its count, in the types of the schema if it is given."""
    schema = schema or zset_schema(table)
    held = _select_rows(table, schema, merge_sql.target(table), 1)
    return evaluate_net_rows(cursor, _sum_same_rows(schema, held), schema)


def _sum_same_rows(schema: pa.Schema, rows: sql.Composable) -> sql.Composed:
    """Return one row per distinct row, with the sum of the weights; 0 and -0, which are equal, are different."""
    columns = [sql.Identifier(field.name) for field in schema if field.name != WEIGHT]
    texts = [sql.SQL("{}::text").format(sql.Identifier(f.name)) for f in schema if pa.types.is_floating(f.type)]
    names, keys = (sql.SQL(", ").join(some) for some in (columns, [*columns, *texts]))
    grouping = sql.SQL(" GROUP BY {}").format(keys) if columns else sql.SQL("")
    return sql.SQL("SELECT {}, sum(w)::int8 AS w FROM ({}) r{}").format(names, rows, grouping)


def result_fields(table: StreamTable, result: FullResult | ComputedDelta) -> pa.Schema | None:
    """Return the schema in which a result was computed; None when PostgreSQL computes it."""
    rows = result.rows if isinstance(result, FullResult) else result
    if isinstance(rows, sql.Identifier):
        return None
    return pa.schema([rows.schema.field(name) for name in (*column_names(len(table.columns)), WEIGHT)])


def _copy_to_session(cursor: Cursor, table: StreamTable, rows: pa.Table | sql.Identifier) -> sql.Identifier:
    """Copy rows that PostgreSQL does not have yet into a temporary table; return its name."""
    if isinstance(rows, sql.Identifier):
        return rows
    whole = sql.Identifier(f"pgt_whole_{next(NUMBERS)}")
    cursor.execute(merge_sql.create_whole_table(table, whole))
    with cursor.copy(sql.SQL("COPY {} FROM STDIN " + copy_text.OPTIONS).format(whole)) as copy:
        for piece in copy_text.csv_pieces(copies_of(rows, len(table.columns))):
            copy.write(piece)
    return whole


def _copy_delta_to_session(cursor: Cursor, table: StreamTable, delta: MemoryDelta) -> sql.Identifier:
    """Copy the rows of a delta, with their weights, into a temporary table; return its name."""
    changed = sql.Identifier(f"pgt_changed_{next(NUMBERS)}")
    cursor.execute(merge_sql.create_delta_table(table, changed))
    with cursor.copy(sql.SQL("COPY {} FROM STDIN " + copy_text.OPTIONS).format(changed)) as copy:
        for piece in copy_text.csv_pieces(delta.rows):
            copy.write(piece)
    cursor.execute(sql.SQL("ANALYZE {}").format(changed))
    return changed


def _select_rows(table: StreamTable, schema: pa.Schema, rows: sql.Identifier, weight: int) -> sql.Composed:
    """Select the rows of a table with the stream table's column names, each with the same weight."""
    return sql.SQL("SELECT {}, {} AS w FROM {}").format(_comparable_list(table, schema), sql.Literal(weight), rows)


def _select_part(table: StreamTable, schema: pa.Schema, part: sql.Identifier) -> sql.Composed:
    """Select the rows of a staged part with their own weights."""
    return sql.SQL("SELECT {}, n AS w FROM {}").format(_comparable_list(table, schema, positional=True), part)


def _comparable_list(table: StreamTable, schema: pa.Schema, *, positional: bool = False) -> sql.Composed:
    return sql.SQL(", ").join(
        sql.SQL("{} AS {}").format(expression, sql.Identifier(column_name(i)))
        for i, expression in enumerate(comparable_columns(table, schema, positional=positional))
    )
