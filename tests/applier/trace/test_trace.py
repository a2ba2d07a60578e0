"""A trace on real Spark and Delta shows the same relation for any LSN ranges and checkpoints."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from applier.arrange.traces import Traces
from applier.catalog.checkpoints import Manifest
from applier.operators.support.inputs import Side
from applier.plan.expr import ValueType
from applier.plan.nodes import Field, Scan
from applier.trace import store as store_module
from applier.trace import trace as trace_module
from applier.trace.stamped_rows import StampedRow
from applier.trace.store import TraceStore
from applier.trace.trace import Trace
from shared_schema.change_row import ChangeRow, Op, Stamp
from shared_schema.lsn import ORIGIN, Lsn, LsnRange
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


def change(op: Op, lsn: int, seq: int, values: tuple[object, ...] | None) -> StampedRow:
    return StampedRow(ChangeRow(op, Stamp(Lsn(lsn), seq), 1, 0, values), SCHEMA)  # type: ignore[arg-type]


def relation(spark: SparkSession, trace: Trace, at: Lsn) -> Bag:
    with Traces(spark, [trace]).through(LsnRange(at, at)) as inputs:
        table = spark.sql(inputs.snapshot(SCAN, Side.AFTER).sql).toArrow()
    out: Bag = Counter()
    for *row, weight in zip(*[column.to_pylist() for column in table.columns], strict=True):
        out[tuple(row)] += weight
    return Counter({row: n for row, n in out.items() if n})


def captured(spark: SparkSession) -> Trace:
    trace = Trace(spark, SCHEMA.table)
    trace.capture(SCHEMA.columns, Lsn(1))
    return trace


@pytest.mark.parametrize("seed", range(3))
def test_any_history_with_checkpoints_and_a_restart(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(trace_module, "HELD_ROWS", seed)
    rng = random.Random(seed)
    store = TraceStore(spark, str(tmp_path))
    trace = captured(spark)
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
    # Rows of a crash between a table's append and the manifest are removed on load.
    store.append(trace, Lsn(1000))
    loaded = store.load(Manifest.from_json(manifest.to_json()))[0]
    assert relation(spark, loaded, manifest.frontier) == states[13]
    assert loaded.base.frontier == Lsn(131)


def test_a_compacted_base_is_laid_out_by_its_key(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "ROWS_PER_FILE", 10)
    store, trace = TraceStore(spark, str(tmp_path)), Trace(spark, SCHEMA.table)
    trace.capture(SCHEMA.columns, Lsn(1), key=("a",))
    keys = random.Random(1).sample(range(100), 40)
    trace.append([change(Op.INSERT, 10, seq, (key, None, None)) for seq, key in enumerate(keys)])
    trace.rebase(store.append(trace, Lsn(20)))
    trace.append([change(Op.DELETE, 30, seq, (key, None, None)) for seq, key in enumerate(keys[:20])])
    base = store.append(trace, Lsn(40))
    assert (base.rows, base.withdrawn) == (20, 0)
    (folder,) = (tmp_path / "traces").iterdir()
    lows, highs = (DeltaTable(folder).get_add_actions(flatten=True)[f"{end}.c0"].to_pylist() for end in ("min", "max"))
    ranges = sorted(zip(lows, highs, strict=True))
    assert len(ranges) == 2 and ranges[0][1] < ranges[1][0]
    loaded = store.load(Manifest(Lsn(40), {}, [store.entry(trace, base)], {}))[0]
    assert loaded.key == ("a",)


def test_a_range_before_the_base_is_a_bug(spark: SparkSession, tmp_path: Path) -> None:
    trace = captured(spark)
    trace.append([change(Op.INSERT, 10, 0, (1, None, None))])
    trace.rebase(TraceStore(spark, str(tmp_path)).append(trace, Lsn(20)))
    with pytest.raises(AssertionError, match="begins before its base"):
        trace.parts(LsnRange(Lsn(15), Lsn(30)))
    assert trace.parts(LsnRange(ORIGIN, Lsn(30))).base.rows == 1


def test_an_incomplete_old_row_loses_its_column_and_says_so(spark: SparkSession) -> None:
    trace = captured(spark)
    partial = ChangeRow(Op.DELETE, Stamp(Lsn(5), 0), 1, 0, (1, None, None), unknown=frozenset({1}))
    trace.append([StampedRow(partial, SCHEMA)])
    lost = trace.columns[1]
    assert lost.is_known_at(Lsn(5)) and not lost.is_known_at(Lsn(6))
    assert lost.reason is not None and "REPLICA IDENTITY FULL" in lost.reason.hint
    assert trace.columns[0].is_known_at(Lsn(6))


BIG = PgType(20, -1, "int8", "bigint")


def scan_of(*columns: tuple[str, PgType]) -> Scan:
    fields = tuple(Field(ValueType.of_column(kind), True) for _, kind in columns)
    return Scan(SCHEMA.table, 1, tuple(name for name, _ in columns), fields, None)


def rows_of(spark: SparkSession, traces: Traces, scan: Scan, at: int) -> Bag:
    with traces.through(LsnRange(Lsn(at), Lsn(at))) as inputs:
        table = spark.sql(inputs.snapshot(scan, Side.AFTER).sql).toArrow()
    out: Bag = Counter()
    for *row, weight in zip(*[column.to_pylist() for column in table.columns], strict=True):
        out[tuple(row)] += weight
    return Counter({row: n for row, n in out.items() if n})


@pytest.mark.parametrize("checkpoint", [False, True])
def test_columns_come_and_go(spark: SparkSession, tmp_path: Path, checkpoint: bool) -> None:
    """A relation (a, b) becomes (a, b bigint, w) while rows arrive; it is captured again at 40."""
    store, table = TraceStore(spark, str(tmp_path)), SCHEMA.table
    first = TableSchema(table, 1, (Column("a", INT), Column("b", INT)), (), ReplicaIdentity.FULL)
    wider = TableSchema(table, 1, (*first.columns, Column("w", INT)), (), ReplicaIdentity.FULL)
    retyped = TableSchema(table, 1, (Column("a", INT), Column("b", BIG), Column("w", INT)), (), ReplicaIdentity.FULL)

    def row(op: Op, lsn: int, seq: int, schema: TableSchema, *values: int) -> StampedRow:
        return StampedRow(ChangeRow(op, Stamp(Lsn(lsn), seq), 1, 0, values or None), schema)

    trace = Trace(spark, table)
    traces = Traces(spark, [trace])
    trace.capture(first.columns, Lsn(1))
    trace.append([row(Op.INSERT, 10, 0, first, 1, 1), row(Op.INSERT, 10, 1, first, 2, 2)])
    if checkpoint:
        trace.rebase(store.append(trace, Lsn(15)))
    # ADD COLUMN w: the known columns stay known; w is unknown.
    trace.append([row(Op.DELETE, 20, 0, wider, 1, 1, 7), row(Op.INSERT, 20, 1, wider, 1, 9, 8)])
    a_b, w = scan_of(("a", INT), ("b", INT)), scan_of(("w", INT))
    assert traces.knows(a_b, Lsn(30)) and not traces.knows(w, Lsn(30)) and not traces.coming(w, Lsn(30))
    assert rows_of(spark, traces, a_b, 30) == Counter({(1, 9): 1, (2, 2): 1})
    # b becomes bigint: a is still valid, b as an integer is known up to there.
    trace.append([row(Op.INSERT, 30, 0, retyped, 3, 3, 3)])
    assert traces.knows(scan_of(("a", INT)), Lsn(31))
    assert traces.knows(a_b, Lsn(30)) and not traces.knows(a_b, Lsn(31))
    assert "is now bigint" in traces.reason(a_b).problem
    # Captured again: the capture's record may come long before its rows.
    trace.capture(retyped.columns, Lsn(40), 7, "16~1")
    everything = scan_of(("a", INT), ("b", BIG), ("w", INT))
    assert traces.coming(everything, Lsn(35)) and not traces.knows(everything, Lsn(40))
    if checkpoint:
        base = store.append(trace, Lsn(35))
        trace.rebase(base)
        entry = Manifest.from_json(Manifest(base.frontier, {}, [store.entry(trace, base)], {}).to_json())
        trace = store.load(entry)[0]
        traces = Traces(spark, [trace])
        assert (trace.captured_at, trace.relid, trace.membership) == (Lsn(40), 7, "16~1")
    copied = [row(Op.INSERT, 40, i + 1, retyped, *values) for i, values in enumerate([(1, 9, 8), (2, 2, 0), (3, 3, 3)])]
    trace.append([row(Op.TRUNCATE, 40, 0, retyped), *copied])
    assert traces.knows(everything, Lsn(41))
    assert rows_of(spark, traces, everything, 41) == Counter({(1, 9, 8): 1, (2, 2, 0): 1, (3, 3, 3): 1})
    # A reader of only a sees no delta over the capture.
    with traces.through(LsnRange(Lsn(36), Lsn(41))) as inputs:
        assert inputs.delta(scan_of(("a", INT))) is None
        assert inputs.delta(everything) is not None
    assert not traces.knows(a_b, Lsn(41))


def test_a_relation_captured_after_a_refresh_says_so_even_if_no_column_is_read(spark: SparkSession) -> None:
    traces = Traces(spark, [captured(spark)])
    assert not traces.knows(scan_of(), Lsn(1)) and traces.knows(scan_of(), Lsn(2))
    assert "captured again" in traces.reason(scan_of()).problem
