"""Δ(μ(base, step)) = μ(base', step') − μ(base, step): the recursion anew at both ends of the window.

μ is the least fixpoint: working₀ = base, workingₙ₊₁ = step(workingₙ), the result is their sum; with `distinct` a row
counts once and only rows not seen before go on. One row that leaves can take any part of the result with it, and which
part shows only by deriving the rest again; without a state of its own that is the whole recursion. Reads the traces of
all inputs at both ends, keeps no state.
"""

from __future__ import annotations

from dataclasses import replace

from applier.operators.partitions import changes_only
from applier.plan.nodes import Node, Recursion, Working, fields
from applier.zset import WEIGHT, column_names


def given(node: Node, number: int, text: str) -> Node:
    """The step with the rows of its last round in place."""
    if isinstance(node, Working):
        return replace(node, text=text) if node.number == number else node
    changed: dict[str, object] = {
        name: given(getattr(node, name), number, text)
        for name in ("input", "left", "right", "base", "step")
        if hasattr(node, name)
    }
    if hasattr(node, "branches"):
        changed["branches"] = tuple(given(branch, number, text) for branch in node.branches)
    return replace(node, **changed) if changed else node  # type: ignore[arg-type]


def delta_recursion(node: Recursion, before: str, after: str) -> str:
    """μ' − μ, without what is in both."""
    names = column_names(len(fields(node)))
    leaving = f"SELECT {', '.join([*names, f'-{WEIGHT} AS {WEIGHT}'])} FROM ({before})"
    return changes_only(fields(node), f"{after} UNION ALL {leaving}")
