"""Δ(R) = the window's change rows of R, projected to the columns read; nothing where they cancel out."""

from __future__ import annotations

from applier.operators.support.inputs import Inputs, LinearMap, Lookup, Side
from applier.plan.nodes import Scan


def snapshot_scan(node: Scan, rule: LinearMap, side: Side, inputs: Inputs, needed: Lookup | None = None) -> str:
    """f(R) at one end of the window, for a rule f that looks at each row alone."""
    return inputs.snapshot(node, side, rule, needed)


def delta_scan(node: Scan, inputs: Inputs) -> str | None:
    """ΔR.   Keeps no state."""
    return inputs.delta(node)
