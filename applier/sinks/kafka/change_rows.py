"""A stream table's net delta -> change rows of the topic contract. Pure."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from itertools import count
from typing import Any

import pyarrow as pa

from applier.plan.stream_table import StreamTable
from applier.sinks.delta import DeltaRows, MemoryDelta
from applier.sinks.net_delta import row_tuples
from shared_schema.change_row import ChangeRow, Op, Stamp, Value
from shared_schema.lsn import Lsn
from shared_schema.pg_types import VARHDRSZ, PgType, PhysicalType
from shared_schema.table_schema import ReplicaIdentity, TableSchema

BATCH_ROWS = 4_096
"""Of a delta that is not in memory, at a time."""


def last_position(delta: DeltaRows) -> Lsn:
    """The last position the window covers: its frontier is exclusive."""
    return Lsn(delta.lsn_range.upper.value - 1)


def topic_schema(table: StreamTable) -> TableSchema:
    """How the stream table's topic describes its rows."""
    key = tuple(table.columns[i].name for i in table.key or ())
    return TableSchema(table.table, table.relid, table.columns, key, ReplicaIdentity.FULL)


def avro_value(pg: PgType, value: Any) -> Value:
    """A computed value in the physical type of its column: what PostgreSQL would print where that is text."""
    if value is None:
        return None
    if pg.physical_type is PhysicalType.TEXT and not isinstance(value, str):
        return format(value, "f") if isinstance(value, Decimal) else str(value)
    if pg.name == "bpchar" and isinstance(value, str) and pg.typmod > VARHDRSZ:
        return value.ljust(pg.typmod - VARHDRSZ)
    result: Value = value
    return result


def change_rows(table: StreamTable, delta: DeltaRows, *, number: int, empty_first: bool) -> Iterator[ChangeRow]:
    """The delta as change rows: D before I, both halves of a keyed change adjacent; stamped inside the window.

    `number` is the window's, in place of a transaction's: each has the number after the one before it.
    `empty_first` puts a TRUNCATE before them: the topic still holds another stream table's rows.
    """
    lsn = last_position(delta)
    now_us = time.time_ns() // 1000
    if empty_first:
        yield ChangeRow(Op.TRUNCATE, Stamp(lsn, 0), number, now_us, None)
    stamps = (Stamp(lsn, seq) for seq in count(int(empty_first)))
    waiting: ChangeRow | None = None
    for *values, weight in _ordered(table, delta):
        wire = tuple(avro_value(c.type, v) for c, v in zip(table.columns, values, strict=True))
        op = Op.INSERT if weight > 0 else Op.DELETE
        for _ in range(abs(weight)):
            row = ChangeRow(op, next(stamps), number, now_us, wire, snapshot=delta.is_fill)
            if waiting is not None:
                waiting, row = _mark_update(waiting, row, table.key)
                yield waiting
            waiting = row
    if waiting is not None:
        yield waiting


def _ordered(table: StreamTable, delta: DeltaRows) -> Iterator[tuple[Any, ...]]:
    if isinstance(delta, MemoryDelta):
        yield from _by_key(table, delta.rows)
    else:
        for batch in delta.batches(BATCH_ROWS):
            yield from row_tuples(batch)


def _by_key(table: StreamTable, rows: pa.Table) -> list[tuple[Any, ...]]:
    tuples = list(row_tuples(rows))
    if table.key is None:
        return sorted(tuples, key=lambda row: row[-1])
    place: dict[tuple[Any, ...], int] = {}
    key = table.key
    for row in tuples:
        place.setdefault(tuple(row[i] for i in key), len(place))
    return sorted(tuples, key=lambda row: (place[tuple(row[i] for i in key)], row[-1]))


def _mark_update(old: ChangeRow, new: ChangeRow, key: tuple[int, ...] | None) -> tuple[ChangeRow, ChangeRow]:
    """A D directly before an I of the same key is an update: both say which columns changed."""
    if key is None or (old.op, new.op) != (Op.DELETE, Op.INSERT) or old.values is None or new.values is None:
        return old, new
    if any(old.values[k] != new.values[k] for k in key):
        return old, new
    pairs = enumerate(zip(old.values, new.values, strict=True))
    changed = frozenset(j for j, (a, b) in pairs if a != b)
    return replace(old, changed=changed), replace(new, changed=changed)
