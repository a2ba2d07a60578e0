"""The law of every operator, for those that look at the order of rows; and each of them broken on purpose."""

from __future__ import annotations

from collections import Counter

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from applier.operators import incrementalize, top_k
from applier.operators.inputs import Side
from applier.plan.expr import Col
from applier.plan.nodes import Node, TopK
from applier.plan.order import SortKey
from tests.applier.operators.plans import INT, Row, scan
from tests.applier.operators.test_law import BagInputs, check_law, collected

X, Y = Col(0, INT), Col(1, INT)
DESC_Y, ASC_X = SortKey(Y, True, True), SortKey(X, False, False)

Case = tuple[str, Node, list[Row], list[Row]]

FIRST_ROWS: list[Case] = [
    (
        "a better row comes and the last of the first leaves",
        TopK(scan("a"), (), (DESC_Y, ASC_X), 2, 0, False),
        [(1, 3), (2, 2), (3, 1)],
        [(1, 3), (2, 2), (3, 1), (4, 3)],
    ),
    (
        "the first leaves and one from below moves up, as often as it is there",
        TopK(scan("a"), (), (ASC_X, DESC_Y), 2, 1, False),
        [(1, 1), (2, 1), (3, 1), (3, 1)],
        [(2, 1), (3, 1), (3, 1)],
    ),
    (
        "a tie joins the last row and another leaves",
        TopK(scan("a"), (), (ASC_X,), 1, 0, True),
        [(1, 1), (1, 2), (2, 1)],
        [(1, 1), (1, 1), (2, 1)],
    ),
    (
        "the first row of each key, where a key is NULL",
        TopK(scan("a"), (X,), (SortKey(Y, False, True),), 1, 0, False),
        [(None, 1), (1, 2), (2, 2)],
        [(None, 1), (None, None), (2, 2), (1, 3)],
    ),
]


def _inputs(spark: SparkSession, before: list[Row], after: list[Row]) -> BagInputs:
    return BagInputs(spark, {"a": Counter(before), "b": Counter()}, {"a": Counter(after), "b": Counter()})


@pytest.mark.parametrize(("node", "before", "after"), [pytest.param(*case[1:], id=case[0]) for case in FIRST_ROWS])
def test_surprising_windows(spark: SparkSession, node: Node, before: list[Row], after: list[Row]) -> None:
    check_law(node, _inputs(spark, before, after))
    assert incrementalize.delta(node, _inputs(spark, before, before)) is None


def test_first_rows_of_the_change_are_not_the_change(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """A deliberately wrong rule is noticed."""
    monkeypatch.setattr(
        incrementalize, "delta_top_k", lambda node, before, delta, *, small: top_k.snapshot_top_k(node, delta)
    )
    with pytest.raises(AssertionError):
        for _, node, before, after in FIRST_ROWS:
            check_law(node, _inputs(spark, before, after))


UNDECIDED = TopK(scan("a"), (), (ASC_X,), 2, 0, False)


@pytest.mark.parametrize("rows", [[(1, 1), (1, 2), (2, 1)], [(1, 1), (2, 1), (2, 1), (2, 1)], [(1, 1), (1, 2)], []])
def test_a_tie_that_does_not_matter_is_none(spark: SparkSession, rows: list[Row]) -> None:
    assert not UNDECIDED.decided
    check_law(UNDECIDED, _inputs(spark, [(0, 0)], rows))


@pytest.mark.parametrize(
    ("node", "rows"),
    [
        (UNDECIDED, [(1, 1), (2, 1), (2, 2)]),
        (UNDECIDED, [(None, 1), (None, 2), (None, None)]),
        (TopK(scan("a"), (), (ASC_X,), 1, 1, False), [(1, 1), (1, 2)]),
        (TopK(scan("a"), (), (ASC_X,), None, 1, False), [(1, 1), (1, 2)]),
        (TopK(scan("a"), (), (ASC_X,), 1, 1, True), [(1, 1), (1, 2)]),
    ],
)
def test_a_tie_across_the_border_is_an_error(spark: SparkSession, node: Node, rows: list[Row]) -> None:
    """Never one of several right answers: PostgreSQL might show another."""
    inputs = _inputs(spark, [], rows)
    for text in (incrementalize.delta(node, inputs), incrementalize.snapshot(node, Side.AFTER, inputs)):
        with pytest.raises(PySparkException, match="does not tell apart"):
            collected(spark, text)
