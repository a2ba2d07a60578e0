"""State between LSN ranges never changes a result: every delta equals the one computed from the traces."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from applier.operators import incrementalize
from applier.operators.stateful_nodes import stateful_nodes
from applier.operators.support.inputs import Side
from applier.plan.expr import AggregateCall, Col, IsNull
from applier.plan.nodes import Aggregate, Filter, Join, Node, Project, SemiJoin, StreamPlan, fields
from applier.plan.stream_table import StreamTable
from applier.state import accumulators_driver, accumulators_spark, affected_groups, uploaded_rows
from applier.state import store as states_module
from applier.state.accumulators_spark import sum_accumulator_rows
from applier.state.store import StateStore
from shared_schema.lsn import ORIGIN, Lsn, LsnRange
from shared_schema.table_schema import TableId
from tests.applier.operators.plans import BIG, BOOL, INT, TABLES, Bag, bags, evaluate, plans, scan
from tests.applier.operators.test_law import BagInputs, collected, difference

pytestmark = pytest.mark.usefixtures("interpreted")

X, Y = Col(0, INT), Col(1, INT)
COUNT_SUM = (AggregateCall("count()", (), BIG, nullable=False), AggregateCall("sum(int4)", (Y,), BIG))
MIN_COUNT = (AggregateCall("min(int4)", (Y,), INT), AggregateCall("count()", (), BIG, nullable=False))

contents = st.fixed_dictionaries({name: bags for name in TABLES})


def table_of(node: Node) -> StreamTable:
    names = tuple(f"n{i}" for i in range(len(fields(node))))
    return StreamTable(1, TableId("public", "t"), 1, (), StreamPlan(node, names))


class MaintainedTable:
    """A stream table maintained by its state over LSN ranges, checked by evaluating the plan at both ends."""

    def __init__(self, spark: SparkSession, node: Node) -> None:
        self.spark, self.table, self.node = spark, table_of(node), node
        self.states = StateStore(spark)

    def fill(self, content: dict[str, Bag], at: int) -> None:
        inputs = BagInputs(self.spark, {name: Counter() for name in TABLES}, content)
        with self.states.through(self.table, LsnRange(ORIGIN, Lsn(at)), inputs) as known:
            text = incrementalize.snapshot(self.node, Side.AFTER, known)
            assert collected(self.spark, text) == evaluate(self.node, content)

    def go(self, before: dict[str, Bag], after: dict[str, Bag], lsn_range: LsnRange) -> Bag:
        inputs = BagInputs(self.spark, before, after)
        with self.states.through(self.table, lsn_range, inputs) as known:
            got = collected(self.spark, incrementalize.delta(self.node, known, self.states.plans_of(self.table)))
        assert got == difference(evaluate(self.node, after), evaluate(self.node, before))
        return got


@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    node=plans().filter(lambda node: bool(stateful_nodes(node))),
    states=st.lists(contents, min_size=3, max_size=3),
    repeated=st.booleans(),
    groups=st.sampled_from([0, 1000]),
    few=st.sampled_from([-1, 1000]),
)
def test_consecutive_lsn_ranges(
    spark: SparkSession, node: Node, states: list[dict[str, Bag]], repeated: bool, groups: int, few: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(states_module, "MAX_DRIVER_GROUPS", groups)
        patch.setattr(uploaded_rows, "FEW_ROWS", few)
        patch.setattr(affected_groups, "FEW_GROUPS", few)
        _maintain(spark, node, states, repeated)


def _maintain(spark: SparkSession, node: Node, states: list[dict[str, Bag]], repeated: bool) -> None:
    maintained = MaintainedTable(spark, node)
    maintained.fill(states[0], 1)
    maintained.go(states[0], states[1], LsnRange(Lsn(1), Lsn(2)))
    if repeated:
        # As if the first attempt had not been written: the same lower end, another upper end.
        maintained.go(states[0], states[2], LsnRange(Lsn(1), Lsn(3)))
    else:
        maintained.go(states[1], states[2], LsnRange(Lsn(2), Lsn(3)))
    maintained.go(states[2], states[0], LsnRange(Lsn(3), Lsn(4)))


NESTED: Node = SemiJoin(
    scan("a"),
    Filter(Aggregate(scan("b"), (X,), COUNT_SUM), IsNull(Col(2, BIG), True, BOOL)),
    ((X, X),),
    None,
    anti=False,
)
OUTER: Node = Aggregate(
    Project(Aggregate(Join(scan("a"), scan("b"), ((X, X),), None), (Y,), MIN_COUNT), (Col(0, INT), Col(1, INT))),
    (Y,),
    COUNT_SUM[:1],
)


def _content(a: list[tuple[int | None, int | None]], b: list[tuple[int | None, int | None]]) -> dict[str, Bag]:
    return {"a": Counter(a), "b": Counter(b)}


EMPTY = _content([], [])
SOME = _content([(1, 1), (1, 2), (None, 3)], [(1, 2), (1, None), (2, None), (None, 1)])
OTHER = _content([(1, 2), (2, 2), (None, 3)], [(1, 2), (2, 1), (None, None)])


@pytest.mark.parametrize("node", [NESTED, OUTER])
@pytest.mark.parametrize(("fold", "groups", "few"), [(0, 0, 9), (1000, 0, 9), (0, 1, 9), (0, 1000, 0), (0, 1000, 9)])
def test_groups_empty_and_refill(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, node: Node, fold: int, groups: int, few: int
) -> None:
    """State in Spark with and without folding, on the driver until it is too large, and always on the driver; evaluated
    by a job and while Spark plans."""
    monkeypatch.setattr(accumulators_spark, "FOLD_ROWS", fold)
    monkeypatch.setattr(affected_groups, "FEW_GROUPS", few)
    for module in (states_module, accumulators_driver):
        monkeypatch.setattr(module, "MAX_DRIVER_GROUPS", groups)
    maintained = MaintainedTable(spark, node)
    maintained.fill(SOME, 1)
    path = [SOME, EMPTY, OTHER, SOME, SOME, EMPTY]
    for i, (before, after) in enumerate(pairwise(path), 1):
        maintained.go(before, after, LsnRange(Lsn(i), Lsn(i + 1)))


TWO_TOTALS: Node = Join(Aggregate(scan("a"), (X,), COUNT_SUM), Aggregate(scan("b"), (X,), COUNT_SUM), ((X, X),), None)


def test_many_lsn_ranges_add_up_to_one(spark: SparkSession) -> None:
    step_by_step, at_once = MaintainedTable(spark, TWO_TOTALS), MaintainedTable(spark, TWO_TOTALS)
    for maintained in (step_by_step, at_once):
        maintained.fill(SOME, 1)
    total: Bag = Counter()
    for i, (before, after) in enumerate(pairwise([SOME, OTHER, EMPTY, OTHER]), 1):
        total.update(step_by_step.go(before, after, LsnRange(Lsn(i), Lsn(i + 1))))
    assert {row: n for row, n in total.items() if n} == at_once.go(SOME, OTHER, LsnRange(Lsn(1), Lsn(4)))


def test_a_range_elsewhere_computes_the_state_again(spark: SparkSession) -> None:
    maintained = MaintainedTable(spark, OUTER)
    maintained.go(SOME, OTHER, LsnRange(Lsn(7), Lsn(8)))
    maintained.go(EMPTY, SOME, LsnRange(Lsn(3), Lsn(4)))
    maintained.states.unchanged(maintained.table, LsnRange(Lsn(4), Lsn(9)))
    # A state that did not change until 9 is valid at any LSN up to there.
    maintained.go(SOME, EMPTY, LsnRange(Lsn(6), Lsn(10)))
    maintained.go(EMPTY, OTHER, LsnRange(Lsn(10), Lsn(11)))


def test_a_state_added_twice_is_noticed(spark: SparkSession) -> None:
    maintained = MaintainedTable(spark, Aggregate(scan("a"), (X,), COUNT_SUM))
    maintained.fill(EMPTY, 1)
    maintained.go(EMPTY, SOME, LsnRange(Lsn(1), Lsn(2)))
    state = maintained.states._tables[1]
    assert state.pending is not None
    for node, rows in state.pending[1].items():
        state.node_states[node].add(rows)
    with pytest.raises(AssertionError):
        maintained.go(SOME, EMPTY, LsnRange(Lsn(2), Lsn(3)))


def test_sums_without_a_place_are_refused() -> None:
    node = Aggregate(scan("a"), (), (AggregateCall("count()", (), BIG, nullable=False),))
    huge = pa.table({"w": pa.array([2**63 - 1]), "s0_n": pa.array([1])})
    small = pa.table({"w": pa.array([-3]), "s0_n": pa.array([-1])})
    assert sum_accumulator_rows(node, [huge, small]).to_pylist() == [{"w": 2**63 - 4, "s0_n": 0}]
