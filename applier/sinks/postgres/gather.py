"""A query that PostgreSQL evaluates to a Z-set in; a delta, on the driver or staged in PostgreSQL, out."""

from __future__ import annotations

from dataclasses import dataclass

import psycopg
import pyarrow as pa
from psycopg import sql

from applier.plan.stream_table import StreamTable
from applier.sinks.delta import ComputedDelta, MemoryDelta, StagedDelta
from applier.sinks.net_delta import DELETE, INSERT, UPDATE
from applier.sinks.postgres.arrow_rows import read_arrow
from applier.sinks.staging.staged_delta import NUMBERS, OLD_IMAGE, StagedPart, own_prefix
from applier.zset import column_name
from shared_schema.lsn import LsnRange

Cursor = psycopg.Cursor[tuple[object, ...]]

FETCH_ROWS = 4_096


@dataclass(frozen=True)
class DriverLimit:
    """The most rows that are collected on the driver, and the database in which larger deltas stay."""

    rows: int
    url: str


@dataclass(frozen=True)
class NetRows:
    """Net rows in a temporary table that ends with the transaction."""

    table: sql.Identifier
    schema: pa.Schema
    count: int


def evaluate_net_rows(cursor: Cursor, query: sql.Composed, schema: pa.Schema) -> NetRows:
    """Evaluate a query whose columns are c0.., text where the schema has text, then the weight w."""
    table = sql.Identifier(f"pgt_found_{next(NUMBERS)}")
    cursor.execute(sql.SQL("CREATE TEMPORARY TABLE {} ON COMMIT DROP AS {}").format(table, query))
    count = cursor.rowcount
    # The role that evaluates the query may be another one than the role that reads the rows.
    cursor.execute(sql.SQL("GRANT SELECT ON {} TO SESSION_USER").format(table))
    return NetRows(table, schema, count)


def collect_delta(
    cursor: Cursor, table: StreamTable, found: NetRows, lsn_range: LsnRange, limit: DriverLimit
) -> ComputedDelta:
    """Collect up to `limit` rows in Arrow; stage more of them in PostgreSQL, visible after the caller's commit."""
    if found.count > limit.rows:
        return _stage(cursor, table, found, lsn_range, limit.url)
    rows = read_arrow(cursor.connection, sql.SQL("TABLE {}").format(found.table), found.schema, FETCH_ROWS)
    return MemoryDelta(lsn_range, pa.Table.from_batches(rows, found.schema))


def _stage(cursor: Cursor, table: StreamTable, found: NetRows, lsn_range: LsnRange, url: str) -> StagedDelta:
    """Stage the rows as one part whose columns have exactly the stream table's types."""
    cursor.execute(
        "SELECT a.attname::text, format_type(a.atttypid, a.atttypmod) FROM pg_catalog.pg_attribute a"
        " WHERE a.attrelid = %s::int8::oid",
        (table.relid,),
    )
    types = {str(name): str(kind) for name, kind in cursor.fetchall()}
    columns = sql.SQL(", ").join(
        sql.SQL("CAST({0} AS {1}) AS {0}").format(sql.Identifier(column_name(i)), sql.SQL(types[column.name]))
        for i, column in enumerate(table.columns)
    )
    part = StagedPart(f"{own_prefix(url)}{table.id}_found_{next(NUMBERS)}", 0, 0, 0)
    cursor.execute(
        sql.SQL("CREATE UNLOGGED TABLE {} AS SELECT {}, w AS n, {} AS act FROM {} f").format(
            part.table, columns, _action_column(table), found.table
        )
    )
    cursor.execute(sql.SQL("ANALYZE {}").format(part.table))
    count_rows = "SELECT count(*), coalesce(sum(greatest(n, 0)), 0), coalesce(-sum(least(n, 0)), 0) FROM {}"
    cursor.execute(sql.SQL(count_rows).format(part.table))
    counts = cursor.fetchall()[0]
    staged = StagedDelta(lsn_range, table, url, found.schema, 1)
    staged.part_queue.add(StagedPart(part.name, *(int(str(n)) for n in counts)))
    staged.part_queue.end()
    return staged


def _action_column(table: StreamTable) -> sql.Composed:
    """Return the SQL of each row's action; the same rule as `net_delta.row_actions`."""
    if table.key is None:
        return sql.SQL("{}::text").format(sql.Literal(INSERT))
    key = sql.SQL(", ").join([sql.SQL("1"), *(sql.Identifier("f", column_name(i)) for i in table.key)])
    return sql.SQL(
        "CASE WHEN sum(w) OVER (PARTITION BY {}) OPERATOR(pg_catalog.<>) 0 THEN CASE WHEN w > 0 THEN {} ELSE {} END"
        " WHEN w > 0 THEN {} ELSE {} END"
    ).format(key, *(sql.Literal(act) for act in (INSERT, DELETE, UPDATE, OLD_IMAGE)))
