"""A scan sees the net effect of an LSN range on the columns it reads; without an effect no Spark job runs."""

from __future__ import annotations

from collections import Counter
from datetime import datetime

import pytest
from pyspark.sql import SparkSession

from applier.arrange import inputs as inputs_module
from applier.arrange.traces import Traces
from applier.operators.support.inputs import Side
from applier.plan.expr import AggregateCall, Col, ValueType
from applier.plan.nodes import Aggregate, Field, Node, Scan, StreamPlan, fields
from applier.plan.stream_table import StreamTable
from applier.refresh.computing.compute import compute
from applier.spark.session import count_jobs
from applier.trace.stamped_rows import StampedRow
from applier.trace.trace import Trace
from applier.zset import ZSet
from shared_schema.change_row import ChangeRow, Op, Stamp
from shared_schema.lsn import Lsn, LsnRange
from shared_schema.pg_types import PgType
from shared_schema.table_schema import Column, ReplicaIdentity, TableId, TableSchema
from tests.applier.trace.test_trace import INT, SCHEMA, captured, change

WINDOW = LsnRange(Lsn(15), Lsn(30))
INTEGER = ValueType.of_column(INT)
BIG = ValueType.of_column(PgType(20, -1, "int8", "bigint"))
OF_A = Scan(SCHEMA.table, 1, ("a",), (Field(INTEGER, True),), None)
OF_NOTHING = Scan(SCHEMA.table, 1, (), (), None)
SUM = Aggregate(OF_A, (), (AggregateCall("sum(int4)", (Col(0, INTEGER),), BIG),))
COUNT = Aggregate(OF_NOTHING, (), (AggregateCall("count()", (), BIG, False),))


def _traces(spark: SparkSession, *later: tuple[Op, tuple[object, ...]]) -> Traces:
    trace = captured(spark)
    trace.append([change(Op.INSERT, 10, 0, (1, None, None)), change(Op.INSERT, 10, 1, (2, None, None))])
    trace.append([change(op, 20, seq, values) for seq, (op, values) in enumerate(later)])
    return Traces(spark, [trace])


def _sql(zset: ZSet | None) -> str:
    assert zset is not None
    return zset.sql


def _table(root: Node) -> StreamTable:
    columns = tuple(Column(f"n{i}", field.type.pg) for i, field in enumerate(fields(root)))
    return StreamTable(1, TableId("public", "st"), 1, columns, StreamPlan(root, tuple(c.name for c in columns)))


def _computed(spark: SparkSession, root: Node, found: Traces) -> tuple[Counter[tuple[object, ...]] | None, int]:
    """Return the delta as a multiset, or None when it is proven empty, and the number of Spark jobs."""
    before = count_jobs(spark)
    with found.through(WINDOW) as inputs:
        outcome = compute(spark, _table(root), inputs)
    jobs = count_jobs(spark) - before
    if outcome is None:
        return None, jobs
    rows = zip(*[c.to_pylist() for c in outcome.rows.columns], strict=True)
    return Counter({tuple(row[:-1]): row[-1] for row in rows}), jobs


ELSEWHERE = ((Op.DELETE, (1, None, None)), (Op.INSERT, (1, None, None)), (Op.DELETE, (2, None, None)))
UNREAD = (*ELSEWHERE, (Op.INSERT, (2, datetime(2024, 1, 1), None)))


@pytest.mark.parametrize("root", [OF_A, SUM, COUNT])
def test_an_update_of_unread_columns_runs_no_spark_job(spark: SparkSession, root: Node) -> None:
    assert _computed(spark, root, _traces(spark, *UNREAD)) == (None, 0)


def test_an_update_of_a_read_column_runs_a_job(spark: SparkSession) -> None:
    rows = _traces(spark, (Op.DELETE, (1, None, None)), (Op.INSERT, (5, None, None)), (Op.INSERT, (2, None, None)))
    assert _computed(spark, OF_A, rows)[0] == {(1,): -1, (5,): 1, (2,): 1}
    delta, jobs = _computed(spark, SUM, rows)
    assert delta == {(3,): -1, (9,): 1}
    assert _computed(spark, COUNT, rows)[0] == {(2,): -1, (3,): 1}
    assert jobs > 0


def test_a_large_lsn_range_gives_the_same(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs_module, "SMALL_RANGE_ROWS", 0)
    rows = _traces(spark, (Op.DELETE, (1, None, None)), (Op.INSERT, (5, None, None)))
    assert _computed(spark, SUM, rows)[0] == {(3,): -1, (7,): 1}


@pytest.mark.parametrize("names", [("delta", "v"), ("before", "v")])
def test_columns_may_have_any_name(spark: SparkSession, names: tuple[str, str]) -> None:
    """The columns read from an LSN range are identified by themselves, not by their names."""
    columns = tuple(Column(name, INT) for name in names)
    table = TableSchema(SCHEMA.table, 1, columns, (), ReplicaIdentity.FULL)
    trace = Trace(spark, table.table)
    trace.capture(columns, Lsn(1))

    def row(op: Op, lsn: int, seq: int, *values: int) -> StampedRow:
        return StampedRow(ChangeRow(op, Stamp(Lsn(lsn), seq), 1, 0, values), table)

    trace.append([row(Op.INSERT, 10, 0, 1, 7), row(Op.INSERT, 20, 0, 2, 8)])
    both = Scan(table.table, 1, names, (Field(INTEGER, True),) * 2, None)
    with Traces(spark, [trace]).through(WINDOW) as inputs:
        first = Scan(table.table, 1, names[:1], (Field(INTEGER, True),), None)
        assert [tuple(r) for r in spark.sql(_sql(inputs.delta(first))).collect()] == [(2, 1)]
        assert [tuple(r) for r in spark.sql(_sql(inputs.delta(both))).collect()] == [(2, 8, 1)]
        found = spark.sql(inputs.snapshot(both, Side.AFTER).sql).collect()
    assert sorted(tuple(r) for r in found) == [(1, 7, 1), (2, 8, 1)]
