"""Which plan a delta has, and when a later LSN range uses it again. Nothing is computed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest

from applier.operators import delta_plans, planner
from applier.operators.delta_plans import DeltaPlans
from applier.operators.incrementalize import delta
from applier.operators.statistics import TINY_ROWS, Statistics
from applier.operators.support.delta_plan import AggregateDelta, AggregateMode, JoinDelta, MaterializeDelta
from applier.operators.support.inputs import (
    Accumulators,
    AffectedGroups,
    LinearMap,
    Lookup,
    Side,
    StatefulNode,
    identity_map,
)
from applier.plan.expr import AggregateCall, Col, Const
from applier.plan.nodes import Aggregate, Field, Filter, Join, Node, Recursion, Scan, SemiJoin
from applier.zset import LEFT, RIGHT, ZSet
from tests.applier.operators.plans import BIG, INT, less, scan

X, Y = Col(0, INT), Col(1, INT)
COUNT_SUM = (AggregateCall("count()", (), BIG, nullable=False), AggregateCall("sum(int4)", (Y,), BIG))
JOINED = Join(scan("a"), scan("b"), ((X, X),), None)
TOTALS = Aggregate(JOINED, (X,), COUNT_SUM)


@dataclass
class NamesOnly:
    """Inputs whose relations are names: what was computed by itself is noted, not computed."""

    changed: frozenset[str]
    small: bool = True
    sizes: dict[str, int] = field(default_factory=dict)
    state: Accumulators | None = None
    empty: bool = False
    computed: list[str] = field(default_factory=list)

    def delta(self, scan: Scan) -> ZSet | None:
        return ZSet.of_view(f"delta_{scan.table.name}", 2) if scan.table.name in self.changed else None

    def snapshot(
        self, scan: Scan, side: Side, linear_map: LinearMap = identity_map, lookup: Lookup | None = None
    ) -> ZSet:
        return linear_map(ZSet.of_view(f"{scan.table.name}_{side.value}", 2))

    def rows(self, scan: Scan, linear_map: LinearMap = identity_map) -> int | None:
        return self.sizes.get(scan.table.name)

    def fixpoint(self, node: Recursion, base: ZSet, step: Callable[[ZSet], ZSet]) -> ZSet:
        raise NotImplementedError

    def materialize_small(self, zset: ZSet, columns: Sequence[Field]) -> ZSet | None:
        self.computed.append(zset.sql)
        return None if self.empty else ZSet.of_view(f"computed_{len(self.computed)}", len(columns))

    def materialize_once(self, zset: ZSet, columns: Sequence[Field]) -> ZSet:
        self.computed.append(zset.sql)
        return ZSet.of_view(f"computed_{len(self.computed)}", len(columns))

    def state_of(self, node: StatefulNode) -> Accumulators | None:
        return self.state


def changes(*tables: str, **more: object) -> NamesOnly:
    return NamesOnly(frozenset(tables), **more)  # type: ignore[arg-type]


def test_the_same_kind_of_change_has_the_same_plan() -> None:
    plans, node = DeltaPlans(), JOINED
    first = plans.plan(node, Statistics(changes("a")))
    assert first is not None
    assert plans.plan(node, Statistics(changes("b"))) is not first
    assert plans.plan(node, Statistics(changes("a"))) is first
    assert plans.plan(node, Statistics(changes("a", small=False))) is not first
    assert plans.plan(node, Statistics(changes())) is None


def test_only_the_order_of_sizes_matters_and_what_is_tiny() -> None:
    plans = DeltaPlans()
    first = plans.plan(JOINED, Statistics(changes("a", sizes={"a": 1, "b": TINY_ROWS})))
    assert plans.plan(JOINED, Statistics(changes("a", sizes={"a": 5, "b": TINY_ROWS - 1}))) is first
    assert plans.plan(JOINED, Statistics(changes("a", sizes={"a": 5, "b": TINY_ROWS + 1}))) is not first
    assert plans.plan(JOINED, Statistics(changes("a", sizes={"a": 5, "b": 4}))) is not first


@pytest.mark.parametrize(("rows", "side"), [(TINY_ROWS, RIGHT), (TINY_ROWS + 1, LEFT), (None, LEFT)])
def test_a_tiny_input_is_broadcast_otherwise_the_change(rows: int | None, side: str) -> None:
    sizes = {} if rows is None else {"b": rows}
    found, _ = planner.plan_delta(JOINED, Statistics(changes("a", sizes=sizes)))
    assert found is not None and isinstance(found.rows, JoinDelta)
    ((joined,),) = [term.joined for term in found.rows.terms]
    assert joined.broadcast == side


@pytest.mark.parametrize(
    ("state", "mode"),
    [
        (None, AggregateMode.FROM_INPUT),
        (Accumulators(lambda: ZSet("", ("k0",)), ZSet("", ("k0",))), AggregateMode.FROM_STATE),
        *(
            (Accumulators(lambda: ZSet("", ("k0",)), ZSet("", ("k0",)), AffectedGroups(ZSet("", ()), signed)), mode)
            for signed, mode in ((True, AggregateMode.FROM_SIGNED_SUMS), (False, AggregateMode.FROM_SUMS))
        ),
    ],
)
def test_the_state_decides_the_mode_of_an_aggregate(state: Accumulators | None, mode: AggregateMode) -> None:
    found, _ = planner.plan_delta(TOTALS, Statistics(changes("a", state=state)))
    assert found is not None and isinstance(found.rows, AggregateDelta)
    assert found.rows.mode is mode
    from_input = mode is AggregateMode.FROM_INPUT
    assert [type(step) for step in found.steps] == ([MaterializeDelta] if from_input else [])


def test_an_empty_delta_is_found_once_and_nothing_else_is_computed() -> None:
    inputs = changes("a", empty=True)
    assert delta(SemiJoin(scan("b"), TOTALS, ((X, X),), None, False), inputs) is None
    assert len(inputs.computed) == 1


def test_a_long_text_is_computed_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner, "LONG_TEXT", 60)
    for limit, computed in ((2, 0), (200_000_000_000_000_000_000_000_000_000, 1)):
        inputs = changes("a")
        found = delta(Join(Filter(scan("a"), less(X, Const(limit, INT))), scan("b"), ((X, X),), None), inputs)
        assert found is not None
        assert len(inputs.computed) == computed


def test_a_plan_used_again_has_the_text_of_a_new_one() -> None:
    nodes: list[Node] = [TOTALS, SemiJoin(scan("a"), scan("b"), ((X, X),), None, True)]
    for node in nodes:
        plans = DeltaPlans()
        for tables in (("a",), ("a", "b"), ("a",), ("b",), ("a", "b")):
            assert delta(node, changes(*tables), plans) == delta(node, changes(*tables))


def test_few_plans_are_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta_plans, "MAX_PLANS", 3)
    plans = DeltaPlans()
    kinds = [(tables, small) for tables in (("a",), ("b",), ("a", "b"), ()) for small in (True, False)]
    for tables, small in kinds:
        plans.plan(JOINED, Statistics(changes(*tables, small=small)))
        assert len(plans._entries[id(JOINED)]) <= 3
