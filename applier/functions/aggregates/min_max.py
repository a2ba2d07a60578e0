"""Entries for min and max: of types that Spark orders itself, and of types ordered by their text or by enum labels."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from applier.functions.aggregates.aggregate_entry import AggregateEntry, OfList, OfSet, over_values
from applier.functions.arrays.arrays import comparison_name
from applier.functions.datetime.datetimes import DATETIME_TYPES as DATETIMES
from applier.functions.entry import CollationNeed, decimal, decimal_of, fixed_physical_type
from applier.functions.literals import quote_text
from applier.functions.numeric.integers import INTEGER_TYPES as INTEGERS
from applier.functions.numeric.physical_types import is_text
from applier.plan.expr import AggregateCall, Expr
from applier.zset import is_negative_zero


def _same_numeric(args: tuple[Expr, ...]) -> str:
    return "string" if is_text(args[0]) else decimal(*decimal_of(args[0]))


def _plain() -> Iterator[AggregateEntry]:
    for function in ("min", "max"):
        for name, spark in (("float8", "double"), ("float4", "float")):
            # PostgreSQL returns 0 or -0, whichever it read; here -0 is smaller.
            yield AggregateEntry(
                signature=f"{function}({name})",
                physical_type=fixed_physical_type([spark], spark),
                form=OfSet(
                    f"{function}_by({{0}}, if({{0}} IS NULL, NULL, struct({{0}}, NOT {is_negative_zero('{0}')})))"
                ),
                fuzz=((name,),),
            )
        for name, spark in {**INTEGERS, **DATETIMES, "bytea": "binary"}.items():
            yield AggregateEntry(
                signature=f"{function}({name})",
                physical_type=fixed_physical_type([spark], spark),
                form=OfSet(f"{function}({{0}})"),
                fuzz=((name,),),
            )
        for name, fuzz in (("text", "text"), ("bpchar", "char(6)")):
            yield AggregateEntry(
                signature=f"{function}({name})",
                physical_type=fixed_physical_type(["string"], "string"),
                form=OfSet(f"{function}({{0}})"),
                fuzz=((fuzz,),),
                collation=CollationNeed.ORDER,
            )
        yield AggregateEntry(
            signature=f"{function}(numeric)",
            physical_type=_same_numeric,
            form=OfSet(f"{function}({{0}})"),
            text_form=over_values("pg_aggregates_numeric_extreme", "true" if function == "max" else "false"),
            fuzz=(("numeric(10,2)",), ("numeric(38,10)",), ("numeric(4,4)",), ("numeric",)),
        )


def _by_text() -> Iterator[AggregateEntry]:
    for function in ("min", "max"):
        # PostgreSQL returns any of several equal intervals; here their texts decide.
        yield AggregateEntry(
            signature=f"{function}(interval)",
            physical_type=fixed_physical_type(["string"], "string"),
            form=OfSet(f"{function}_by({{0}}, if({{0}} IS NULL, NULL, struct(pg_intervals_sortable({{0}}), {{0}})))"),
            fuzz=(("interval:unequal",),),
        )
        yield AggregateEntry(
            signature=f"{function}(time)",
            physical_type=fixed_physical_type(["string"], "string"),
            form=OfSet(f"{function}({{0}})"),
            fuzz=(("time",),),
        )
        yield AggregateEntry(
            signature=f"{function}(anyenum)",
            physical_type=fixed_physical_type(["string", "string"], "string"),
            form=OfSet(f"{function}_by({{0}}, pg_casts_place({{0}}, {{1}}))"),
            fuzz=(("fuzz_mood",),),
            ordered_labels=True,
        )


def _array_physical_type(args: tuple[Expr, ...]) -> str:
    comparison_name(args[0])
    return "string"


def _array(function: str, call: AggregateCall) -> str:
    largest = "true" if function == "max" else "false"
    return f"pg_arrays_extreme({quote_text(comparison_name(call.args[0]))}, transform({{list}}, x -> x.a0), {largest})"


def _arrays() -> Iterator[AggregateEntry]:
    for function in ("min", "max"):
        # PostgreSQL returns any of several equal arrays with different texts; here their texts decide.
        yield AggregateEntry(
            signature=f"{function}(anyarray)",
            physical_type=_array_physical_type,
            form=OfList(partial(_array, function), default_order=True),
            fuzz=(("int4[]",), ("text[]",), ("bool[]",), ("date[]",)),
            collation=CollationNeed.ORDER,
        )


def min_max_entries() -> Iterator[AggregateEntry]:
    """Yield all entries of this module."""
    for family in (_plain, _by_text, _arrays):
        yield from family()
