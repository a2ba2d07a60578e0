"""Δ(σ_p(A)) = σ_p(ΔA): a filter is linear."""

from __future__ import annotations

from applier.functions.emit import spark_sql
from applier.plan.nodes import Filter


def apply_filter(node: Filter, zset: str) -> str:
    """σ_p of a Z-set, delta or snapshot alike.   Reads no trace, keeps no state."""
    return f"SELECT * FROM ({zset}) WHERE {spark_sql(node.predicate)}"
