"""The Delta sink alone: any split of the same changes into deltas and flushes gives the same table and frontier."""

from __future__ import annotations

import math
import random
import shutil
from collections import Counter
from dataclasses import replace
from importlib import resources
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from applier import metrics
from applier.plan.expr import ValueType
from applier.plan.nodes import Field, Scan, StreamPlan
from applier.plan.stream_table import StreamTable
from applier.sinks.delta import MemoryDelta
from applier.sinks.delta_lake.sink import PROPERTIES, DeltaSink
from applier.spark.delta_files import MANY_FILES
from applier.zset import WEIGHT
from shared_schema.lsn import ORIGIN, Lsn, LsnRange
from shared_schema.pg_types import PgType
from shared_schema.table_schema import Column, TableId

INT = PgType(23, -1, "int4", "integer")
FLOAT = PgType(701, -1, "float8", "double precision")
Bag = Counter[tuple[int | None, float | None]]


def stream_table(key: tuple[int, ...] | None, number: int = 1) -> StreamTable:
    columns = (Column("a", INT), Column('we"ird, name', FLOAT))
    fields = tuple(Field(ValueType.of_column(c.type), True) for c in columns)
    scan = Scan(TableId("public", "t"), 1, ("a", "b"), fields, key)
    return StreamTable(number, TableId("public", "st"), 9, columns, StreamPlan(scan, tuple(c.name for c in columns)))


def delta(old: Bag, new: Bag, lsn_range: LsnRange) -> MemoryDelta:
    weights = Counter(new)
    weights.subtract(old)
    rows = [(row, n) for row, n in weights.items() if n]
    table = pa.table(
        {
            "c0": pa.array([r[0] for r, _ in rows], pa.int32()),
            "c1": pa.array([r[1] for r, _ in rows], pa.float64()),
            WEIGHT: pa.array([n for _, n in rows], pa.int64()),
        }
    )
    return MemoryDelta(lsn_range, table)


def stored(root: Path) -> Bag:
    table = DeltaTable(str(root / "public" / "st")).to_pyarrow_table()
    return Counter(zip(*[column.to_pylist() for column in table.columns], strict=True))


rows = st.tuples(st.one_of(st.none(), st.integers(0, 2)), st.one_of(st.none(), st.sampled_from([0.5, -1.0])))
bags = st.lists(rows, max_size=5).map(Counter)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(states=st.lists(bags, min_size=1, max_size=4), flushes=st.lists(st.booleans(), min_size=4, max_size=4))
def test_duplicate_rows(tmp_path_factory: pytest.TempPathFactory, states: list[Bag], flushes: list[bool]) -> None:
    root = tmp_path_factory.mktemp("delta")
    sink, table = DeltaSink(str(root)), stream_table(None)
    before: Bag = Counter()
    for number, (after, flush) in enumerate(zip(states, flushes, strict=False)):
        old = Lsn(number * 10) if number else ORIGIN
        sink.queue.add(table, delta(before, after, LsnRange(old, Lsn(number * 10 + 10))))
        if flush:
            sink.flush()
        before = after
    sink.flush()
    assert stored(root) == before
    assert sink.queue.is_idle(table.id)
    assert DeltaSink(str(root)).frontier(table) <= Lsn(len(states) * 10)


def test_deltas_of_queries_that_prove_different_columns_not_null(tmp_path: Path) -> None:
    """The plan of a fill may prove a column not null where the plan of a delta does not."""
    sink, table = DeltaSink(str(tmp_path)), stream_table((0,))
    first: Bag = Counter({(1, 0.5): 1})
    fill = delta(Counter(), first, LsnRange(ORIGIN, Lsn(10)))
    proven = pa.schema([fill.rows.schema.field(0).with_nullable(False), *list(fill.rows.schema)[1:]])
    sink.queue.add(table, replace(fill, rows=fill.rows.cast(proven)))
    sink.queue.add(table, delta(first, Counter({(1, 0.5): 1, (2, None): 1}), LsnRange(Lsn(10), Lsn(20))))
    sink.flush()
    assert stored(tmp_path) == Counter({(1, 0.5): 1, (2, None): 1})


def test_keyed_rows_and_the_frontier_in_the_commit(tmp_path: Path) -> None:
    sink, table = DeltaSink(str(tmp_path)), stream_table((0,))
    first: Bag = Counter({(1, 0.5): 1, (2, None): 1})
    second: Bag = Counter({(1, 1.5): 1, (3, None): 1})
    sink.queue.add(table, delta(Counter(), first, LsnRange(ORIGIN, Lsn(10))))
    sink.flush()
    sink.queue.add(table, delta(first, second, LsnRange(Lsn(10), Lsn(30))))
    sink.flush()
    assert stored(tmp_path) == second
    assert DeltaSink(str(tmp_path)).frontier(table) == Lsn(30)
    assert DeltaTable(sink.path(table)).history(1)[0]["pgtrickle_lsn"] == "0/1E"


def test_frontiers_are_looked_up_ahead(tmp_path: Path) -> None:
    """One that cannot be read is left to whoever needs it, and says why there."""
    first: Bag = Counter({(1, 0.5): 1})
    named = [replace(stream_table((0,), n), table=TableId("public", f"st{n}")) for n in range(1, 7)]
    writer = DeltaSink(str(tmp_path))
    for table in named[:-1]:
        writer.queue.add(table, delta(Counter(), first, LsnRange(ORIGIN, Lsn(table.id * 10))))
    writer.flush()
    broken = named[0]
    for entry in Path(writer.path(broken), "_delta_log").glob("*.json"):
        entry.write_text("{")
    sink = DeltaSink(str(tmp_path))
    sink.recall(named)
    for table in named[1:]:
        shutil.rmtree(sink.path(table), ignore_errors=True)
    assert [sink.frontier(table) for table in named[1:]] == [Lsn(20), Lsn(30), Lsn(40), Lsn(50), ORIGIN]
    with pytest.raises(Exception, match=r"(?i)delta|json|log"):
        sink.frontier(broken)


def test_one_of_two_equal_nan_rows_leaves(tmp_path: Path) -> None:
    sink, table = DeltaSink(str(tmp_path)), stream_table(None)
    nan = float("nan")
    sink.queue.add(table, delta(Counter(), Counter({(1, nan): 2}), LsnRange(ORIGIN, Lsn(10))))
    sink.flush()
    sink.queue.add(table, delta(Counter({(1, nan): 1}), Counter(), LsnRange(Lsn(10), Lsn(20))))
    sink.flush()
    assert [(a, math.isnan(b)) for a, b in stored(tmp_path).elements() if b is not None] == [(1, True)]


def test_a_commit_that_raised_is_not_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the commit the library writes the log's own checkpoint; a full disk there must not double the rows."""
    monkeypatch.setitem(PROPERTIES, "delta.checkpointInterval", "1")
    sink, table = DeltaSink(str(tmp_path)), stream_table((0,))
    sink.queue.add(table, delta(Counter(), Counter({(1, 0.5): 1}), LsnRange(ORIGIN, Lsn(10))))
    sink.flush()
    hint = Path(sink.path(table)) / "_delta_log" / "_last_checkpoint"
    hint.unlink(missing_ok=True)
    (hint / "in the way").mkdir(parents=True)
    failures = metrics.DELTA_FAILURES._value.get()
    sink.queue.add(table, delta(Counter(), Counter({(2, None): 1}), LsnRange(Lsn(10), Lsn(20))))
    sink.flush()
    assert metrics.DELTA_FAILURES._value.get() == failures + 1, "the commit did not raise"
    assert stored(tmp_path) == Counter({(1, 0.5): 1, (2, None): 1}), "it was made, though"
    (hint / "in the way").rmdir()
    hint.rmdir()
    sink.flush()
    assert sink.queue.is_idle(table.id)
    assert stored(tmp_path) == Counter({(1, 0.5): 1, (2, None): 1})
    assert sink.frontier(table) == Lsn(20)


def test_a_delta_that_is_in_the_log_is_not_written_again(tmp_path: Path) -> None:
    table = stream_table((0,))
    second = delta(Counter(), Counter({(2, None): 1}), LsnRange(Lsn(10), Lsn(20)))
    for _ in range(2):
        sink = DeltaSink(str(tmp_path))
        sink.queue.add(table, delta(Counter(), Counter({(1, 0.5): 1}), LsnRange(ORIGIN, Lsn(10))))
        sink.queue.add(table, second)
        sink.flush()
    sink.queue.add(table, second)
    sink.flush()
    assert stored(tmp_path) == Counter({(1, 0.5): 1, (2, None): 1})


@pytest.mark.parametrize("key", [None, (0, 1)])
def test_zeros_of_both_signs(tmp_path: Path, key: tuple[int, ...] | None) -> None:
    """The library's own comparison of floats confuses them."""
    rng, before, values = random.Random(3), Counter[str](), {repr(v): v for v in (-0.0, 0.0, 1.5, math.nan)}
    sink, table = DeltaSink(str(tmp_path)), stream_table(key)
    for number in range(8):
        texts = rng.choices(list(values), k=4) if key is None else rng.sample(list(values), 2)
        after = Counter(texts)
        weights = [(values[text], n) for text in values if (n := after[text] - before[text])]
        rows = {
            "c0": pa.array([1] * len(weights), pa.int32()),
            "c1": pa.array([value for value, _ in weights], pa.float64()),
            WEIGHT: pa.array([n for _, n in weights], pa.int64()),
        }
        old = Lsn(number * 10) if number else ORIGIN
        sink.queue.add(table, MemoryDelta(LsnRange(old, Lsn(number * 10 + 10)), pa.table(rows)))
        assert sink.flush() == []
        held = DeltaTable(sink.path(table)).to_pyarrow_table().column(1).to_pylist()
        assert Counter(map(repr, held)) == after
        before = after


def test_a_dropped_stream_table_leaves_nothing_to_its_successor(tmp_path: Path) -> None:
    sink = DeltaSink(str(tmp_path))
    sink.queue.add(stream_table((0,), 1), delta(Counter(), Counter({(1, 0.5): 1}), LsnRange(ORIGIN, Lsn(10))))
    sink.flush()
    successor = stream_table((0,), 2)
    assert DeltaSink(str(tmp_path)).frontier(successor) == ORIGIN
    sink.queue.add(successor, delta(Counter(), Counter({(7, None): 1}), LsnRange(ORIGIN, Lsn(20))))
    sink.flush()
    assert stored(tmp_path) == Counter({(7, None): 1})


@pytest.mark.parametrize("key", [None, (0,)])
def test_foreign_writes_to_a_delta_table_are_reported(tmp_path: Path, key: tuple[int, ...] | None) -> None:
    sink, table = DeltaSink(str(tmp_path)), stream_table(key)
    first: Bag = Counter({(1, 0.5): 1, (2, None): 1})
    sink.queue.add(table, delta(Counter(), first, LsnRange(ORIGIN, Lsn(10))))
    assert sink.flush() == []
    DeltaTable(sink.path(table)).delete("a = 1")
    sink.queue.add(table, delta(first, Counter({(2, None): 1}), LsnRange(Lsn(10), Lsn(20))))
    [(failed, error)] = sink.flush()
    assert failed is table and "another program" in error.problem
    assert sink.queue.is_idle(table.id)


def test_many_small_commits_leave_few_files(tmp_path: Path) -> None:
    sink, table = DeltaSink(str(tmp_path)), stream_table(None)
    held: Bag = Counter()
    for number in range(MANY_FILES + 2):
        after = held + Counter({(number, None): 1})
        sink.queue.add(table, delta(held, after, LsnRange(Lsn(number) if number else ORIGIN, Lsn(number + 1))))
        sink.flush()
        held = after
    assert len(DeltaTable(sink.path(table)).file_uris()) > MANY_FILES
    sink.tidy([table], 0)
    assert len(DeltaTable(sink.path(table)).file_uris()) == 1
    assert len(list((tmp_path / "public" / "st").glob("*.parquet"))) == 1
    assert stored(tmp_path) == held
    assert DeltaSink(str(tmp_path)).frontier(table) == Lsn(MANY_FILES + 2)


def test_only_files_with_a_deleted_row_are_read(tmp_path: Path) -> None:
    sink, table = DeltaSink(str(tmp_path)), stream_table((0,))
    held: Bag = Counter()
    for number in range(5):
        after = held + Counter({(number * 10 + i, 0.5): 1 for i in range(10)})
        sink.queue.add(table, delta(held, after, LsnRange(Lsn(number) if number else ORIGIN, Lsn(number + 1))))
        sink.flush()
        held = after
    assert len(DeltaTable(sink.path(table)).file_uris()) == 5
    second = held - Counter({(23, 0.5): 1}) + Counter({(23, 1.5): 1})
    sink.queue.add(table, delta(held, second, LsnRange(Lsn(5), Lsn(6))))
    sink.flush()
    metrics = DeltaTable(sink.path(table)).history(1)[0]["operationMetrics"]
    assert (metrics["num_target_files_scanned"], metrics["num_target_files_skipped_during_scan"]) == (1, 4)
    assert stored(tmp_path) == second


def test_spark_delta_rs_and_duckdb_read_any_retained_position(tmp_path: Path, spark: SparkSession) -> None:
    sink, table = DeltaSink(str(tmp_path)), stream_table((0,))
    table = replace(table, columns=(table.columns[0], Column("b", FLOAT)))
    states: list[Bag] = [Counter({(1, 0.5): 1}), Counter({(1, 1.5): 1, (2, None): 1}), Counter({(3, math.inf): 1})]
    before: Bag = Counter()
    for number, after in enumerate(states):
        sink.queue.add(table, delta(before, after, LsnRange(Lsn(number * 16), Lsn(number * 16 + 16))))
        sink.flush()
        before = after
    path = sink.path(table)
    found = DeltaTable(path)
    assert found.protocol().min_reader_version == 1, "any reader of Delta can read it"
    assert found.metadata().name == "public.st"
    assert found.metadata().configuration == PROPERTIES
    duck = duckdb.connect()
    extension = resources.files("duckdb_extension_delta") / "extensions" / f"v{duckdb.__version__}"
    duck.execute(f"LOAD '{extension / 'delta.duckdb_extension'}'")
    versions = {commit["pgtrickle_lsn"]: commit["version"] for commit in found.history()}
    by_spark = spark.read.format("delta").option("versionAsOf", versions[str(Lsn(32))]).load(path).collect()
    assert Counter(tuple(row) for row in by_spark) == states[1]
    for number, state in enumerate(states):
        version = versions[str(Lsn(number * 16 + 16))]
        by_duck = duck.execute(f"SELECT a, b FROM delta_scan('{path}', version = {version})").fetchall()
        at = DeltaTable(path, version=version).to_pyarrow_table()
        by_delta_rs = zip(*[column.to_pylist() for column in at.columns], strict=True)
        assert Counter(by_duck) == Counter(by_delta_rs) == state
    assert Counter(duck.execute(f"FROM delta_scan('{path}')").fetchall()) == states[-1]


@pytest.mark.parametrize("key", [(0,), None])
@pytest.mark.parametrize("merge_rows", [200_000, 0])
def test_columns_that_come_later_are_added(tmp_path: Path, key: tuple[int, ...] | None, merge_rows: int) -> None:
    """The rows that are there have NULL in them until a delta says otherwise; also when it is too large for memory."""
    old, sink = stream_table(key), DeltaSink(str(tmp_path), merge_rows=merge_rows)
    sink.queue.add(old, delta(Counter(), Counter({(1, 1.0): 1, (2, 2.0): 1}), LsnRange(ORIGIN, Lsn(10))))
    assert sink.flush() == []
    columns = (*old.columns, Column("later", INT))
    fields = tuple(Field(ValueType.of_column(c.type), True) for c in columns)
    scan = Scan(TableId("public", "t"), 1, ("a", "b", "c"), fields, key)
    new = replace(old, columns=columns, plan=StreamPlan(scan, tuple(c.name for c in columns)))
    changed = pa.table(
        {
            "c0": pa.array([1, 1, 3], pa.int32()),
            "c1": pa.array([1.0, 1.0, 3.0], pa.float64()),
            "c2": pa.array([None, 7, 9], pa.int32()),
            WEIGHT: pa.array([-1, 1, 1], pa.int64()),
        }
    )
    sink.queue.add(new, MemoryDelta(LsnRange(Lsn(10), Lsn(20)), changed))
    assert sink.flush() == [] and sink.frontier(new) == Lsn(20)
    held = DeltaTable(str(tmp_path / "public" / "st")).to_pyarrow_table()
    assert held.column_names == [c.name for c in columns]
    rows = Counter(zip(*[column.to_pylist() for column in held.columns], strict=True))
    assert rows == {(1, 1.0, 7): 1, (2, 2.0, None): 1, (3, 3.0, 9): 1}


FIRST: Bag = Counter({(1, 0.5): 1, (2, None): 1})
WRITES: dict[str, tuple[Lsn, Bag, Bag]] = {
    "creation": (ORIGIN, Counter(), FIRST),
    "overwrite": (ORIGIN, Counter(), Counter({(7, 1.5): 1})),
    "append": (Lsn(10), FIRST, FIRST + Counter({(3, 1.5): 1})),
    "merge": (Lsn(10), FIRST, Counter({(1, 1.5): 1, (3, 1.5): 1})),
}


@pytest.mark.parametrize("merge_rows", [200_000, 0])
@pytest.mark.parametrize("kind", WRITES)
def test_a_process_that_was_replaced_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, merge_rows: int
) -> None:
    """Its successor makes the same commit while it holds a version that is no longer the newest."""
    table, (lower, before, after) = stream_table((0,)), WRITES[kind]
    old, new = DeltaSink(str(tmp_path), merge_rows=merge_rows), DeltaSink(str(tmp_path))
    if kind != "creation":
        first = stream_table((0,), 9) if kind == "overwrite" else table
        new.queue.add(first, delta(Counter(), FIRST, LsnRange(ORIGIN, Lsn(10))))
        assert new.flush() == []
    for sink in (old, new):
        sink.queue.add(table, delta(before, after, LsnRange(lower, Lsn(20))))
    load = old._open

    def stop_after_loading(*arguments: object) -> DeltaTable | None:
        loaded = load(*arguments)  # type: ignore[arg-type]
        assert new.flush() == [] and new.frontier(table) == Lsn(20)
        return loaded

    monkeypatch.setattr(old, "_open", stop_after_loading)
    failures = metrics.DELTA_FAILURES._value.get()
    assert old.flush() == []
    assert metrics.DELTA_FAILURES._value.get() == failures + 1
    assert stored(tmp_path) == after and len(DeltaTable(old.path(table)).history()) == (1 if kind == "creation" else 2)
    # Once it looks again, it finds that nothing is missing.
    monkeypatch.undo()
    assert old.flush() == [] and old.queue.is_idle(table.id)
    assert stored(tmp_path) == after


def test_new_columns_are_not_added_to_what_another_process_wrote(tmp_path: Path) -> None:
    table, sink = stream_table((0,)), DeltaSink(str(tmp_path))
    sink.queue.add(table, delta(Counter(), FIRST, LsnRange(ORIGIN, Lsn(10))))
    assert sink.flush() == []
    columns = (*table.columns, Column("later", INT))
    newer = DeltaTable(sink.path(table))
    DeltaTable(sink.path(table)).delete("a = 99 OR a = 1")
    more = pa.table({"c0": pa.array([], pa.int32()), "c1": pa.array([], pa.float64()), "c2": pa.array([], pa.int32())})
    with pytest.raises(DeltaError):
        sink._add_columns(replace(table, columns=columns), newer, MemoryDelta(LsnRange(Lsn(10), Lsn(20)), more))
