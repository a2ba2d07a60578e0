"""The law of every operator, for VALUES rows and for sets made from one row; also each deliberately broken."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from pyspark.sql import SparkSession

from applier.operators import incrementalize, linear_prefix
from applier.operators.support.inputs import Side
from applier.plan.expr import Col, Const
from applier.plan.nodes import Field, Join, Node, SetReturningFunction, TableFunction, Unnest, Values
from tests.applier.operators.plans import INT, Row, scan
from tests.applier.operators.test_law import BagInputs, check_law, collected

pytestmark = pytest.mark.usefixtures("interpreted")

X, Y = Col(0, INT), Col(1, INT)
ONE, NULL = Const(1, INT), Const(None, INT)
ROWS = Values(((ONE, NULL), (ONE, NULL), (Const(2, INT), ONE)), (Field(INT, False), Field(INT, True)))
SERIES, LISTED = SetReturningFunction.SERIES, SetReturningFunction.LISTED


def _unfold(*sets: tuple[Any, ...], ordinality: bool = False, outer: bool = False) -> Unnest:
    return Unnest(scan("a"), tuple(TableFunction(made[0], made[1:], INT) for made in sets), ordinality, outer)


CASES: list[tuple[str, Node, list[Row], list[Row]]] = [
    ("written rows meet what changes", Join(scan("a"), ROWS, ((X, X),), None), [(1, 1)], [(1, 1), (1, 1), (2, 5)]),
    (
        "a series per row",
        _unfold((SERIES, X, Y)),
        [(1, 3)],
        [(1, 3), (3, 1), (0, 2), (0, 2)],
    ),
    (
        "a series downwards, numbered, and rows without one stay",
        _unfold((SERIES, X, Y, Const(-2, INT)), ordinality=True, outer=True),
        [(3, 0), (1, 2), (None, 1)],
        [(3, 1), (1, 2), (None, 1), (None, None)],
    ),
    ("listed values, NULL among them", _unfold((LISTED, X, Y, X), ordinality=True), [(1, None)], [(2, 2)]),
    (
        "two sets side by side, one of them longer",
        _unfold((SERIES, X, Y), (LISTED, Y, X)),
        [(1, 3), (3, 3)],
        [(1, 5), (3, 1), (None, 2), (1, 5)],
    ),
    (
        "several sets, numbered, and rows without any stay",
        _unfold((SERIES, X, Y), (SERIES, ONE, X), ordinality=True, outer=True),
        [(0, -1), (2, 3)],
        [(None, None), (0, -1), (3, 3), (0, 2)],
    ),
]


def _inputs(spark: SparkSession, before: list[Row], after: list[Row]) -> BagInputs:
    return BagInputs(spark, {"a": Counter(before), "b": Counter()}, {"a": Counter(after), "b": Counter()})


@pytest.mark.parametrize(("node", "before", "after"), [pytest.param(*case[1:], id=case[0]) for case in CASES])
def test_surprising_changes(spark: SparkSession, node: Node, before: list[Row], after: list[Row]) -> None:
    check_law(node, _inputs(spark, before, after))
    assert incrementalize.delta(node, _inputs(spark, before, before)) is None


def test_rows_written_in_the_query_never_change(spark: SparkSession) -> None:
    inputs = _inputs(spark, [(1, 1)], [])
    assert incrementalize.delta(ROWS, inputs) is None
    assert collected(spark, incrementalize.snapshot(ROWS, Side.AFTER, inputs)) == {(1, None): 2, (2, 1): 1}
    assert collected(spark, incrementalize.snapshot(Values(((),), ()), Side.AFTER, inputs)) == {(): 1}


def test_a_broken_rule_is_noticed(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear_prefix, "apply_unnest", lambda node, zset: zset.select([*zset.columns, "c0", "1L"]))
    with pytest.raises(AssertionError):
        check_law(CASES[2][1], _inputs(spark, CASES[2][2], CASES[2][3]))
