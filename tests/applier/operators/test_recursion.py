"""The law of every operator, for recursions; also a deliberately broken one, and one that does not end."""

from __future__ import annotations

from collections import Counter

import pytest
from pyspark.sql import SparkSession

from applier.arrange import fixpoint
from applier.errors import CalculationError
from applier.operators import incrementalize, render
from applier.operators.support.inputs import Side
from applier.plan.expr import Col, Const
from applier.plan.nodes import Field, Filter, Join, Node, Project, Recursion, UnionAll, WorkTable
from tests.applier.operators.plans import INT, Row, less, scan
from tests.applier.operators.test_law import BagInputs, check_law, collected

pytestmark = pytest.mark.usefixtures("interpreted")

X, Y, Z = Col(0, INT), Col(1, INT), Col(3, INT)
WORKING = WorkTable(1, (Field(INT, True), Field(INT, True)))
STEP = Project(Join(WORKING, scan("a"), ((Y, X),), None), (X, Z))
REACHABLE = Recursion(1, scan("a"), STEP, distinct=True)
PATHS = Recursion(1, scan("a"), STEP, distinct=False)
EITHER = Recursion(1, Filter(scan("a"), less(X, Const(1, INT))), UnionAll((STEP, scan("b"))), distinct=True)
FROM_ZERO = Recursion(1, Filter(scan("a"), less(X, Const(1, INT))), STEP, distinct=False)

CASES: list[tuple[str, Node, list[Row], list[Row]]] = [
    ("an edge closes a cycle", REACHABLE, [(1, 2), (2, 3)], [(1, 2), (2, 3), (3, 1)]),
    ("a cycle is cut and what hung on it goes", REACHABLE, [(1, 2), (2, 1), (2, 3)], [(1, 2), (2, 3), (4, 4)]),
    ("another way keeps a row", REACHABLE, [(1, 2), (2, 4), (1, 3), (3, 4)], [(1, 2), (1, 3), (3, 4)]),
    (
        "an edge twice is two paths, and NULL leads nowhere",
        PATHS,
        [(1, 2), (2, 3)],
        [(1, 2), (1, 2), (2, 3), (3, None)],
    ),
    ("the root leaves and everything with it", FROM_ZERO, [(0, 1), (1, 2), (2, 3), (5, 6)], [(1, 2), (2, 3)]),
    ("a step makes rows of another table though there is nothing to go on", EITHER, [(0, 1), (1, 2)], [(1, 2), (2, 3)]),
]


def _inputs(spark: SparkSession, before: list[Row], after: list[Row]) -> BagInputs:
    other = Counter([(7, 1)])
    return BagInputs(spark, {"a": Counter(before), "b": other}, {"a": Counter(after), "b": other})


@pytest.mark.parametrize(("node", "before", "after"), [pytest.param(*case[1:], id=case[0]) for case in CASES])
def test_surprising_changes(spark: SparkSession, node: Node, before: list[Row], after: list[Row]) -> None:
    check_law(node, _inputs(spark, before, after))
    assert incrementalize.delta(node, _inputs(spark, before, before)) is None


def test_one_round_is_not_a_recursion(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """A deliberately wrong rule: as if the delta of the base were the delta of the whole."""
    _, node, before, after = CASES[0]
    inputs = _inputs(spark, before, after)
    monkeypatch.setattr(render, "delta_recursion", lambda *_: incrementalize.delta(scan("a"), inputs))
    with pytest.raises(AssertionError):
        check_law(node, inputs)


def test_a_recursion_without_an_end_is_an_error(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fixpoint, "MAX_FIXPOINT_ROUNDS", 5)
    inputs = _inputs(spark, [], [(1, 2), (2, 1)])
    with pytest.raises(CalculationError, match="does not end within 5 rounds"):
        collected(spark, incrementalize.snapshot(PATHS, Side.AFTER, inputs))
    assert collected(spark, incrementalize.snapshot(REACHABLE, Side.AFTER, inputs)).total() == 4
