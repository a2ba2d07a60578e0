"""Several Z-sets -> their sum: a union that keeps duplicates is linear.

    Δ(A + B + …) = ΔA + ΔB + …

Intuitively: the branches do not look at each other, so each passes on its own changes.

    A: (1) (2)   B: (2)     result (1) (2) (2)
    ΔB: −(2) +(3)  →  delta −(2) +(3); the (2) of A stays
"""

from __future__ import annotations

from collections.abc import Sequence

from applier.operators.support.delta_plan import RowsPlan, SumRows
from applier.zset import ZSet


def plan_sum(terms: Sequence[RowsPlan | None]) -> RowsPlan | None:
    """Plan the sum of the branches; None is proven empty.   Reads no trace, keeps no state."""
    given = tuple(term for term in terms if term is not None)
    return SumRows(given) if given else None


def render_sum(terms: Sequence[ZSet]) -> ZSet:
    """Return the sum of one or more Z-sets."""
    return terms[0].plus(*terms[1:])
