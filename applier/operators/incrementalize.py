"""A plan node and its inputs over an LSN range -> the SELECT of its delta, or of its snapshot: plan, then execute.

The law: delta(node) = snapshot(node, after) − snapshot(node, before).
"""

from __future__ import annotations

from applier.operators.delta_plans import DeltaPlans
from applier.operators.execute import EmptyDelta, execute_snapshot
from applier.operators.planner import plan_snapshot, plan_snapshot_where
from applier.operators.statistics import Statistics
from applier.operators.support.inputs import Inputs, Side
from applier.operators.support.key_filter import KeyFilter
from applier.plan.nodes import Node
from applier.zset import ZSet


def delta(node: Node, inputs: Inputs, plans: DeltaPlans | None = None) -> ZSet | None:
    """Return the delta of the node's result over the LSN range; None when it is proven empty.

    With `plans`, a plan of an earlier LSN range is used again where it holds.
    """
    known = DeltaPlans() if plans is None else plans
    statistics = Statistics(inputs)
    while (plan := known.plan(node, statistics)) is not None:
        found = plan.execute(inputs)
        if not isinstance(found, EmptyDelta):
            return found
        # What was computed so far is not computed again: its text is the same.
        statistics = statistics.with_empty(found.node)
    return None


def snapshot(node: Node, side: Side, inputs: Inputs) -> ZSet:
    """Return the node's whole result at one end of the LSN range."""
    return execute_snapshot(plan_snapshot(node, side, Statistics(inputs)), inputs)


def snapshot_where(node: Node, side: Side, key_filter: KeyFilter, inputs: Inputs) -> ZSet:
    """Return the rows of the node's result that the key filter selects."""
    return execute_snapshot(plan_snapshot_where(node, side, key_filter, Statistics(inputs)), inputs)
