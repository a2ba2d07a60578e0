"""Netting: weights that cancel out disappear, every other row appears once, and keyed rows get one action each."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from math import nan

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from applier.sinks.net_delta import row_actions, row_tuples
from applier.zset import WEIGHT, identity, net


def zset(rows: list[tuple[int | None, str | None, int]]) -> pa.Table:
    return pa.table(
        {
            "c0": pa.array([r[0] for r in rows], pa.int32()),
            "c1": pa.array([r[1] for r in rows], pa.string()),
            WEIGHT: pa.array([r[2] for r in rows], pa.int64()),
        }
    )


rows = st.lists(
    st.tuples(st.one_of(st.none(), st.integers(0, 2)), st.one_of(st.none(), st.sampled_from("ab")), st.integers(-2, 2))
)


@given(rows)
def test_netting_sums_weights_per_row(given_rows: list[tuple[int | None, str | None, int]]) -> None:
    expected: Counter[tuple[int | None, str | None]] = Counter()
    for a, b, w in given_rows:
        expected[a, b] += w
    got = {(a, b): w for a, b, w in row_tuples(net(zset(given_rows)))}
    assert got == {row: w for row, w in expected.items() if w}


def test_every_physical_type_can_be_netted() -> None:
    columns = {
        "c0": pa.array([Decimal("1.50")] * 2, pa.decimal128(38, 2)),
        "c1": pa.array([b"\x00"] * 2, pa.binary()),
        "c2": pa.array([True] * 2, pa.bool_()),
        "c3": pa.array([0] * 2, pa.timestamp("us", tz="UTC")),
        "c4": pa.array([0] * 2, pa.date32()),
        "c5": pa.array([1.5] * 2, pa.float64()),
        WEIGHT: pa.array([1, 1], pa.int64()),
    }
    assert [row[-1] for row in row_tuples(net(pa.table(columns)))] == [2]


def acted(rows: pa.Table, key: tuple[int, ...]) -> list[tuple[object, ...]]:
    return [(row[-1], row[:-1]) for row in row_tuples(row_actions(rows, key))]


def test_one_action_per_key_deletions_first() -> None:
    changes = acted(zset([(1, "a", 1), (2, "a", -1), (3, "a", -1), (3, "b", 1), (None, "x", 1)]), (0,))
    assert changes == [("D", (2, "a")), ("U", (3, "b")), ("I", (1, "a")), ("I", (None, "x"))]


def test_no_key_column_means_one_row() -> None:
    assert acted(zset([(1, "a", -1), (2, "a", 1)]), ()) == [("U", (2, "a"))]


@pytest.mark.parametrize("bad", [[(1, "a", 2)], [(1, "a", 1), (1, "b", 1)]])
def test_a_key_that_is_none_is_a_bug(bad: list[tuple[int, str, int]]) -> None:
    with pytest.raises(AssertionError):
        row_actions(zset([*bad]), (0,))


def test_rows_cancel_out_only_if_they_are_the_same_to_the_last_bit() -> None:
    """0 and -0 are equal and look different; every NaN is one NaN, also one that a calculation gave a sign."""
    signed_nan = pa.array([0xFFF8 << 48], pa.uint64()).view(pa.float64())
    values = pa.chunked_array([pa.array([0.0, -0.0, -0.0, nan, nan], pa.float64()), signed_nan])
    found = net(pa.table({"c0": values, WEIGHT: pa.array([1, 1, 1, 1, -1, -1], pa.int64())}))
    assert {(repr(value), weight) for value, weight in row_tuples(found)} == {("0.0", 1), ("-0.0", 2), ("nan", -1)}
    assert len({identity((value,)) for value in (0.0, -0.0, nan, -nan)}) == 3
