"""WITH RECURSIVE -> the sum of all its rounds. μ is the least fixpoint.

    Δ(μ(base, step)), where working₀ = base, workingₙ₊₁ = step(workingₙ), and R their sum

Where every row of a step comes from one row of the last round (`plan.recursion`), R is maintained incrementally, see
`state.delete_rederive`. Any other recursion is computed again in whole, from the traces of all inputs:

    Δ = μ(base', step') − μ(base, step)

Intuitively: follow the edges from the start until nothing new is found, before the change and after it, and compare.

    base: (a)   step: follow the edges a→b, b→c     result (a) (b) (c)
    Δedges: −(b→c)  →  before {(a), (b), (c)} after {(a), (b)}  →  delta −(c)
"""

from __future__ import annotations

from dataclasses import replace

from applier.operators.support.delta_plan import RecursionDelta, RowsPlan, StatePart, StateRows
from applier.operators.support.input_plans import InputPlans
from applier.operators.support.inputs import Side
from applier.operators.support.partitions import drop_cancelled
from applier.plan.nodes import Node, Recursion, WorkTable, fields, scans
from applier.zset import ZSet


def bind_work_table(node: Node, work_table: WorkTable) -> Node:
    """Return the step with the rows of the last round in place of its work table."""
    if isinstance(node, WorkTable):
        return work_table if node.number == work_table.number else node
    changed: dict[str, object] = {
        name: bind_work_table(getattr(node, name), work_table)
        for name in ("input", "left", "right", "base", "step")
        if hasattr(node, name)
    }
    if hasattr(node, "branches"):
        changed["branches"] = tuple(bind_work_table(branch, work_table) for branch in node.branches)
    return replace(node, **changed) if changed else node  # type: ignore[arg-type]


def step_over(node: Recursion, rows: ZSet) -> Node:
    """Return the step over these rows."""
    return bind_work_table(node.step, WorkTable(node.number, fields(node), rows=rows))


def step_over_change(node: Recursion, rows: ZSet) -> Node:
    """Return the step in which these rows are the delta of the work table."""
    return bind_work_table(node.step, WorkTable(node.number, fields(node), delta=rows))


def plan_recursion_delta(node: Recursion, inputs: InputPlans) -> RowsPlan | None:
    """Plan the delta of the state, or without state μ' − μ; None when nothing that the recursion reads changed."""
    if (state := inputs.state_of(node)) is not None:
        return StateRows(node, StatePart.DELTA) if state.has_changed else None
    if not any(inputs.has_changed(scan) for scan in scans(node)):
        return None
    before, after = (inputs.snapshot(node, side) for side in (Side.BEFORE, Side.AFTER))
    return RecursionDelta(node, before, after)


def delta_recursion(node: Recursion, before: ZSet, after: ZSet) -> ZSet:
    """Return μ' − μ, without the rows that are in both."""
    return drop_cancelled(fields(node), after.plus(before.negate()))
