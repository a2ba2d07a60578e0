"""Δ(A + B + …) = ΔA + ΔB + …: a union that keeps duplicates is the sum of Z-sets, and linear."""

from __future__ import annotations

from collections.abc import Sequence

from applier.zset import plus


def sum_zsets(zsets: Sequence[str]) -> str:
    """The sum of Z-sets, of which there is at least one.   Reads no trace, keeps no state."""
    return " UNION ALL ".join(zsets)


def sum_deltas(deltas: Sequence[str | None]) -> str | None:
    """The sum of what changed in each; None is proven empty."""
    return plus(*deltas)
