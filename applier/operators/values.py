"""Δ(VALUES …) = 0: rows written in the query never change."""

from __future__ import annotations

from applier.functions.emit import spark_sql
from applier.plan.nodes import Values
from applier.zset import WEIGHT, column_name


def written_rows(node: Values) -> str:
    """The rows, each once.   Reads no trace, keeps no state."""
    return " UNION ALL ".join(
        "SELECT " + ", ".join([*(f"{spark_sql(e)} AS {column_name(i)}" for i, e in enumerate(row)), f"1L AS {WEIGHT}"])
        for row in node.rows
    )
