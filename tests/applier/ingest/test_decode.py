"""A row is decoded to the same values in the JVM and on the driver."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from applier.ingest.decode import decode_messages
from applier.trace.stamped_rows import StampedRow
from applier.trace.trace import Trace
from applier.zset import WEIGHT
from shared_schema.avro import codec
from shared_schema.change_row import ChangeRow, Op, Stamp, Value
from shared_schema.lsn import Lsn, LsnRange
from shared_schema.pg_types import PgType
from shared_schema.table_schema import Column, ReplicaIdentity, TableId, TableSchema

VALUES: dict[Column, list[Value]] = {
    Column("a b", PgType(16, -1, "bool", "boolean")): [True, False],
    Column("int2", PgType(21, -1, "int2", "smallint")): [-32768, 32767],
    Column("Int4", PgType(23, -1, "int4", "integer")): [-(2**31), 2**31 - 1],
    Column("int8", PgType(20, -1, "int8", "bigint")): [-(2**63), 2**63 - 1],
    Column("f4", PgType(700, -1, "float4", "real")): [1.5, float("inf"), -0.0],
    Column("f8", PgType(701, -1, "float8", "double precision")): [0.1, float("-inf"), float("nan")],
    Column("money", PgType(1700, (12 << 16 | 2) + 4, "numeric", "numeric(12,2)")): [Decimal("-0.01"), Decimal(10**9)],
    Column("big", PgType(1700, (38 << 16 | 10) + 4, "numeric", "numeric(38,10)")): [Decimal(10) ** 27, Decimal(0)],
    Column("any", PgType(1700, -1, "numeric", "numeric")): ["1.00", "NaN"],
    Column("day", PgType(1082, -1, "date", "date")): [date(1, 1, 1), date(1582, 10, 10), date(9999, 12, 31)],
    Column("local", PgType(1114, -1, "timestamp", "timestamp")): [datetime(1, 1, 1), datetime(2024, 3, 31, 2, 30)],
    Column("instant", PgType(1184, -1, "timestamptz", "timestamp with time zone")): [
        datetime(1500, 1, 1, tzinfo=UTC),
        datetime(2024, 3, 31, 1, 30, 0, 123456, tzinfo=UTC),
    ],
    Column("bytes", PgType(17, -1, "bytea", "bytea")): [b"", b"\0\xff"],
    Column("padded", PgType(1042, 9, "bpchar", "character(5)")): ["ab   ", "     "],
    Column("text", PgType(25, -1, "text", "text")): ["", "ü\n'\"", "x" * 1000],
}
SCHEMA = TableSchema(TableId("public", "wide"), 1, tuple(VALUES), (), ReplicaIdentity.FULL)


def rows_of(spark: SparkSession, rows: list[ChangeRow], many: bool) -> pa.Table | None:
    trace = Trace(spark, SCHEMA.table)
    # In another order than that of the rows, and with a column that they do not have.
    late = Column("late", PgType(23, -1, "int4", "integer"))
    trace.capture([late, *reversed(SCHEMA.columns)], Lsn(1))
    if many:
        chunk = decode_messages(
            spark, codec(SCHEMA), pa.chunked_array([pa.array([codec(SCHEMA).encode(r) for r in rows])])
        )
        if chunk is None:
            return None
        trace.append_chunk(chunk)
    else:
        trace.append([StampedRow(row, SCHEMA) for row in rows])
    assert [column.name for column in trace.columns if not column.is_open] == ["late"]
    return trace.overlay(LsnRange(Lsn(0), Lsn(10**6)))


def some(seed: int) -> list[ChangeRow]:
    rng = random.Random(seed)
    return [
        ChangeRow(
            rng.choice([Op.INSERT, Op.DELETE]),
            Stamp(Lsn(10 + number // 3), number),
            1,
            0,
            tuple(rng.choice([None, *values]) for values in VALUES.values()),
        )
        for number in range(100)
    ]


def test_every_physical_type_is_decoded_alike(spark: SparkSession) -> None:
    rows = some(1)
    one_by_one, at_once = (rows_of(spark, rows, many) for many in (False, True))
    assert one_by_one is not None and at_once is not None and one_by_one.schema == at_once.schema
    for name in one_by_one.column_names:
        # Compare the texts: NaN does not equal itself.
        assert str(at_once[name].to_pylist()) == str(one_by_one[name].to_pylist()), name
    assert set(at_once[WEIGHT].to_pylist()) == {1, -1}


@pytest.mark.parametrize(
    "odd",
    [
        ChangeRow(Op.TRUNCATE, Stamp(Lsn(50), 0), 1, 0, None),
        ChangeRow(Op.DELETE, Stamp(Lsn(50), 0), 1, 0, (None,) * len(VALUES), unknown=frozenset({3})),
        ChangeRow(Op.INSERT, Stamp(Lsn(50), 0), 1, 0, tuple("infinity" if c.name == "day" else None for c in VALUES)),
    ],
    ids=["truncate", "incomplete", "special"],
)
def test_unusual_rows_are_left_to_the_driver(spark: SparkSession, odd: ChangeRow) -> None:
    assert rows_of(spark, [*some(2), odd], many=True) is None


def test_a_broken_message_is_left_to_the_driver(spark: SparkSession) -> None:
    broken = pa.chunked_array([pa.array([codec(SCHEMA).encode(some(3)[0])[:-1]])])
    assert decode_messages(spark, codec(SCHEMA), broken) is None
