"""Δ(R) = the window's change rows of R, projected to the columns read; nothing where they cancel out."""

from __future__ import annotations

from applier.operators.support.inputs import Inputs, LinearMap, Lookup, Side
from applier.plan.nodes import Scan


def snapshot_scan(node: Scan, linear_map: LinearMap, side: Side, inputs: Inputs, lookup: Lookup | None = None) -> str:
    """f(R) at one end of the window, for a rule f that looks at each row alone."""
    return inputs.snapshot(node, side, linear_map, lookup)


def delta_scan(node: Scan, inputs: Inputs) -> str | None:
    """ΔR.   Keeps no state."""
    return inputs.delta(node)
