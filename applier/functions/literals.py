"""Turns values into Spark SQL literals, without loss."""

from __future__ import annotations

import datetime
from decimal import Decimal

from applier.plan.expr import Const

_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 _-.,:;/@=+*()<>%")


def quote_text(text: str) -> str:
    """Return a string literal. Characters that are not plain are escaped: Spark sees no quotes or ${variables}."""
    return "'" + "".join(c if c in _PLAIN else _escape(c) for c in text) + "'"


def _escape(character: str) -> str:
    code = ord(character)
    return f"\\u{code:04X}" if code <= 0xFFFF else f"\\U{code:08X}"


def literal(const: Const) -> str:
    """Return the constant as Spark SQL of exactly its physical type."""
    spark, value = const.type.spark, const.value
    match value:
        case None:
            return f"CAST(NULL AS {spark})"
        case bool():
            return "TRUE" if value else "FALSE"
        case int() if spark == "int":
            # Spark reads a bare -2147483648 as a minus before a number that is too large.
            return f"({value})" if value > -(1 << 31) else f"CAST({value}L AS int)"
        case int():
            return f"CAST('{value}' AS {spark})"
        case Decimal():
            return f"CAST('{value:f}' AS {spark})"
        case float():
            return f"CAST('{value}' AS {spark})"
        case datetime.datetime() if spark == "timestamp":
            return f"TIMESTAMP_LTZ'{_write_timestamp(value)}+00:00'"
        case datetime.datetime():
            return f"TIMESTAMP_NTZ'{_write_timestamp(value)}'"
        case datetime.date():
            return f"DATE'{value.isoformat()}'"
        case bytes():
            return f"X'{value.hex()}'"
        case str():
            return quote_text(value)


def _write_timestamp(value: datetime.datetime) -> str:
    return value.replace(tzinfo=None).isoformat(sep=" ", timespec="microseconds")
