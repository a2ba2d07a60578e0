"""The net rows of a delta in, change rows of the topic contract out. Pure."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from decimal import Decimal
from itertools import count
from typing import Any

import pyarrow as pa

from applier.plan.stream_table import StreamTable
from applier.sinks.net_delta import row_tuples
from applier.zset import identity
from shared_schema.change_row import ChangeRow, Op, Stamp, Value
from shared_schema.lsn import Lsn, LsnRange
from shared_schema.pg_types import VARHDRSZ, PgType, PhysicalType
from shared_schema.table_schema import ReplicaIdentity, TableSchema


def last_position(lsn_range: LsnRange) -> Lsn:
    """Return the last LSN of the range: its upper frontier is exclusive."""
    return Lsn(lsn_range.upper.value - 1)


def topic_schema(table: StreamTable) -> TableSchema:
    """Return the schema of the rows on the stream table's topic."""
    key = tuple(table.columns[i].name for i in table.key or ())
    return TableSchema(table.table, table.relid, table.columns, key, ReplicaIdentity.FULL)


def avro_value(pg: PgType, value: Any) -> Value:
    """Convert a computed value to the physical type of its column; for text, to what PostgreSQL would print."""
    if value is None:
        return None
    if pg.physical_type is PhysicalType.TEXT and not isinstance(value, str):
        return format(value, "f") if isinstance(value, Decimal) else str(value)
    if pg.name == "bpchar" and isinstance(value, str) and pg.typmod > VARHDRSZ:
        return value.ljust(pg.typmod - VARHDRSZ)
    result: Value = value
    return result


def change_rows(
    table: StreamTable,
    lsn_range: LsnRange,
    net_rows: Iterable[tuple[Any, ...]],
    *,
    number: int,
    empty_first: bool,
    first_seq: int = 0,
) -> Iterator[ChangeRow]:
    """Yield net rows, with their weights last, as change rows: D before I, the two rows of an update adjacent; stamped
    inside the LSN range.

    `number` stands in the place of the transaction id: deltas are numbered without gaps. `empty_first` puts a TRUNCATE
    before them: the topic still holds the rows of an earlier stream table. `first_seq` is the first ordinal: stamps of
    the same position may come before it.
    """
    lsn = last_position(lsn_range)
    now_us = time.time_ns() // 1000
    if empty_first:
        yield ChangeRow(Op.TRUNCATE, Stamp(lsn, first_seq), number, now_us, None)
    stamps = (Stamp(lsn, seq) for seq in count(first_seq + int(empty_first)))
    previous: ChangeRow | None = None
    for *values, weight in net_rows:
        wire = tuple(avro_value(c.type, v) for c, v in zip(table.columns, values, strict=True))
        op = Op.INSERT if weight > 0 else Op.DELETE
        for _ in range(abs(weight)):
            row = ChangeRow(op, next(stamps), number, now_us, wire, snapshot=not lsn_range.lower)
            if previous is not None:
                previous, row = _mark_update(previous, row, table.key)
                yield previous
            previous = row
    if previous is not None:
        yield previous


def sort_by_key(table: StreamTable, rows: pa.Table) -> list[tuple[Any, ...]]:
    """Return the rows of a net delta such that the two rows of an update are adjacent, the deletion first."""
    tuples = list(row_tuples(rows))
    if table.key is None:
        return sorted(tuples, key=lambda row: row[-1])
    position: dict[tuple[Any, ...], int] = {}
    key = table.key
    for row in tuples:
        position.setdefault(identity(tuple(row[i] for i in key)), len(position))
    return sorted(tuples, key=lambda row: (position[identity(tuple(row[i] for i in key))], row[-1]))


def _mark_update(old: ChangeRow, new: ChangeRow, key: tuple[int, ...] | None) -> tuple[ChangeRow, ChangeRow]:
    """Add the changed columns to a D and an I of the same key that follow each other: they are an update."""
    if key is None or (old.op, new.op) != (Op.DELETE, Op.INSERT) or old.values is None or new.values is None:
        return old, new
    before, after = identity(old.values), identity(new.values)
    if any(before[k] != after[k] for k in key):
        return old, new
    pairs = enumerate(zip(before, after, strict=True))
    changed = frozenset(j for j, (a, b) in pairs if a != b)
    return replace(old, changed=changed), replace(new, changed=changed)
