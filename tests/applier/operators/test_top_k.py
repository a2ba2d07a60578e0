"""The law of every operator, for those that depend on the order of rows; also each of them deliberately broken."""

from __future__ import annotations

from collections import Counter

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from applier.operators import incrementalize, render, top_k, window
from applier.operators.support.inputs import Side
from applier.plan.expr import AggregateCall, Col, Const, Expr, SortKey
from applier.plan.keys import is_order_decided
from applier.plan.nodes import Node, TopK, Window
from applier.plan.window import Bound, BoundKind, Exclude, Frame, FrameMode, WindowCall, WindowFunction
from tests.applier.operators.plans import BIG, INT, Row, less, scan
from tests.applier.operators.test_law import BagInputs, check_law, collected

pytestmark = pytest.mark.usefixtures("interpreted")

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


WHOLE = Frame(FrameMode.ROWS, Bound(BoundKind.FIRST), Bound(BoundKind.LAST))
ALL_BEFORE = Frame(FrameMode.RANGE, Bound(BoundKind.FIRST), Bound(BoundKind.CURRENT))
TWO_ROWS = Frame(FrameMode.ROWS, Bound(BoundKind.PRECEDING, Const(1, BIG)), Bound(BoundKind.CURRENT))
NEIGHBOURS = Frame(FrameMode.ROWS, TWO_ROWS.start, Bound(BoundKind.FOLLOWING, Const(1, BIG)), Exclude.CURRENT)
NEXT_GROUP = Frame(FrameMode.GROUPS, Bound(BoundKind.CURRENT), Bound(BoundKind.FOLLOWING, Const(1, BIG)))


Calls = list[tuple[WindowFunction | str, tuple[Expr, ...], Frame | None, Expr | None]]


def _window(keys: tuple[Expr, ...], order: tuple[SortKey, ...], calls: Calls) -> Window:
    types = [INT if function in (WindowFunction.LAG, "max(int4)") else BIG for function, *_ in calls]
    planned = []
    for (name, args, frame, kept), of in zip(calls, types, strict=True):
        if isinstance(name, WindowFunction):
            planned.append(WindowCall(name, args, of, keys, order, frame))
        else:
            aggregate = AggregateCall(name, args, of, filter=kept)
            planned.append(WindowCall(WindowFunction.AGGREGATE, (), of, keys, order, frame, aggregate))
    return Window(scan("a"), keys, tuple(planned))


WINDOWS: list[Case] = [
    (
        "a row in the middle leaves and all after it move up",
        _window((), (ASC_X, DESC_Y), [(WindowFunction.ROW_NUMBER, (), None, None)]),
        [(1, 1), (2, 1), (3, 1), (3, 1)],
        [(1, 1), (3, 1), (3, 1)],
    ),
    (
        "only the touched partition is looked at, and NULL is one",
        _window(
            (X,),
            (DESC_Y,),
            [(WindowFunction.RANK, (), None, None), (WindowFunction.LAG, (Y, Const(1, INT)), None, None)],
        ),
        [(None, 1), (None, 2), (1, 2), (1, 2)],
        [(None, 1), (None, 3), (None, None), (1, 2), (1, 2)],
    ),
    (
        "a row moves between partitions",
        _window((X,), (), [("count()", (), WHOLE, None)]),
        [(1, 1), (1, 2), (2, 5)],
        [(1, 1), (2, 2), (2, 5)],
    ),
    (
        "a running sum changes for its peers and all after them",
        _window((), (ASC_X,), [("sum(int4)", (Y,), ALL_BEFORE, None)]),
        [(0, 1), (1, 1), (1, 5), (2, None)],
        [(0, 1), (1, 1), (1, 5), (1, 5), (2, None)],
    ),
    (
        "a frame of rows, with a filter",
        _window(
            (),
            (ASC_X, DESC_Y),
            [
                ("sum(int4)", (Y,), TWO_ROWS, less(X, Const(3, INT))),
                ("sum(int4)", (Y,), NEIGHBOURS, None),
                ("count(any)", (Y,), NEIGHBOURS, None),
            ],
        ),
        [(0, 1), (1, None), (2, 5), (3, 7)],
        [(0, 1), (1, None), (1, 4), (3, 7)],
    ),
    (
        "a frame of groups of peers",
        _window((), (ASC_X,), [("max(int4)", (Y,), NEXT_GROUP, None)]),
        [(0, 1), (0, 2), (2, 5), (None, 7)],
        [(0, 1), (1, 3), (2, 5), (None, 7), (None, 9)],
    ),
]


def _inputs(spark: SparkSession, before: list[Row], after: list[Row]) -> BagInputs:
    return BagInputs(spark, {"a": Counter(before), "b": Counter()}, {"a": Counter(after), "b": Counter()})


@pytest.mark.parametrize(
    ("node", "before", "after"), [pytest.param(*case[1:], id=case[0]) for case in [*FIRST_ROWS, *WINDOWS]]
)
def test_surprising_changes(spark: SparkSession, node: Node, before: list[Row], after: list[Row]) -> None:
    check_law(node, _inputs(spark, before, after))
    assert incrementalize.delta(node, _inputs(spark, before, before)) is None


def test_the_first_rows_of_the_input_delta_are_not_the_delta(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A deliberately wrong rule is noticed."""
    monkeypatch.setattr(render, "render_top_k_delta", lambda node, before, delta: top_k.snapshot_top_k(node, delta))
    with pytest.raises(AssertionError):
        for _, node, before, after in FIRST_ROWS:
            check_law(node, _inputs(spark, before, after))


def test_a_window_over_the_change_alone_is_noticed(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """A deliberately wrong rule: as if only changed rows got new values."""
    monkeypatch.setattr(render, "render_window_delta", lambda node, before, delta: window.snapshot_window(node, delta))
    with pytest.raises(AssertionError):
        for _, node, before, after in WINDOWS:
            check_law(node, _inputs(spark, before, after))


UNDECIDED = TopK(scan("a"), (), (ASC_X,), 2, 0, False)


@pytest.mark.parametrize("rows", [[(1, 1), (1, 2), (2, 1)], [(1, 1), (2, 1), (2, 1), (2, 1)], [(1, 1), (1, 2)], []])
def test_a_tie_that_does_not_matter_is_none(spark: SparkSession, rows: list[Row]) -> None:
    assert not is_order_decided(UNDECIDED)
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
    """Never return one of several correct results: PostgreSQL may return another."""
    inputs = _inputs(spark, [], rows)
    for text in (incrementalize.delta(node, inputs), incrementalize.snapshot(node, Side.AFTER, inputs)):
        with pytest.raises(PySparkException, match="equal in ORDER BY"):
            collected(spark, text)
