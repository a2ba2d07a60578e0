"""Δ(π_e(A)) = π_e(ΔA): a projection is linear. Rows that become equal keep their weights apart until netted."""

from __future__ import annotations

from applier.functions.emit import spark_sql
from applier.plan.nodes import Project
from applier.zset import WEIGHT, select


def apply_project(node: Project, zset: str) -> str:
    """π_e of a Z-set, delta or snapshot alike.   Reads no trace, keeps no state."""
    return select([spark_sql(e) for e in node.exprs], WEIGHT, f"({zset})")
