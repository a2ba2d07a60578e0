"""An index lookup finds the rows of a base that match a change: the join is equal, and Spark reads no other rows."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StructField, StructType

from applier.arrange import arrangements, index
from applier.arrange import inputs as inputs_module
from applier.arrange.compressed_columns import CompressedColumns
from applier.arrange.index import ArrangementIndex
from applier.arrange.traces import Traces
from applier.operators.incrementalize import delta, snapshot
from applier.operators.support.inputs import Side
from applier.plan.expr import AggregateCall, Call, Col, Const, ValueType
from applier.plan.nodes import Aggregate, Field, Filter, Join, Node, OuterJoin, Project, Scan, SemiJoin
from applier.trace.stamped_rows import StampedRow
from applier.trace.store import TraceStore
from applier.trace.trace import Trace
from applier.zset import ZSet, net
from shared_schema.change_row import ChangeRow, Op, Stamp
from shared_schema.lsn import Lsn, LsnRange
from shared_schema.pg_types import PgType
from shared_schema.table_schema import Column, ReplicaIdentity, TableId, TableSchema

INT = PgType(23, -1, "int4", "integer")
VALUE = ValueType.of_column(INT)
BOOL = ValueType.of_column(PgType(16, -1, "bool", "boolean"))


def table(name: str, relid: int) -> TableSchema:
    columns = tuple(Column(column, INT) for column in ("k", "v", "other"))
    return TableSchema(TableId("public", name), relid, columns, (), ReplicaIdentity.FULL)


LEFT, RIGHT = table("l", 1), table("r", 2)
KINDS = ("outer", "some", "none", "groups")


def scan(of: TableSchema, *columns: str) -> Scan:
    return Scan(of.table, of.relid, columns, tuple(Field(VALUE, True) for _ in columns), None)


def joined() -> Node:
    """Return the plan of SELECT … FROM l JOIN r ON l.k = r.k WHERE r.v < 7, with the columns of r in another order."""
    right = Filter(scan(RIGHT, "v", "k"), Call("int4lt(int4,int4)", (Col(0, VALUE), Const(7, VALUE)), BOOL))
    turned = Project(right, (Col(1, VALUE), Col(0, VALUE)))
    return Join(scan(LEFT, "v", "k"), turned, ((Col(1, VALUE), Col(0, VALUE)),), None)


def matched(kind: str) -> Node:
    """Return a plan: l LEFT JOIN r, l WHERE [NOT] EXISTS r, or the minimum of each group of r, which is not a sum."""
    pairs = ((Col(1, VALUE), Col(0, VALUE)),)
    match kind:
        case "outer":
            return OuterJoin(scan(LEFT, "v", "k"), scan(RIGHT, "k", "v"), pairs, None, False)
        case "some" | "none":
            return SemiJoin(scan(LEFT, "v", "k"), scan(RIGHT, "k", "v"), pairs, None, kind == "none")
        case "groups":
            least = AggregateCall("min(int4)", (Col(1, VALUE),), VALUE)
            return Aggregate(scan(RIGHT, "k", "v"), (Col(0, VALUE),), (least,))
        case _:
            return joined()


def changed(trace: Trace, of: TableSchema, lsn: int, rows: list[tuple[Op, tuple[int | None, ...]]]) -> None:
    trace.append([StampedRow(ChangeRow(op, Stamp(Lsn(lsn), seq), 1, 0, row), of) for seq, (op, row) in enumerate(rows)])


def row(random: Random) -> tuple[int | None, ...]:
    return tuple(random.choice([None, *range(12)]) for _ in range(3))


def rows_of(spark: SparkSession, zset: ZSet | None) -> list[tuple[object, ...]]:
    if zset is None:
        return []
    found = net(spark.sql(zset.sql).toArrow())
    return sorted(zip(*(found[name].to_pylist() for name in found.column_names), strict=True), key=repr)


@pytest.mark.parametrize(
    ("kind", "most"), [("inner", index.MAX_LOOKUP_ROWS), ("inner", 3), *((k, index.MAX_LOOKUP_ROWS) for k in KINDS)]
)
def test_the_change_is_the_difference_of_both_ends(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, most: int
) -> None:
    """Random LSN ranges over both sides with NULLs and duplicates; with a low limit of matches, some exceed it."""
    monkeypatch.setattr(arrangements, "MIN_ARRANGED_ROWS", 1)
    monkeypatch.setattr(arrangements, "MIN_INDEXED_ROWS", 1)
    monkeypatch.setattr(index, "MAX_LOOKUP_SHARE", 1.0)
    monkeypatch.setattr(inputs_module, "MIN_QUERY_KEYS_ROWS", 1)
    monkeypatch.setattr(index, "MAX_LOOKUP_ROWS", most)
    random, store, node = Random(5), TraceStore(spark, str(tmp_path)), matched(kind)
    tables = {LEFT: Trace(spark, LEFT.table), RIGHT: Trace(spark, RIGHT.table)}
    traces = Traces(spark, tables.values(), 64)
    held: dict[TableSchema, list[tuple[int | None, ...]]] = {LEFT: [], RIGHT: []}
    for of, trace in tables.items():
        trace.capture(of.columns, Lsn(1))
        held[of] = [row(random) for _ in range(60)]
        changed(trace, of, 5, [(Op.INSERT, one) for one in held[of]])
        trace.rebase(store.append(trace, Lsn(6)))
    for number in range(1, 7):
        at = 10 * number
        for of, trace in tables.items():
            if number % 3 == (of is LEFT):
                continue
            gone = [held[of].pop(random.randrange(len(held[of]))) for _ in range(3)]
            come = [row(random) for _ in range(3)]
            held[of] += come
            changed(trace, of, at, [*((Op.DELETE, one) for one in gone), *((Op.INSERT, one) for one in come)])
        lsn_range = LsnRange(Lsn(at - 4), Lsn(at + 1))
        with traces.through(lsn_range) as inputs:
            before, after = (snapshot(node, side, inputs) for side in (Side.BEFORE, Side.AFTER))
            assert rows_of(spark, delta(node, inputs)) == rows_of(spark, after.plus(before.negate()))
        if number == 4:
            for trace in tables.values():
                trace.rebase(store.append(trace, Lsn(at + 2)))
    assert traces.arrangements._indexes, "rows were looked up by an index"


def test_only_matching_rows_are_read(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrangements, "MIN_ARRANGED_ROWS", 1)
    monkeypatch.setattr(arrangements, "MIN_INDEXED_ROWS", 1)
    monkeypatch.setattr(index, "MAX_LOOKUP_SHARE", 1.0)
    store = TraceStore(spark, str(tmp_path))
    tables = {of: Trace(spark, of.table) for of in (LEFT, RIGHT)}
    traces = Traces(spark, tables.values(), 64)
    for of, trace in tables.items():
        trace.capture(of.columns, Lsn(1))
        changed(trace, of, 5, [(Op.INSERT, (i, 1, 1)) for i in range(500)])
        trace.rebase(store.append(trace, Lsn(6)))
    changed(tables[LEFT], LEFT, 10, [(Op.INSERT, (7, 2, 2)), (Op.DELETE, (400, 1, 1))])
    with traces.through(LsnRange(Lsn(6), Lsn(11))) as inputs:
        assert rows_of(spark, delta(joined(), inputs)) == [(1, 400, 400, 1, -1), (2, 7, 7, 1, 1)]
        (view,) = [view for view in inputs._lookups.values() if view is not None]
        assert spark.table(view).count() == 2


def test_values_are_found_wherever_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "MAX_LOOKUP_SHARE", 1.0)
    values = [3, None, 1, 3, 2, None, 3, -5]
    rows = pa.table({"c0": pa.array(values, pa.int32()), "c1": pa.array(range(8), pa.int64())})
    found = ArrangementIndex(rows, StructType([StructField("c0", LongType())]))
    few = found.lookup(0, np.array([-5, 3, 9]))
    assert few is not None and sorted(few["c1"].to_pylist()) == [0, 3, 6, 7]
    none = found.lookup(0, np.array([], dtype=np.int64))
    assert none is not None and none.num_rows == 0
    monkeypatch.setattr(index, "MAX_LOOKUP_SHARE", 0.4)
    assert found.lookup(0, np.array([-5, 3, 9])) is None, "so many are read faster than handed over"


def test_compressed_rows_are_restored_unchanged() -> None:
    random = Random(3)

    def values(make: Callable[[], object], share: float = 0.2) -> list[object]:
        return [None if random.random() < share else make() for _ in range(300)]

    columns = {
        "c0": pa.array(
            values(lambda: Decimal(random.randint(-(10**18) + 1, 10**18 - 1)).scaleb(-2)), pa.decimal128(18, 2)
        ),
        "c1": pa.array(values(lambda: Decimal(random.randint(-(10**30), 10**30))), pa.decimal128(38, 0)),
        "c2": pa.array(values(lambda: Decimal(random.randint(-9, 9)), 0.0), pa.decimal128(1, 0)),
        "c3": pa.array(values(lambda: random.choice(["", "é", "open"])), pa.string()),
        "c4": pa.array([7] * 300, pa.int32()),
        "c5": pa.array([None] * 300, pa.int64()),
        "c6": pa.array(values(lambda: random.choice([True, False])), pa.bool_()),
        "c7": pa.array(values(lambda: random.randint(0, 10**15)), pa.timestamp("us", tz="UTC")),
        "c8": pa.array(values(lambda: random.choice([b"", b"\\0", b"bytes"])), pa.binary()),
        "__w": pa.array([1] * 300, pa.int64()),
    }
    whole = pa.table(columns)
    # In chunks that begin in the middle of a buffer, as Spark returns them.
    rows = pa.concat_tables([whole.slice(0, 100), whole.slice(100, 50), whole.slice(150)])
    places = np.array([random.randrange(300) for _ in range(500)])
    packed = CompressedColumns(rows)
    assert packed.take(places).to_pylist() == rows.take(pa.array(places)).to_pylist()
    assert packed.take(places).schema == rows.schema
    assert packed.take(places[:0]).schema == rows.schema
    assert packed.nbytes < rows.nbytes
