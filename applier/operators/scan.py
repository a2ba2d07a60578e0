"""A captured relation -> its snapshot at one end of the LSN range, and its delta over that range.

    Δ(R) = the change rows of R in the LSN range, projected to the columns read; nothing where they cancel out

Intuitively: the change rows already say what changed, so there is nothing to compute.

    R: (1, a) (2, b)   read: second column     result (a) (b)
    ΔR: −(1, a) +(1, c)  →  delta −(a) +(c)
    ΔR: −(2, b) +(9, b)  →  −(b) +(b) cancel out  →  no delta
"""

from __future__ import annotations

from applier.operators.support.delta_plan import ChangeRows
from applier.operators.support.input_plans import InputPlans
from applier.plan.nodes import Scan


def plan_scan_delta(node: Scan, inputs: InputPlans) -> ChangeRows | None:
    """Plan ΔR.   Keeps no state."""
    return ChangeRows(node) if inputs.has_changed(node) else None
