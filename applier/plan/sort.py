"""Orders of rows: what ORDER BY says, and whether it says enough. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from applier.plan.expr import Col, Expr, SortKey

__all__ = ["SortKey", "fixed_columns"]

_SHOWS_ITS_VALUE = ("boolean", "smallint", "int", "bigint", "decimal", "date", "timestamp", "timestamp_ntz", "string")
"""Carriers in which values that compare equal are the same; -0 and 0 are equal and not the same."""


def fixed_columns(exprs: Iterable[Expr]) -> frozenset[int]:
    """The columns that have one value among rows for which all these expressions are equal."""
    plain = [e for e in exprs if isinstance(e, Col) and e.type.spark.partition("(")[0] in _SHOWS_ITS_VALUE]
    return frozenset(e.ordinal for e in plain)
