"""Several Z-sets -> their sum: a union that keeps duplicates is linear.

    Δ(A + B + …) = ΔA + ΔB + …

Intuitively: the branches do not look at each other, so each passes on its own changes.

    A: (1) (2)   B: (2)     result (1) (2) (2)
    ΔB: −(2) +(3)  →  delta −(2) +(3); the (2) of A stays
"""

from __future__ import annotations

from collections.abc import Sequence

from applier.zset import ZSet, plus


def sum_zsets(zsets: Sequence[ZSet]) -> ZSet:
    """Return the sum of one or more Z-sets.   Reads no trace, keeps no state."""
    return zsets[0].plus(*zsets[1:])


def sum_deltas(deltas: Sequence[ZSet | None]) -> ZSet | None:
    """Return the sum of the deltas of all branches; None is proven empty."""
    return plus(*deltas)
