"""Creates stream tables, their contents as multisets, and deltas between two contents, for tests of the sinks alone."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import Any

import psycopg
import pyarrow as pa

from applier.catalog.database import Database
from applier.catalog.history import RefreshExecution
from applier.plan.expr import ValueType
from applier.plan.nodes import Field, Scan, StreamPlan
from applier.plan.stream_table import StreamTable
from applier.sinks.delta import MemoryDelta
from applier.sinks.postgres.committed_rows import CommittedRows
from applier.sinks.postgres.progressive import EarlyParts
from applier.sinks.postgres.sink import PostgresSink
from applier.sinks.postgres.transaction import WriteSession, prepare_write_session
from applier.trace.align import arrow_type
from applier.zset import WEIGHT, column_name
from shared_schema.lsn import Lsn, LsnRange
from shared_schema.pg_types import PgType
from shared_schema.table_schema import Column, TableId

Connection = psycopg.Connection[tuple[object, ...]]
Bag = Counter[tuple[Any, ...]]


def make(
    db: Connection, name: str, columns: dict[str, str], key: tuple[int, ...] | None, **catalog: str
) -> StreamTable:
    """Create an empty stream table in the catalog; its plan is an arbitrary scan."""
    listed = ", ".join(f"NULL::{kind} AS {column}" for column, kind in columns.items())
    db.execute("SELECT pgtrickle.create_stream_table(%s, %s)", (name, f"SELECT {listed} WHERE false"))
    for column, value in catalog.items():
        db.execute(f"UPDATE pgtrickle.pgt_stream_tables SET {column} = %s WHERE pgt_name = %s".encode(), (value, name))
    found = db.execute(
        "SELECT s.pgt_id, s.pgt_relid::int8, a.attname, a.atttypid::int8, a.atttypmod, t.typname,"
        " format_type(a.atttypid, a.atttypmod) FROM pgtrickle.pgt_stream_tables s"
        " JOIN pg_attribute a ON a.attrelid = s.pgt_relid AND a.attnum > 0 JOIN pg_type t ON t.oid = a.atttypid"
        " WHERE s.pgt_name = %s ORDER BY a.attnum",
        (name,),
    ).fetchall()
    typed = tuple(
        Column(str(row[2]), PgType(int(str(row[3])), int(str(row[4])), str(row[5]), str(row[6]))) for row in found
    )
    fields = tuple(Field(ValueType.of_column(c.type), True) for c in typed)
    scan = Scan(TableId("public", "t"), 1, tuple(columns), fields, key)
    pgt_id, relid = int(str(found[0][0])), int(str(found[0][1]))
    return StreamTable(pgt_id, TableId("public", name), relid, typed, StreamPlan(scan, tuple(columns)))


def zset(table: StreamTable, weights: Bag) -> pa.Table:
    rows = [(row, n) for row, n in weights.items() if n]
    arrays = {
        column_name(i): pa.array([row[i] for row, _ in rows], arrow_type(c.type)) for i, c in enumerate(table.columns)
    }
    return pa.table(arrays | {WEIGHT: pa.array([n for _, n in rows], pa.int64())})


def delta(table: StreamTable, old: Bag, new: Bag, lsn_range: tuple[int, int]) -> MemoryDelta:
    weights = Counter(new)
    weights.subtract(old)
    return MemoryDelta(LsnRange(Lsn(lsn_range[0]), Lsn(lsn_range[1])), zset(table, weights))


def sink(
    url: str, size: int = 4096, server: int | None = None, lock_timeout_ms: int = 30_000, driver_rows: int = 200_000
) -> PostgresSink:
    session = WriteSession(Database(url, prepare_write_session(lock_timeout_ms)), server)
    return PostgresSink(session, lambda: size, driver_rows)


def early_parts(url: str) -> EarlyParts:
    return EarlyParts(Database(url, prepare_write_session(30_000)), lambda: 4096)


def committed(url: str) -> CommittedRows:
    return CommittedRows(Database(url), 200_000)


def held(db: Connection, table: StreamTable) -> Bag:
    """Return the rows in PostgreSQL, as values of deltas."""
    shown = ", ".join(
        f'"{c.name}"::text' if pa.types.is_string(arrow_type(c.type)) else f'"{c.name}"' for c in table.columns
    )
    return Counter(db.execute(f"SELECT {shown} FROM {table.table.quoted}".encode()).fetchall())


def executed(reason: str) -> RefreshExecution:
    """Return an entry of the refresh history."""
    return RefreshExecution("FULL", reason, "", "SCHEDULER", datetime(2024, 2, 29, tzinfo=UTC), 0, 0.0)
