"""Δ(σ_p(A)) = σ_p(ΔA): a filter is linear."""

from __future__ import annotations

from pyspark.sql import DataFrame

from applier.expressions.emit import emit
from applier.plan.nodes import Filter


def apply_filter(node: Filter, zset: DataFrame) -> DataFrame:
    """σ_p of a Z-set, delta or snapshot alike.   Reads no trace, keeps no state."""
    return zset.where(emit(node.predicate))
