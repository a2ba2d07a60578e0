"""Rows -> one output column per expression: a projection is linear.

    Δ(π_e(A)) = π_e(ΔA)

Rows that become equal keep their weights apart until the delta is netted.

Intuitively: each output row is computed from one input row, so it is enough to project the changes.

    A: (1, a) (2, a) (3, b)   e: second column     result (a) (a) (b)
    ΔA: −(1, a)  →  one of the two equal rows leaves  →  delta −(a)
"""

from __future__ import annotations

from applier.functions.emit import spark_sql
from applier.plan.nodes import Project
from applier.zset import ZSet


def apply_project(node: Project, zset: ZSet) -> ZSet:
    """Return π_e of a Z-set; the same for a delta and a snapshot.   Reads no trace, keeps no state."""
    return zset.select([spark_sql(e) for e in node.exprs])
