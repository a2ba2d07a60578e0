"""Δ(μ(base, step)), where μ is the least fixpoint: working₀ = base, workingₙ₊₁ = step(workingₙ), and R their sum.

Followed from R where every row of a step comes from one row of the last round (`plan.recursions`), see
`state.derivation`. The rest is computed anew: Δ = μ(base', step') − μ(base, step), from the traces of all inputs.
"""

from __future__ import annotations

from dataclasses import replace

from applier.operators.support.partitions import drop_cancelled
from applier.plan.nodes import Node, Recursion, WorkTable, fields
from applier.zset import WEIGHT, column_names


def bind_work_table(node: Node, working: WorkTable) -> Node:
    """The step with the rows of its last round in place."""
    if isinstance(node, WorkTable):
        return working if node.number == working.number else node
    changed: dict[str, object] = {
        name: bind_work_table(getattr(node, name), working)
        for name in ("input", "left", "right", "base", "step")
        if hasattr(node, name)
    }
    if hasattr(node, "branches"):
        changed["branches"] = tuple(bind_work_table(branch, working) for branch in node.branches)
    return replace(node, **changed) if changed else node  # type: ignore[arg-type]


def step_over(node: Recursion, text: str) -> Node:
    """The step over these rows."""
    return bind_work_table(node.step, WorkTable(node.number, fields(node), text=text))


def step_over_change(node: Recursion, text: str) -> Node:
    """The step when these rows come."""
    return bind_work_table(node.step, WorkTable(node.number, fields(node), changed=text))


def delta_recursion(node: Recursion, before: str, after: str) -> str:
    """μ' − μ, without what is in both."""
    names = column_names(len(fields(node)))
    leaving = f"SELECT {', '.join([*names, f'-{WEIGHT} AS {WEIGHT}'])} FROM ({before})"
    return drop_cancelled(fields(node), f"{after} UNION ALL {leaving}")
