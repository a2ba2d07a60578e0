"""Entries for sum and avg over numerics of several scales; each is passed as a value and its display scale."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from applier.functions.aggregates.aggregate_entry import Additive, AggregateEntry, Sum
from applier.functions.entry import decimal, decimal_of, literal_text
from applier.plan.expr import TEXT, AggregateCall, Const
from shared_schema.pg_types import MAX_DECIMAL_DIGITS

BY_SCALE = {"sum(numeric)": "sum(numeric,scale)", "avg(numeric)": "avg(numeric,scale)"}
"""Not PostgreSQL functions: the same aggregate over the value, its scale and the list of all possible scales."""


def scale_aggregates(scales: Iterable[int]) -> Const:
    """Return the last argument: the scales that rows may have, the largest first."""
    return Const(",".join(map(str, sorted(scales, reverse=True))), TEXT)


def _scales_of(call: AggregateCall) -> list[int]:
    return [int(scale) for scale in literal_text(call.args[2]).split(",")]


def _sum_by_scale(call: AggregateCall) -> tuple[Sum, ...]:
    counts = (Sum("bigint", f"if({{1}} = {scale}, 1, 0)") for scale in _scales_of(call))
    return Sum(decimal(MAX_DECIMAL_DIGITS, decimal_of(call.args[0])[1]), "{0}"), *counts


def _write_with_scale(call: AggregateCall) -> str:
    """Write the sum with the largest scale of any row."""
    whens = (
        f"WHEN {{{i}}} > 0 THEN CAST(CAST({{0}} AS {decimal(MAX_DECIMAL_DIGITS, scale)}) AS string)"
        for i, scale in enumerate(_scales_of(call), 1)
    )
    return f"CASE {' '.join(whens)} END"


def by_scale_entries() -> Iterator[AggregateEntry]:
    """Yield the entries of these aggregates."""
    forms = (
        Additive(_sum_by_scale, _write_with_scale),
        Additive(_sum_by_scale, lambda call: f"pg_numeric_div({_write_with_scale(call)}, CAST({{n}} AS string))"),
    )
    for signature, form in zip(BY_SCALE.values(), forms, strict=True):
        yield AggregateEntry(signature, lambda _: "string", form, (), takes_distinct=False, internal=True)
