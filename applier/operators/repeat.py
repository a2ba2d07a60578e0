"""Δ(ρ_n(A)) = ρ_n(ΔA): a row that says how often it is there; its weight multiplies. Linear."""

from __future__ import annotations

from applier.functions.emit import spark_sql
from applier.plan.nodes import Repeat, fields
from applier.zset import WEIGHT, column_names, select


def apply_repeat(node: Repeat, zset: str) -> str:
    """ρ_n of a Z-set, delta or snapshot alike.   Reads no trace, keeps no state."""
    return select(column_names(len(fields(node))), f"{WEIGHT} * {spark_sql(node.times)}", f"({zset})")
