"""The law of every operator: snapshot(before) + delta = snapshot(after), and both snapshots equal SQL's result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

from applier.arrange.fixpoint import fixpoint
from applier.arrange.materialized import MaterializedRows
from applier.operators import aggregate, incrementalize, inner_join, linear_prefix, planner, project, render, union_all
from applier.operators.support import join_match
from applier.operators.support.inputs import LinearMap, Lookup, Side, StatefulNode, identity_map
from applier.plan.expr import AggregateCall, Col, Const, SortKey
from applier.plan.nodes import (
    Aggregate,
    Field,
    Filter,
    Join,
    Node,
    OuterJoin,
    Project,
    Recursion,
    Repeat,
    Scan,
    SemiJoin,
    UnionAll,
)
from applier.spark.collect import collect
from applier.spark.views import create_view
from applier.zset import WEIGHT, ZSet, column_names
from tests.applier.operators.plans import (
    BIG,
    COLUMNS,
    INT,
    TABLES,
    TEXT,
    Bag,
    Row,
    bags,
    evaluate,
    less,
    plans,
    scan,
)

pytestmark = pytest.mark.usefixtures("interpreted")


@dataclass
class BagInputs:
    """Both ends of an LSN range as multisets; the delta is their difference, with some noise that cancels out."""

    spark: SparkSession
    before: dict[str, Bag]
    after: dict[str, Bag]
    small: bool = True
    _views: dict[tuple[str, Side | None], ZSet] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # So few that some of the rows that are read again stay in Spark, and some do not.
        self._computed = MaterializedRows(self.spark, max_driver_rows=3)

    def delta(self, scan: Scan) -> ZSet | None:
        old, new = self.before[scan.table.name], self.after[scan.table.name]
        if old == new:
            return None
        weights = [(row, 1) for row in new.elements()] + [(row, -1) for row in old.elements()]
        return self._view((scan.table.name, None), weights)

    def snapshot(
        self, scan: Scan, side: Side, linear_map: LinearMap = identity_map, lookup: Lookup | None = None
    ) -> ZSet:
        bag = (self.before if side is Side.BEFORE else self.after)[scan.table.name]
        return linear_map(self._view((scan.table.name, side), list(bag.items())))

    def rows(self, scan: Scan, linear_map: LinearMap = identity_map) -> int | None:
        return self.before[scan.table.name].total() if scan.table.name == "a" else None

    def fixpoint(self, node: Recursion, base: ZSet, step: Callable[[ZSet], ZSet]) -> ZSet:
        return ZSet.of_view(fixpoint(self.spark, node, base, step), len(base.columns))

    def materialize_once(self, zset: ZSet, columns: Sequence[Field]) -> ZSet:
        return self._computed.materialize_once(zset, columns)

    def materialize_small(self, zset: ZSet, columns: Sequence[Field]) -> ZSet | None:
        return self._computed.materialize_small(zset, columns)

    def state_of(self, node: StatefulNode) -> None:
        return None

    def _view(self, key: tuple[str, Side | None], weights: list[tuple[Row, int]]) -> ZSet:
        if key not in self._views:
            self._views[key] = self._made(weights)
        return self._views[key]

    def _made(self, weights: list[tuple[Row, int]]) -> ZSet:
        arrays = [pa.array([row[i] for row, _ in weights], pa.int32()) for i in range(len(COLUMNS))]
        arrays.append(pa.array([n for _, n in weights], pa.int64()))
        frame = self.spark.createDataFrame(pa.Table.from_arrays(arrays, [*column_names(len(COLUMNS)), WEIGHT]))
        return ZSet.of_view(create_view(frame), len(COLUMNS))


def collected(spark: SparkSession, zset: ZSet | None) -> Bag:
    out: Bag = Counter()
    if zset is not None:
        for *row, weight in _tuples(spark.sql(zset.sql)):
            out[tuple(row)] += weight
    return Counter({row: n for row, n in out.items() if n})


def _given(zset: ZSet | None) -> ZSet:
    assert zset is not None
    return zset


def _tuples(frame: DataFrame) -> list[Row]:
    table = collect(frame)
    return list(zip(*[table[name].to_pylist() for name in table.column_names], strict=True))


def difference(new: Bag, old: Bag) -> Bag:
    out = Counter(new)
    out.subtract(old)
    return Counter({row: n for row, n in out.items() if n})


def check_law(node: Node, inputs: BagInputs) -> None:
    before, after = evaluate(node, inputs.before), evaluate(node, inputs.after)
    assert collected(inputs.spark, incrementalize.delta(node, inputs)) == difference(after, before)
    assert collected(inputs.spark, incrementalize.snapshot(node, Side.AFTER, inputs)) == after


windows = st.fixed_dictionaries({name: st.tuples(bags, bags) for name in TABLES})


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(node=plans(), window=windows, small=st.booleans())
def test_delta_equals_recompute(
    spark: SparkSession, node: Node, window: dict[str, tuple[Bag, Bag]], small: bool
) -> None:
    before = {name: old for name, (old, _) in window.items()}
    after = {name: new for name, (_, new) in window.items()}
    check_law(node, BagInputs(spark, before, after, small))


X, Y = Col(0, INT), Col(1, INT)
COUNT_SUM = (AggregateCall("count()", (), BIG, nullable=False), AggregateCall("sum(int4)", (Y,), BIG))
MIN_MAX = (AggregateCall("min(int4)", (Y,), INT), AggregateCall("max(int4)", (Y,), INT))
LIST = (AggregateCall("array_agg(anynonarray)", (Y,), TEXT, order=(SortKey(Y, True, False), SortKey(X, False, True))),)

TOTALS_OF_A, TOTALS_OF_B = (Aggregate(scan(table), (X,), COUNT_SUM) for table in TABLES)

SURPRISING: list[tuple[str, Node, dict[str, list[Row]], dict[str, list[Row]]]] = [
    (
        "both sides of a join change, the partner leaves",
        Join(scan("a"), scan("b"), ((X, X),), None),
        {"a": [(1, 1)], "b": [(1, 1)]},
        {"a": [(2, 1)], "b": []},
    ),
    (
        "the same row on both sides arrives twice",
        Join(scan("a"), scan("b"), ((X, X),), None),
        {"a": [], "b": []},
        {"a": [(1, 1), (1, 1)], "b": [(1, 2), (1, 2)]},
    ),
    (
        "NULL joins nothing",
        Join(scan("a"), scan("b"), ((X, X),), None),
        {"a": [], "b": [(None, 1)]},
        {"a": [(None, 1)], "b": [(None, 1)]},
    ),
    (
        "a self-join changes on both sides at once",
        Join(scan("a"), scan("a"), ((X, Y),), None),
        {"a": [(1, 1)], "b": []},
        {"a": [(1, 2), (2, 1)], "b": []},
    ),
    (
        "the last row of a group leaves",
        Aggregate(scan("a"), (X,), COUNT_SUM),
        {"a": [(1, 5), (2, 1)], "b": []},
        {"a": [(2, 1)], "b": []},
    ),
    (
        "NULL is a group",
        Aggregate(scan("a"), (X,), COUNT_SUM),
        {"a": [(None, 5)], "b": []},
        {"a": [(None, 5), (None, None)], "b": []},
    ),
    (
        "the sum of no value is NULL, not 0",
        Aggregate(scan("a"), (X,), COUNT_SUM),
        {"a": [(1, 5), (1, None)], "b": []},
        {"a": [(1, None)], "b": []},
    ),
    (
        "a count over nothing is a row",
        Aggregate(scan("a"), (), COUNT_SUM),
        {"a": [(1, 5)], "b": []},
        {"a": [], "b": []},
    ),
    (
        "a row moves between groups",
        Aggregate(scan("a"), (X,), COUNT_SUM),
        {"a": [(1, 5)], "b": []},
        {"a": [(2, 5)], "b": []},
    ),
    (
        "a change that cancels out in the group",
        Aggregate(scan("a"), (X,), COUNT_SUM),
        {"a": [(1, 2), (1, 3)], "b": []},
        {"a": [(1, 1), (1, 4)], "b": []},
    ),
    (
        "the smallest value leaves, and one of two largest",
        Aggregate(scan("a"), (X,), MIN_MAX),
        {"a": [(1, 0), (1, 2), (1, 3), (1, 3)], "b": []},
        {"a": [(1, 2), (1, 3)], "b": []},
    ),
    (
        "a list with duplicates and NULLs changes in the middle",
        Aggregate(scan("a"), (), (*LIST, *MIN_MAX, *COUNT_SUM)),
        {"a": [(1, 0), (2, 0), (1, 2), (1, None), (1, 3), (1, 3)], "b": []},
        {"a": [(1, 0), (2, 0), (1, 2), (1, 1), (1, 3), (2, None)], "b": []},
    ),
    (
        "a value counted once leaves once",
        Aggregate(scan("a"), (X,), (replace(COUNT_SUM[1], distinct=True), COUNT_SUM[0])),
        {"a": [(1, 2), (1, 2), (2, 2), (2, 3)], "b": []},
        {"a": [(1, 2), (2, 3)], "b": []},
    ),
    (
        "a value moves across a filter",
        Aggregate(scan("a"), (X,), tuple(replace(c, filter=less(Y, Const(2, INT))) for c in (*COUNT_SUM, *MIN_MAX))),
        {"a": [(1, 1), (1, 3), (2, None)], "b": []},
        {"a": [(1, 2), (1, 3), (2, 1)], "b": []},
    ),
    (
        "an aggregate over an aggregate",
        Aggregate(Aggregate(scan("a"), (X,), COUNT_SUM), (Col(1, BIG, False),), COUNT_SUM[:1]),
        {"a": [(1, 2), (2, 3)], "b": []},
        {"a": [(1, 2), (1, 2), (2, 3)], "b": []},
    ),
    (
        "two aggregates that are joined change at once",
        Join(TOTALS_OF_A, TOTALS_OF_B, ((X, X),), None),
        {"a": [(1, 2), (2, 3)], "b": [(1, 5), (2, 5)]},
        {"a": [(1, 2), (1, 2), (3, 1)], "b": [(1, 6), (2, 5), (3, None)]},
    ),
    (
        "aggregates in a chain of left joins lose and gain partners",
        OuterJoin(OuterJoin(scan("a"), TOTALS_OF_B, ((X, X),), None, False), TOTALS_OF_A, ((Y, X),), None, False),
        {"a": [(1, 2), (2, None)], "b": [(1, 5)]},
        {"a": [(1, 3), (2, None), (3, 1)], "b": [(2, 5), (2, 6)]},
    ),
    (
        "an update the filter lets through one way",
        Filter(scan("a"), less(X, Const(2, INT))),
        {"a": [(1, 1)], "b": []},
        {"a": [(3, 1)], "b": []},
    ),
    (
        "the first partner arrives and the null-extended row leaves",
        OuterJoin(scan("a"), scan("b"), ((X, X),), None, False),
        {"a": [(1, 1), (1, 1)], "b": []},
        {"a": [(1, 1), (1, 1)], "b": [(1, 5), (1, 5)]},
    ),
    (
        "one of two partners leaves: nothing is null-extended",
        OuterJoin(scan("a"), scan("b"), ((X, X),), None, False),
        {"a": [(1, 1)], "b": [(1, 5), (1, 5)]},
        {"a": [(1, 1)], "b": [(1, 5)]},
    ),
    (
        "the last partner leaves while the row itself changes",
        OuterJoin(scan("a"), scan("b"), ((X, X),), None, False),
        {"a": [(1, 1)], "b": [(1, 5)]},
        {"a": [(1, 2)], "b": []},
    ),
    (
        "a NULL key is kept and never matched",
        OuterJoin(scan("a"), scan("b"), ((X, X),), None, True),
        {"a": [(None, 1)], "b": []},
        {"a": [(None, 1), (None, 1)], "b": [(None, 1)]},
    ),
    (
        "a partner that the rest of the condition does not accept is none",
        OuterJoin(scan("a"), scan("b"), ((X, X),), less(Y, Col(3, INT)), False),
        {"a": [(1, 1), (1, 3)], "b": [(1, 0)]},
        {"a": [(1, 1), (1, 3)], "b": [(1, 0), (1, 2)]},
    ),
    (
        "an outer join without any equality",
        OuterJoin(scan("a"), scan("b"), (), less(X, Col(2, INT)), True),
        {"a": [(1, 1), (None, 1)], "b": [(1, 1)]},
        {"a": [(1, 1), (None, 1)], "b": [(2, 1), (0, 0)]},
    ),
    (
        "both sides of a full join are alone, then meet",
        OuterJoin(scan("a"), scan("b"), ((X, X),), None, True),
        {"a": [(1, 1)], "b": [(2, 2)]},
        {"a": [(2, 1)], "b": [(2, 2)]},
    ),
    (
        "a self outer join changes on both sides at once",
        OuterJoin(scan("a"), scan("a"), ((X, Y),), None, True),
        {"a": [(1, 2), (3, 3)], "b": []},
        {"a": [(2, 1), (3, 3), (3, None)], "b": []},
    ),
    (
        "an outer join of an outer join",
        OuterJoin(OuterJoin(scan("a"), scan("b"), ((X, X),), None, False), scan("b"), ((Col(3, INT), X),), None, False),
        {"a": [(1, 1)], "b": [(1, 2)]},
        {"a": [(1, 1)], "b": [(2, 2), (1, 2)]},
    ),
    (
        "two partners keep a row once, and one of them is enough",
        SemiJoin(scan("a"), scan("b"), ((X, X),), None, False),
        {"a": [(1, 1), (1, 1)], "b": [(1, 5), (1, 6)]},
        {"a": [(1, 1), (1, 1), (2, 2)], "b": [(1, 6), (3, 3)]},
    ),
    (
        "a partner moves to another row",
        SemiJoin(scan("a"), scan("b"), ((X, X),), None, False),
        {"a": [(1, 1), (2, 2)], "b": [(1, 5)]},
        {"a": [(1, 1), (2, 2)], "b": [(2, 5)]},
    ),
    (
        "the last partner leaves and the row comes back",
        SemiJoin(scan("a"), scan("b"), ((X, X),), None, True),
        {"a": [(1, 1), (None, 1)], "b": [(1, 5), (None, 5)]},
        {"a": [(1, 1), (None, 1)], "b": [(None, 5)]},
    ),
    (
        "a partner is accepted by the rest of the condition only",
        SemiJoin(scan("a"), scan("b"), ((X, X),), less(Y, Col(3, INT)), True),
        {"a": [(1, 1), (1, 3)], "b": [(1, 0)]},
        {"a": [(1, 1), (1, 3)], "b": [(1, 2)]},
    ),
    (
        "any row at all rules out everything",
        SemiJoin(scan("a"), scan("b"), (), None, True),
        {"a": [(1, 1), (None, 1)], "b": []},
        {"a": [(1, 1), (2, 2)], "b": [(7, 7), (7, 7)]},
    ),
    (
        "a table is its own partner",
        SemiJoin(scan("a"), scan("a"), ((X, Y),), None, False),
        {"a": [(1, 2), (3, 3)], "b": []},
        {"a": [(2, 1), (1, 2), (3, None)], "b": []},
    ),
    (
        "the same row is in both branches and leaves one",
        UnionAll((scan("a"), scan("b"), scan("a"))),
        {"a": [(1, 1)], "b": [(1, 1)]},
        {"a": [], "b": [(1, 1)]},
    ),
    (
        "only one branch changes",
        UnionAll((scan("a"), Project(scan("b"), (Y, X)))),
        {"a": [(1, 1)], "b": [(1, None)]},
        {"a": [(1, 1)], "b": [(1, None), (1, None), (2, 0)]},
    ),
    (
        "a row that says how often it is there changes its mind",
        Repeat(Aggregate(scan("a"), (X,), COUNT_SUM[:1]), Col(1, BIG, False)),
        {"a": [(1, 1), (1, 2), (2, 1)], "b": []},
        {"a": [(1, 1), (3, 1), (3, 1)], "b": []},
    ),
    (
        "a projection makes rows equal",
        Project(scan("a"), (Y,)),
        {"a": [(1, 1), (2, 1)], "b": []},
        {"a": [(2, 1)], "b": []},
    ),
]


@pytest.mark.parametrize(("node", "before", "after"), [pytest.param(*case[1:], id=case[0]) for case in SURPRISING])
def test_surprising_changes(
    spark: SparkSession, node: Node, before: dict[str, list[Row]], after: dict[str, list[Row]]
) -> None:
    check_law(
        node, BagInputs(spark, {k: Counter(v) for k, v in before.items()}, {k: Counter(v) for k, v in after.items()})
    )


def test_a_range_without_changes_builds_no_frame(spark: SparkSession) -> None:
    same = {"a": Counter({(1, 1): 1}), "b": Counter({(1, 1): 2})}
    for _, node, _, _ in SURPRISING:
        assert incrementalize.delta(node, BagInputs(spark, same, same)) is None


@pytest.mark.parametrize(
    "operator",
    ["inner_join", "aggregate", "aggregate_list", "filter", "repeat", "union_all", "outer_join", "semi_join"],
)
def test_a_broken_rule_is_noticed(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, operator: str) -> None:
    """The suite can fail: a deliberately wrong rule violates the law on the cases above."""
    match operator:
        case "inner_join":
            monkeypatch.setattr(inner_join, "_side_for", lambda factor, changed: Side.AFTER)
        case "aggregate":
            monkeypatch.setattr(aggregate, "_exists_sql", lambda node, side: "true")
        case "aggregate_list":
            # As if deleted values were still in the group.
            monkeypatch.setattr(aggregate, "is_additive", lambda node: True)
        case "outer_join":
            # As if the existence of a match were linear in the matches.
            monkeypatch.setattr(join_match.JoinMatch, "_delta_of_matches", lambda self, kind, sides: None)
        case "semi_join":
            # As if the row existed once per match.
            monkeypatch.setattr(
                render,
                "render_semi_join_delta",
                lambda plan, sides: project.apply_project(
                    Project(plan.node.left, (X, Y)),
                    _given(join_match.join_match_of(plan.node).delta_joined(sides, broadcast=False)),
                ),
            )
        case "repeat":
            monkeypatch.setattr(linear_prefix, "apply_repeat", lambda node, zset: zset)
        case "union_all":
            monkeypatch.setattr(planner, "plan_sum", lambda terms: union_all.plan_sum(terms[:1]))
        case _:
            monkeypatch.setattr(linear_prefix, "apply_filter", lambda node, zset: zset)
    for _, node, before, after in SURPRISING:
        current = BagInputs(
            spark, {k: Counter(v) for k, v in before.items()}, {k: Counter(v) for k, v in after.items()}
        )
        try:
            check_law(node, current)
        except AssertionError:
            return
    pytest.fail("no case noticed it")
