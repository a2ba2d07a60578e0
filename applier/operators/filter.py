"""Rows -> the rows for which the predicate is true: a filter is linear.

    Δ(σ_p(A)) = σ_p(ΔA)

Intuitively: whether a row passes depends on that row alone, so it is enough to filter the changes.

    A: (1, 5) (2, 20) (3, 30)   p: second column > 10     result (2, 20) (3, 30)
    ΔA: −(2, 20) +(2, 8)  →  the old row passed, the new one does not  →  delta −(2, 20)
"""

from __future__ import annotations

from applier.functions.emit import spark_sql
from applier.plan.nodes import Filter
from applier.zset import ZSet


def apply_filter(node: Filter, zset: ZSet) -> ZSet:
    """Return σ_p of a Z-set; the same for a delta and a snapshot.   Reads no trace, keeps no state."""
    return zset.filter(spark_sql(node.predicate))
