"""A trace on real Spark and Delta shows the same relation for any LSN ranges and checkpoints."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from applier.arrange.traces import Traces
from applier.catalog.checkpoints import Manifest
from applier.errors import HistoryGone, Infrastructure
from applier.operators.support.inputs import Side
from applier.plan.expr import ValueType
from applier.plan.nodes import Field, Scan
from applier.spark import delta_files, frame_files
from applier.trace import store as store_module
from applier.trace import trace as trace_module
from applier.trace.stamped_rows import StampedRow
from applier.trace.store import TraceStore
from applier.trace.trace import Trace
from applier.zset import WEIGHT
from shared_schema.change_row import ChangeRow, Op, Stamp
from shared_schema.lsn import ORIGIN, Lsn, LsnRange
from shared_schema.pg_types import PgType
from shared_schema.table_schema import LEAF_COLUMN, Column, ReplicaIdentity, TableId, TableSchema

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
    if seed == 2:
        monkeypatch.setattr(frame_files, "LARGE_BYTES", 0)
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


def test_what_nobody_reads_stays_on_disk_through_restarts_checkpoints_and_crashes(
    spark: SparkSession, tmp_path: Path
) -> None:
    store, trace = TraceStore(spark, str(tmp_path)), captured(spark)
    trace.append([change(Op.INSERT, 10, seq, (seq, None, None)) for seq in range(3)])
    base = store.append(trace, Lsn(20))
    # A crash: rows after the manifest's version.
    trace.rebase(base)
    trace.append([change(Op.INSERT, 30, 0, (9, None, None))])
    store.append(trace, Lsn(40))
    loaded = store.load(Manifest(Lsn(20), {}, [store.entry(trace, base)], {}))[0]
    loaded.append([change(Op.INSERT, 30, 0, (3, None, None)), change(Op.DELETE, 30, 1, (0, None, None))])
    assert [segment.is_loaded for segment in loaded.base.segments] == [False]
    later = store.append(loaded, Lsn(40))
    loaded.rebase(later)
    # It names the newest version: the files of older ones are removed after a day.
    assert [(segment.is_loaded, segment.rows) for segment in later.segments] == [(False, 5)]
    again = store.load(Manifest(Lsn(40), {}, [store.entry(loaded, later)], {}))[0]
    assert again.overlay(LsnRange(Lsn(40), Lsn(50))).num_rows == 0 and not again.base.segments[0].is_loaded
    expected = Counter({(None, value, None): 1 for value in (1, 2, 3)})
    for one in (loaded, again):
        assert relation(spark, one, Lsn(41)) == expected
        assert one.base.segments[0].is_loaded
    loaded.append([change(Op.INSERT, 50, 0, (4, None, None))])
    assert [segment.is_loaded for segment in store.append(loaded, Lsn(60)).segments] == [True, True]


def test_a_base_that_is_released_unread_is_never_loaded(spark: SparkSession, tmp_path: Path) -> None:
    store, trace = TraceStore(spark, str(tmp_path)), captured(spark)
    trace.append([change(Op.INSERT, 10, 0, (1, None, None))])
    base = store.append(trace, Lsn(20))
    loaded = store.load(Manifest(Lsn(20), {}, [store.entry(trace, base)], {}))[0]
    (segment,) = loaded.base.segments
    segment.release()
    assert segment.released and not segment.is_loaded


def shown(spark: SparkSession, trace: Trace) -> set[tuple[object, ...]]:
    """The rows of a trace of one float column, with their weights, not netted any further than bit by bit."""
    parts = trace.parts(LsnRange(ORIGIN, Lsn(1000)))
    frames = [trace.frame(parts.delta), *(spark.table(view) for view in parts.views)]
    out: Counter[str] = Counter()
    for frame in frames:
        for value, weight in frame.collect():
            out[repr(value)] += weight
    return {(value, n) for value, n in out.items() if n}


def test_truncate_and_compaction_keep_the_sign_of_a_zero(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """-R must cancel R: a row with -0 that left as one with 0 would be two rows that stay."""
    monkeypatch.setattr(store_module, "COMPACT_AT", 0.01)
    schema = TableSchema(SCHEMA.table, 1, (Column("f", PgType(701, -1, "float8", "double")),), (), ReplicaIdentity.FULL)

    def row(op: Op, lsn: int, seq: int, value: float | None) -> StampedRow:
        values = None if op is Op.TRUNCATE else (value,)
        return StampedRow(ChangeRow(op, Stamp(Lsn(lsn), seq), 1, 0, values), schema)

    store, trace = TraceStore(spark, str(tmp_path)), Trace(spark, schema.table)
    trace.capture(schema.columns, Lsn(1))
    trace.append([row(Op.INSERT, 10, i, value) for i, value in enumerate((-0.0, -0.0, 0.0, 1.5))])
    trace.rebase(store.append(trace, Lsn(20)))
    trace.append([row(Op.DELETE, 30, 0, -0.0), row(Op.DELETE, 30, 1, 1.5)])
    base = store.append(trace, Lsn(40))
    assert base.withdrawn == 0, "it was compacted"
    trace.rebase(base)
    assert shown(spark, trace) == {("-0.0", 1), ("0.0", 1)}
    trace.append([row(Op.INSERT, 50, 0, -0.0), row(Op.TRUNCATE, 50, 1, None)])
    assert shown(spark, trace) == set()


def test_a_checkpoint_that_is_repeated_adds_its_rows_once(spark: SparkSession, tmp_path: Path) -> None:
    """The attempt before may have appended the rows of this trace and failed at another one."""
    store, trace = TraceStore(spark, str(tmp_path)), captured(spark)
    trace.append([change(Op.INSERT, 10, 0, (1, None, None))])
    trace.rebase(store.append(trace, Lsn(20)))
    trace.append([change(Op.INSERT, 30, 0, (2, None, None))])
    store.append(trace, Lsn(40))
    base = store.append(trace, Lsn(40))
    loaded = store.load(Manifest(Lsn(40), {}, [store.entry(trace, base)], {}))[0]
    assert relation(spark, loaded, Lsn(40)) == Counter({(None, 1, None): 1, (None, 2, None): 1})


def test_nothing_before_the_base_can_be_read(spark: SparkSession, tmp_path: Path) -> None:
    trace = captured(spark)
    trace.append([change(Op.INSERT, 10, 0, (1, None, None))])
    trace.rebase(TraceStore(spark, str(tmp_path)).append(trace, Lsn(20)))
    # A range that begins before the base, and the whole relation at a position before it.
    for gone in (LsnRange(Lsn(15), Lsn(30)), LsnRange(ORIGIN, Lsn(15))):
        with pytest.raises(HistoryGone, match="no longer held, only those since 0/14"):
            trace.parts(gone)
    for held in (LsnRange(ORIGIN, Lsn(20)), LsnRange(Lsn(20), Lsn(20)), LsnRange(ORIGIN, Lsn(30))):
        assert trace.parts(held).base.rows == 1
    traces = Traces(spark, [trace])
    assert not traces.holds_ends([trace.table], LsnRange(Lsn(15), Lsn(30)))
    assert not traces.holds_ends([trace.table], LsnRange(ORIGIN, Lsn(15)))
    assert traces.holds_ends([trace.table], LsnRange(ORIGIN, Lsn(20))) and traces.earliest([trace.table]) == Lsn(20)


def test_rows_that_cannot_be_taken_in_concern_their_relation(spark: SparkSession, tmp_path: Path) -> None:
    other = TableId("public", "other")
    trace, untouched = captured(spark), Trace(spark, other)
    untouched.capture(SCHEMA.columns, Lsn(1))
    traces = Traces(spark, [trace, untouched])
    # Not even a query that reads no column may go on: a row is missing.
    of_rows = Scan(SCHEMA.table, 1, (), (), None)
    good = change(Op.INSERT, 10, 0, (1, None, None))
    traces.append({SCHEMA.table: [[good]], other: [[good]]})
    bad = change(Op.INSERT, 20, 0, ("a value that nobody may see", None, None))
    traces.append({SCHEMA.table: [[bad, change(Op.INSERT, 30, 0, (2, None, None))]], other: [[good]]})
    for scan in (SCAN, of_rows):
        assert traces.knows(scan, Lsn(20)) and not traces.knows(scan, Lsn(21)) and not traces.coming(scan, Lsn(40))
        reason = traces.reason(scan)
        assert "public.t since 0/14 could not be taken in" in reason.problem and "ArrowInvalid" in reason.problem
        assert "nobody may see" not in str(reason) and "resume_stream_table" in reason.hint
    assert traces.knows(replace(SCAN, table=other), Lsn(40)) and untouched.overlay_rows == 2
    # It is remembered by a checkpoint, and forgotten at the next capture.
    store = TraceStore(spark, str(tmp_path))
    base = store.append(trace, Lsn(40))
    manifest = Manifest(base.frontier, {}, [store.entry(trace, base)], {})
    (loaded,) = store.load(Manifest.from_json(manifest.to_json()))
    traces = Traces(spark, [loaded])
    assert not traces.knows(of_rows, Lsn(40)) and not traces.knows(SCAN, Lsn(40))
    loaded.capture(SCHEMA.columns, Lsn(50))
    for scan in (SCAN, of_rows):
        assert not traces.knows(scan, Lsn(40)) and traces.coming(scan, Lsn(40)) and traces.knows(scan, Lsn(51))
    # A message of before that capture which is read again: the capture stays.
    assert traces.lose(SCHEMA.table, Lsn(45), "it cannot be decoded")
    assert traces.knows(SCAN, Lsn(51)) and not traces.knows(SCAN, Lsn(46))


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


PARTITIONED = TableSchema(TableId("public", "p"), 2, (Column("a", INT), LEAF_COLUMN), (), ReplicaIdentity.FULL)
A_OF_P = Scan(PARTITIONED.table, 2, ("a",), (Field(ValueType.of_column(INT), True),), None)


def test_the_rows_of_a_leaf_leave_alone(spark: SparkSession, tmp_path: Path) -> None:
    """A T row with a leaf is the delta −(rows of that leaf), also for equal rows in other leaves and in the base."""

    def rows(lsn: int, *changes: tuple[Op, int | None, int]) -> list[StampedRow]:
        return [
            StampedRow(ChangeRow(op, Stamp(Lsn(lsn), seq), 1, 0, (a, leaf)), PARTITIONED)
            for seq, (op, a, leaf) in enumerate(changes)
        ]

    def relation_at(lsn: int) -> Bag:
        with Traces(spark, [trace]).through(LsnRange(Lsn(lsn), Lsn(lsn))) as inputs:
            table = spark.sql(inputs.snapshot(A_OF_P, Side.AFTER).sql).toArrow()
        out: Bag = Counter()
        for a, weight in zip(*[column.to_pylist() for column in table.columns], strict=True):
            out[(a,)] += weight
        return Counter({row: n for row, n in out.items() if n})

    store, trace = TraceStore(spark, str(tmp_path)), Trace(spark, PARTITIONED.table)
    trace.capture(PARTITIONED.columns, Lsn(1))
    insert, gone = Op.INSERT, Op.TRUNCATE
    trace.append(rows(10, (insert, 1, 100), (insert, 1, 200), (insert, 2, 100), (insert, 3, 300)))
    trace.rebase(store.append(trace, Lsn(20)))
    trace.append(rows(30, (insert, 4, 100), (gone, None, 100), (insert, 5, 100)))
    trace.append(rows(40, (gone, None, 100), (gone, None, 300), (gone, None, 999), (insert, 6, 300)))
    assert relation_at(31) == {(1,): 1, (3,): 1, (5,): 1}
    assert relation_at(41) == {(1,): 1, (6,): 1}
    left = trace.overlay(LsnRange(Lsn(31), Lsn(50))).to_pylist()
    assert [(row["c0"], row["c1"], row["__w"], row["__seq"]) for row in left] == [
        (5, 100, -1, 0),
        (3, 300, -1, 1),
        (6, 300, 1, 3),
    ]


@pytest.mark.parametrize("kind", ["creation", "append", "restore", "compaction", "tidying"])
def test_no_base_names_a_version_of_another_writer(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """An applier that was replaced adds rows at the worst moment: the append fails, the next one leaves them out."""
    store, trace = TraceStore(spark, str(tmp_path)), captured(spark)
    path = store._path(trace)
    held: Bag = Counter({(None, 1, None): 1})
    if kind != "creation":
        trace.append([change(Op.INSERT, 10, 0, (1, None, None))])
        trace.rebase(store.append(trace, Lsn(20)))
    rows = [change(Op.INSERT, 30, 0, (2, None, None)), change(Op.INSERT, 30, 1, (3, None, None))]
    if kind == "compaction":
        monkeypatch.setattr(store_module, "COMPACT_AT", 0.0)
        rows.append(change(Op.DELETE, 30, 2, (1, None, None)))
        held = Counter()
    if kind == "creation":
        rows.append(change(Op.INSERT, 30, 2, (1, None, None)))
    held.update([(None, 2, None), (None, 3, None)])
    trace.append(rows)
    foreign = pa.table({"c0": pa.array([99], pa.int32()), WEIGHT: pa.array([1], pa.int64())})
    if kind == "restore":
        # What an attempt at this checkpoint left that failed later.
        write_deltalake(path, foreign, mode="append", schema_mode="merge")
    step = {"compaction": "net_frame", "tidying": "is_scattered"}.get(kind, "open_newest")
    if kind == "tidying":
        monkeypatch.setattr(delta_files, "MANY_FILES", 1)
    original = getattr(store_module, step)

    def write_between(*found: Any) -> Any:
        result = original(*found)
        write_deltalake(path, foreign, mode="append", schema_mode="merge")
        return result

    monkeypatch.setattr(store_module, step, write_between)
    with pytest.raises(Infrastructure, match="another process"):
        store.append(trace, Lsn(40))
    monkeypatch.setattr(store_module, step, original)
    base = store.append(trace, Lsn(40))
    # Later writes of others change nothing about the version that the manifest names.
    write_deltalake(path, foreign, mode="append", schema_mode="merge")
    loaded = store.load(Manifest(Lsn(40), {}, [store.entry(trace, base)], {}))[0]
    trace.rebase(base)
    for one in (trace, loaded):
        assert relation(spark, one, Lsn(41)) == held
