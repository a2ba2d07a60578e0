"""Every function that may stand in a plan, by its exact pg_proc signature; and the aggregates."""

from __future__ import annotations

from applier.expressions import calendar, datetimes, extremes, integers, numerics, plain, strings, text
from applier.expressions.entry import Entry, Unfit, decimal, decimal_of
from applier.plan.expr import AggregateKind, Expr
from shared_schema.pg_types import MAX_DECIMAL_DIGITS

ENTRIES: dict[str, Entry] = {}
for _family in (integers, numerics, text, strings, datetimes, calendar, plain, extremes):
    for _entry in _family.ENTRIES:
        if _entry.signature in ENTRIES:
            raise AssertionError(f"{_entry.signature} is listed twice")
        ENTRIES[_entry.signature] = _entry

AGGREGATES: dict[str, AggregateKind] = {
    "count()": AggregateKind.COUNT_ROWS,
    "count(any)": AggregateKind.COUNT,
    "sum(int2)": AggregateKind.SUM,
    "sum(int4)": AggregateKind.SUM,
    "sum(int8)": AggregateKind.SUM,
    "sum(numeric)": AggregateKind.SUM,
}
"""Aggregates with exact additive accumulators, by signature."""


def aggregate_carrier(signature: str, arg: Expr | None) -> str:
    """The Spark type of an aggregate's result; Unfit when its argument's carrier is not exact to add."""
    match signature:
        case "count()" | "count(any)" | "sum(int2)" | "sum(int4)":
            return "bigint"
        case "sum(int8)":
            return decimal(MAX_DECIMAL_DIGITS, 0)
        case "sum(numeric)" if arg is not None:
            return decimal(MAX_DECIMAL_DIGITS, decimal_of(arg)[1])
        case _:
            raise Unfit(f"the aggregate {signature}")
