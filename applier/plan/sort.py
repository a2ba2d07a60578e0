"""Sort keys of ORDER BY, and the columns that they determine. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from applier.plan.expr import Col, Expr, SortKey

__all__ = ["SortKey", "fixed_columns"]

_IDENTICAL_IF_EQUAL = (
    "boolean",
    "smallint",
    "int",
    "bigint",
    "decimal",
    "date",
    "timestamp",
    "timestamp_ntz",
    "string",
)
"""Spark types in which values that compare equal are identical; not floats: -0 and 0 compare equal and differ."""


def fixed_columns(exprs: Iterable[Expr]) -> frozenset[int]:
    """Return the columns that have one value among all rows for which these expressions are equal."""
    columns = [e for e in exprs if isinstance(e, Col) and e.type.spark.partition("(")[0] in _IDENTICAL_IF_EQUAL]
    return frozenset(e.ordinal for e in columns)
