"""Δ(π_e(A)) = π_e(ΔA): a projection is linear. Rows that become equal keep their weights apart until netted."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from applier.expressions.emit import emit
from applier.plan.nodes import Project
from applier.zset import WEIGHT, weighted


def apply_project(node: Project, zset: DataFrame) -> DataFrame:
    """π_e of a Z-set, delta or snapshot alike.   Reads no trace, keeps no state."""
    return zset.select(*weighted([emit(e) for e in node.exprs], F.col(WEIGHT)))
