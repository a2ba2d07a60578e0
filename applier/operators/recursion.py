"""Δ(μ(base, step)), where μ is the least fixpoint: working₀ = base, workingₙ₊₁ = step(workingₙ), and R their sum.

Followed from R where every row of a step comes from one row of the last round (`plan.recursions`), see
`state.derivation`. The rest is computed anew: Δ = μ(base', step') − μ(base, step), from the traces of all inputs.
"""

from __future__ import annotations

from dataclasses import replace

from applier.operators.support.partitions import changes_only
from applier.plan.nodes import Node, Recursion, Working, fields
from applier.zset import WEIGHT, column_names


def given(node: Node, working: Working) -> Node:
    """The step with the rows of its last round in place."""
    if isinstance(node, Working):
        return working if node.number == working.number else node
    changed: dict[str, object] = {
        name: given(getattr(node, name), working)
        for name in ("input", "left", "right", "base", "step")
        if hasattr(node, name)
    }
    if hasattr(node, "branches"):
        changed["branches"] = tuple(given(branch, working) for branch in node.branches)
    return replace(node, **changed) if changed else node  # type: ignore[arg-type]


def of_round(node: Recursion, text: str) -> Node:
    """The step over these rows."""
    return given(node.step, Working(node.number, fields(node), text=text))


def of_change(node: Recursion, text: str) -> Node:
    """The step when these rows come."""
    return given(node.step, Working(node.number, fields(node), changed=text))


def delta_recursion(node: Recursion, before: str, after: str) -> str:
    """μ' − μ, without what is in both."""
    names = column_names(len(fields(node)))
    leaving = f"SELECT {', '.join([*names, f'-{WEIGHT} AS {WEIGHT}'])} FROM ({before})"
    return changes_only(fields(node), f"{after} UNION ALL {leaving}")
