"""Rows that are written in the query -> a Z-set with each of them once.

    Δ(VALUES …) = 0

Intuitively: the rows are part of the query's text, so no change of any table can change them.

    VALUES (1) (2) (3)     result (1) (2) (3)
    any change of any table  →  no delta
"""

from __future__ import annotations

from applier.functions.emit import spark_sql
from applier.plan.nodes import Values
from applier.zset import WEIGHT, ZSet, column_name, column_names


def select_values(node: Values) -> ZSet:
    """Return the rows, each once.   Reads no trace, keeps no state."""
    rows = [
        "SELECT " + ", ".join([*(f"{spark_sql(e)} AS {column_name(i)}" for i, e in enumerate(row)), f"1L AS {WEIGHT}"])
        for row in node.rows
    ]
    return ZSet(" UNION ALL ".join(rows), tuple(column_names(len(node.fields))))
