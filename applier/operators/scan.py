"""A captured relation -> its snapshot at one end of the LSN range, and its delta over that range.

    Δ(R) = the change rows of R in the LSN range, projected to the columns read; nothing where they cancel out

Intuitively: the change rows already say what changed, so there is nothing to compute.

    R: (1, a) (2, b)   read: second column     result (a) (b)
    ΔR: −(1, a) +(1, c)  →  delta −(a) +(c)
    ΔR: −(2, b) +(9, b)  →  −(b) +(b) cancel out  →  no delta
"""

from __future__ import annotations

from applier.operators.support.inputs import Inputs, LinearMap, Lookup, Side
from applier.plan.nodes import Scan
from applier.zset import ZSet


def snapshot_scan(node: Scan, linear_map: LinearMap, side: Side, inputs: Inputs, lookup: Lookup | None = None) -> ZSet:
    """Return f(R) at one end of the LSN range, for a linear map f."""
    return inputs.snapshot(node, side, linear_map, lookup)


def delta_scan(node: Scan, inputs: Inputs) -> ZSet | None:
    """Return ΔR.   Keeps no state."""
    return inputs.delta(node)
