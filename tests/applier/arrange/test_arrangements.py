"""An arrangement always equals the linear map of its relation, and arrangements use no more memory than allowed."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from applier.arrange import arrangements
from applier.arrange.traces import Traces
from applier.operators.support.inputs import Side
from applier.plan.expr import ValueType
from applier.plan.nodes import Field, Scan
from applier.trace.stamped_rows import StampedRow
from applier.trace.store import TraceStore
from applier.trace.trace import Trace
from applier.zset import ZSet, net
from shared_schema.change_row import ChangeRow, Op, Stamp
from shared_schema.lsn import Lsn, LsnRange
from shared_schema.pg_types import PgType
from shared_schema.table_schema import Column, ReplicaIdentity, TableId, TableSchema

INT = PgType(23, -1, "int4", "integer")
TABLE = TableSchema(
    TableId("public", "t"), 1, (Column("a", INT), Column("b", INT), Column("c", INT)), (), ReplicaIdentity.FULL
)
SCAN = Scan(TABLE.table, 1, ("b", "a"), (Field(ValueType.of_column(INT), True),) * 2, None)


def even(zset: ZSet) -> ZSet:
    return ZSet(f"SELECT c1 AS c0, __w FROM ({zset.sql}) WHERE c0 % 2 = 0", ("c0",))


def change(trace: Trace, lsn: int, op: Op, rows: range) -> None:
    """Insert or delete rows (i, i % 10, 0)."""
    trace.append(
        [StampedRow(ChangeRow(op, Stamp(Lsn(lsn), seq), 1, 0, (i, i % 10, 0)), TABLE) for seq, i in enumerate(rows)]
    )


def read(spark: SparkSession, traces: Traces, side: Side, lsn_range: LsnRange) -> list[tuple[int, int]]:
    with traces.through(lsn_range) as inputs:
        rows: pa.Table = net(spark.sql(inputs.snapshot(SCAN, side, even).sql).toArrow())
    return sorted(zip(rows["c0"].to_pylist(), rows["__w"].to_pylist(), strict=True))


def test_it_follows_the_base(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrangements, "MIN_ARRANGED_ROWS", 1)
    store, trace = TraceStore(spark, str(tmp_path)), Trace(spark, TABLE.table)
    trace.capture(TABLE.columns, Lsn(1))
    traces = Traces(spark, [trace], 64)
    held: set[int] = set()
    steps = ((Op.INSERT, range(100)), (Op.INSERT, range(200, 230)), (Op.DELETE, range(10)), (Op.DELETE, range(20, 90)))
    for number, (op, rows) in enumerate(steps):
        at = 10 * (number + 1)
        before = sorted((i, 1) for i in held if i % 10 % 2 == 0)
        change(trace, at, op, rows)
        held = held | {*rows} if op is Op.INSERT else held - {*rows}
        after = sorted((i, 1) for i in held if i % 10 % 2 == 0)
        lsn_range = LsnRange(Lsn(at - 5), Lsn(at + 1))
        assert read(spark, traces, Side.BEFORE, lsn_range) == before
        assert read(spark, traces, Side.AFTER, lsn_range) == after
        trace.rebase(store.append(trace, Lsn(at + 2)))
        # The base holds it now; the last deletion was so large that the whole base was written again.
        assert read(spark, traces, Side.AFTER, LsnRange(Lsn(at + 3), Lsn(at + 3))) == after
    # A base is deleted one checkpoint later: it may still be read.
    trace.rebase(trace.base)
    traces.arrangements.tidy()
    kept = traces.arrangements._arrangements
    assert len(kept) == 1
    assert all(not one.segment.released and one.rows == len(after) for one in kept.values())


def test_arrangements_stay_within_their_memory(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(arrangements, "MIN_ARRANGED_ROWS", 1)
    trace = Trace(spark, TABLE.table)
    trace.capture(TABLE.columns, Lsn(1))
    change(trace, 10, Op.INSERT, range(50))
    trace.rebase(TraceStore(spark, str(tmp_path)).append(trace, Lsn(20)))
    (segment,) = trace.base.segments
    view = trace.parts(LsnRange(Lsn(20), Lsn(20))).views[0]
    kept = arrangements.Arrangements(spark, 1)
    first = kept.of(segment, f"SELECT c0, __w FROM {view}")
    assert first is not None and first.rows == 50 and 0 < first.size < 1 << 20
    kept.budget = first.size
    assert kept.of(segment, f"SELECT c1, __w FROM {view}") is None
    assert "not enough memory" in caplog.text
    # Nor is it built again for an index lookup.
    assert kept.index(segment, f"SELECT c1, __w FROM {view}") is None
    assert caplog.text.count("not enough memory") == 1
    assert kept.of(segment, f"SELECT c0, __w FROM {view}") is first
    # The first has not been read for long: it is evicted.
    monkeypatch.setattr(arrangements, "UNUSED_S", -1.0)
    assert kept.of(segment, f"SELECT c2, __w FROM {view}") is not None
    assert kept.of(segment, f"SELECT c1, __w FROM {view}") is not None
    assert len(kept._arrangements) == 1
