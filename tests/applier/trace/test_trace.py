"""A trace on real Spark and Delta: however windows and checkpoints are cut, it shows the same relation."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from applier.operators.inputs import Side
from applier.plan.expr import ValueType
from applier.plan.nodes import Field, Scan
from applier.trace.inbox import Arrival
from applier.trace.store import Manifest, TraceStore
from applier.trace.trace import Trace
from applier.trace.traces import Traces
from shared_schema.change_row import ChangeRow, Op, Stamp
from shared_schema.lsn import ORIGIN, Lsn, Window
from shared_schema.pg_types import PgType
from shared_schema.table_schema import Column, ReplicaIdentity, TableId, TableSchema

INT = PgType(23, -1, "int4", "integer")
LOCAL = PgType(1114, -1, "timestamp", "timestamp without time zone")
INSTANT = PgType(1184, -1, "timestamptz", "timestamp with time zone")
SCHEMA = TableSchema(
    TableId("public", "t"), 1, (Column("a", INT), Column("b", LOCAL), Column("c", INSTANT)), (), ReplicaIdentity.FULL
)
SCAN = Scan(
    SCHEMA.table, 1, ("c", "a", "b"), tuple(Field(ValueType.of_column(k), True) for k in (INSTANT, INT, LOCAL)), None
)
LOCALS = [None, datetime(2024, 3, 31, 2, 30), datetime(1, 1, 1)]
Bag = Counter[tuple[object, ...]]


def change(op: Op, lsn: int, seq: int, values: tuple[object, ...] | None) -> Arrival:
    return Arrival(ChangeRow(op, Stamp(Lsn(lsn), seq), 1, 0, values), SCHEMA)  # type: ignore[arg-type]


def relation(spark: SparkSession, trace: Trace, at: Lsn) -> Bag:
    with Traces(spark, [trace]).through(Window(at, at)) as inputs:
        table = spark.sql(inputs.snapshot(SCAN, Side.AFTER)).toArrow()
    out: Bag = Counter()
    for *row, weight in zip(*[column.to_pylist() for column in table.columns], strict=True):
        out[tuple(row)] += weight
    return Counter({row: n for row, n in out.items() if n})


@pytest.mark.parametrize("seed", range(3))
def test_any_history_with_checkpoints_and_a_restart(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    store = TraceStore(spark, str(tmp_path))
    trace = Trace(spark, SCHEMA, Lsn(1))
    held: Bag = Counter()
    states = {}
    for commit in range(1, 16):
        arrivals = []
        for seq in range(rng.randint(1, 4)):
            row = (rng.randint(0, 3), rng.choice(LOCALS), rng.choice([None, datetime(2024, 3, 31, 1, 30, tzinfo=UTC)]))
            shown = (row[2], row[0], row[1])
            if rng.random() < 0.1:
                arrivals.append(change(Op.TRUNCATE, commit * 10, seq, None))
                held.clear()
            elif held[shown] > 0 and rng.random() < 0.6:
                arrivals.append(change(Op.DELETE, commit * 10, seq, row))
                held[shown] -= 1
            else:
                arrivals.append(change(Op.INSERT, commit * 10, seq, row))
                held[shown] += 1
        trace.append(arrivals)
        states[commit] = Counter({row: n for row, n in held.items() if n})
        if commit % 5 == 0:
            base = store.append(trace, Lsn((commit - 2) * 10 + 1))
            manifest = Manifest(base.frontier, {}, [store.entry(trace, base)], {})
            trace.rebase(base)
            for at in range(commit - 2, commit + 1):
                assert relation(spark, trace, Lsn(at * 10 + 1)) == states[at]
    # What a crash between a table's append and the manifest leaves behind is undone on load.
    store.append(trace, Lsn(1000))
    loaded = store.load(Manifest.from_json(manifest.to_json()))[0]
    assert relation(spark, loaded, manifest.frontier) == states[13]
    assert loaded.base.frontier == Lsn(131)


def test_a_window_before_the_base_is_a_bug(spark: SparkSession, tmp_path: Path) -> None:
    trace = Trace(spark, SCHEMA, Lsn(1))
    trace.append([change(Op.INSERT, 10, 0, (1, None, None))])
    trace.rebase(TraceStore(spark, str(tmp_path)).append(trace, Lsn(20)))
    with pytest.raises(AssertionError, match="begins before its base"):
        trace.parts(Window(Lsn(15), Lsn(30)))
    assert trace.parts(Window(ORIGIN, Lsn(30))).base.rows == 1


def test_an_incomplete_old_row_breaks_the_trace_and_says_so(spark: SparkSession) -> None:
    trace = Trace(spark, SCHEMA, Lsn(1))
    partial = ChangeRow(Op.DELETE, Stamp(Lsn(5), 0), 1, 0, (1, None, None), unknown=frozenset({1}))
    trace.append([Arrival(partial, SCHEMA)])
    assert trace.broken is not None
    assert "REPLICA IDENTITY FULL" in trace.broken.hint
