"""Δ(R) = the window's change rows of R, projected to the columns read; nothing where they cancel out."""

from __future__ import annotations

from applier.operators.inputs import Inputs, Side
from applier.plan.nodes import Scan


def snapshot_scan(node: Scan, side: Side, inputs: Inputs) -> str:
    """R at one end of the window."""
    return inputs.snapshot(node, side)


def delta_scan(node: Scan, inputs: Inputs) -> str | None:
    """ΔR.   Keeps no state."""
    return inputs.delta(node)
