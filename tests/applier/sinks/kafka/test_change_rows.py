"""A net delta as change rows: replaying returns the delta, pairs are adjacent, values have their physical types."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from applier.plan.expr import ValueType
from applier.plan.nodes import Field, Scan, StreamPlan
from applier.plan.stream_table import StreamTable
from applier.sinks.delta import MemoryDelta
from applier.sinks.kafka.change_rows import avro_value
from applier.sinks.kafka.delta_rows import delta_change_rows
from applier.zset import WEIGHT
from shared_schema.change_row import Op
from shared_schema.lsn import ORIGIN, Lsn, LsnRange
from shared_schema.pg_types import PgType
from shared_schema.table_schema import Column, TableId

INT = PgType(23, -1, "int4", "integer")
TEXT = PgType(25, -1, "text", "text")
SINCE = Lsn(10)


def stream_table(key: tuple[int, ...] | None) -> StreamTable:
    fields = (Field(ValueType.of_column(INT), True), Field(ValueType.of_column(TEXT), True))
    scan = Scan(TableId("public", "t"), 1, ("a", "b"), fields, key)
    return StreamTable(
        1, TableId("public", "st"), 9, (Column("a", INT), Column("b", TEXT)), StreamPlan(scan, ("a", "b"))
    )


def delta(rows: dict[tuple[int | None, str], int], old: Lsn = SINCE) -> MemoryDelta:
    table = pa.table(
        {
            "c0": pa.array([a for a, _ in rows], pa.int32()),
            "c1": pa.array([b for _, b in rows], pa.string()),
            WEIGHT: pa.array(list(rows.values()), pa.int64()),
        }
    )
    return MemoryDelta(LsnRange(old, Lsn(20)), table)


nets = st.dictionaries(
    st.tuples(st.one_of(st.none(), st.integers(0, 3)), st.sampled_from("xy")), st.integers(-3, 3).filter(bool)
)


@given(nets)
def test_replaying_gives_the_delta_back(net: dict[tuple[int | None, str], int]) -> None:
    rows = list(delta_change_rows(stream_table(None), delta(net), number=1, empty_first=False))
    replayed: Counter[object] = Counter()
    for row in rows:
        replayed[row.values] += row.op.weight
    assert {k: n for k, n in replayed.items() if n} == net
    assert [row.stamp.seq for row in rows] == list(range(len(rows)))
    assert {row.stamp.lsn for row in rows} <= {Lsn(19)}


def test_an_update_is_a_pair_that_says_what_changed() -> None:
    rows = list(
        delta_change_rows(
            stream_table((0,)), delta({(1, "new"): 1, (2, "gone"): -1, (1, "old"): -1}), number=1, empty_first=False
        )
    )
    shown = [(row.op, row.values, row.changed) for row in rows]
    changed = frozenset({1})
    assert (Op.DELETE, (2, "gone"), None) in shown
    at = shown.index((Op.DELETE, (1, "old"), changed))
    assert shown[at + 1] == (Op.INSERT, (1, "new"), changed)


def test_a_fill_is_a_snapshot_and_may_empty_the_topic_first() -> None:
    rows = list(delta_change_rows(stream_table((0,)), delta({(1, "x"): 1}, ORIGIN), number=1, empty_first=True))
    assert [(row.op, row.stamp.seq, row.snapshot) for row in rows] == [(Op.TRUNCATE, 0, False), (Op.INSERT, 1, True)]


def test_a_topic_that_begins_again_repeats_no_stamp() -> None:
    """Another stream table takes the name at the same frontier: a reader that drops known stamps loses no row."""
    before = delta_change_rows(stream_table((0,)), delta({(1, "x"): 1, (2, "y"): 1}), number=3, empty_first=False)
    again = delta({(1, "x"): 1, (2, "y"): 1}, ORIGIN)
    after = delta_change_rows(stream_table((0,)), again, number=1, empty_first=True, first_seq=2)
    stamps = [row.stamp for row in [*before, *after]]
    assert stamps == sorted(set(stamps))


def test_values_leave_as_postgresql_prints_them() -> None:
    numeric = PgType(1700, -1, "numeric", "numeric")
    char = PgType(1042, 8, "bpchar", "character(4)")
    assert avro_value(numeric, Decimal("1E+3")) == "1000"
    assert avro_value(numeric, Decimal("1.50")) == "1.50"
    assert avro_value(char, "ab") == "ab  "
    assert avro_value(INT, None) is None
