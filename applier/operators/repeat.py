"""Rows that say how often they occur -> the same rows with their weights multiplied by that number. Linear.

    Δ(ρ_n(A)) = ρ_n(ΔA)

Intuitively: a row that leaves takes all its copies with it, and a row that comes brings all of its own.

    A: (a, 2) (b, 0) (c, 1)   n: second column     result (a, 2) (a, 2) (c, 1)
    ΔA: −(a, 2) +(a, 3)  →  weights −1 · 2 and +1 · 3  →  delta −2 (a, 2) +3 (a, 3)
"""

from __future__ import annotations

from applier.functions.emit import spark_sql
from applier.plan.nodes import Repeat
from applier.zset import WEIGHT, ZSet


def apply_repeat(node: Repeat, zset: ZSet) -> ZSet:
    """Return ρ_n of a Z-set; the same for a delta and a snapshot.   Reads no trace, keeps no state."""
    return zset.select(zset.columns, f"{WEIGHT} * {spark_sql(node.times)}")
