"""A plan -> whether the texts of its refreshes are short enough for Spark. They are written, nothing is computed.

A full refresh is one text, and so is the delta over a large LSN range. In a small one, parts are computed by themselves
first, each by a text of its own. So a query whose delta over a large range is too long is refreshed in small steps, and
one whose other texts are too long is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from applier.errors import QueryTooLarge
from applier.operators.execute import EmptyDelta, WrittenPlan
from applier.operators.explain_delta import UsualInputs
from applier.operators.planner import plan_delta, plan_snapshot
from applier.operators.stateful_nodes import stateful_nodes
from applier.operators.statistics import Statistics
from applier.operators.support.delta_plan import DeltaPlan
from applier.operators.support.inputs import (
    Accumulators,
    AffectedMinMax,
    LinearMap,
    Lookup,
    Side,
    StatefulNode,
    identity_map,
)
from applier.plan.limits import PlanBudget
from applier.plan.nodes import Field, Node, Recursion, Scan, fields, scans
from applier.zset import ZSet

_VIEW = "view_of_a_relation"


def check_text(root: Node, budget: PlanBudget) -> bool:
    """Raise QueryTooLarge when a full refresh or one over a small LSN range would be too long as a text.

    Returns whether a refresh over a large LSN range would not.
    """
    stateful = frozenset(stateful_nodes(root))
    small = _AllChanged(stateful, budget, small=True)
    _write(plan_snapshot(root, Side.AFTER, Statistics(small, budget=budget)), small)
    _write(plan_delta(root, Statistics(small, budget=budget))[0], small)
    for node in stateful:
        if not isinstance(node, Recursion):
            _write(plan_delta(node.input, Statistics(small, budget=budget))[0], small)
    large = _AllChanged(stateful, budget, small=False)
    try:
        _write(plan_delta(root, Statistics(large, budget=budget))[0], large)
    except QueryTooLarge:
        budget.check_time()
        return False
    return True


def _write(plan: DeltaPlan | None, inputs: _AllChanged) -> None:
    if plan is None:
        return
    written = WrittenPlan(plan).execute(inputs)
    if not isinstance(written, EmptyDelta):
        inputs.budget.check_text(written.sql)


@dataclass(frozen=True, slots=True)
class _AllChanged:
    """An LSN range in which every relation changes, and the state of all nodes that keep some. Nothing can be read."""

    stateful: frozenset[StatefulNode]
    budget: PlanBudget
    small: bool

    def delta(self, scan: Scan) -> ZSet | None:
        return ZSet.of_view(_VIEW, len(scan.columns))

    def rows(self, scan: Scan, linear_map: LinearMap = identity_map) -> int | None:
        del scan, linear_map
        return None

    def snapshot(
        self, scan: Scan, side: Side, linear_map: LinearMap = identity_map, lookup: Lookup | None = None
    ) -> ZSet:
        del side, lookup
        self.budget.check_time()
        # A trace has a base and later rows.
        part = linear_map(ZSet.of_view(_VIEW, len(scan.columns)))
        return part.plus(part)

    def fixpoint(self, node: Recursion, base: ZSet, step: Callable[[ZSet], ZSet]) -> ZSet:
        self.budget.check_text(step(base).sql)
        return ZSet.of_view(_VIEW, len(fields(node)))

    def materialize_small(self, zset: ZSet, columns: Sequence[Field]) -> ZSet | None:
        return self.materialize_once(zset, columns)

    def materialize_once(self, zset: ZSet, columns: Sequence[Field]) -> ZSet:
        self.budget.check_text(zset.sql)
        return ZSet.of_view(_VIEW, len(columns))

    def state_of(self, node: StatefulNode) -> Accumulators | AffectedMinMax | None:
        changed = next((scan.table for scan in scans(node)), None)
        if changed is None or isinstance(node, Recursion):
            return None
        return UsualInputs(changed, self.stateful).state_of(node)
