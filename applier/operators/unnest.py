"""Δ(υ_f(A)) = υ_f(ΔA): a row's own set depends on that row alone, so unfolding is linear."""

from __future__ import annotations

from typing import assert_never

from applier.functions.emit import spark_sql
from applier.functions.output_text import parse_output
from applier.plan.nodes import SetReturningFunction, TableFunction, Unnest, fields
from applier.zset import WEIGHT, column_names, select

NO_STEP = "step size cannot equal zero"


def apply_unnest(node: Unnest, zset: str) -> str:
    """υ_f of a Z-set, delta or snapshot alike.   Reads no trace, keeps no state."""
    columns = column_names(len(fields(node.input)))
    outer = "OUTER " if node.outer else ""
    if len(node.sets) == 1:
        (made,) = node.sets
        members, view = [_member(made, "v")], f"posexplode({_elements(made)}) t AS p, v"
    else:
        members = [_member(made, f"get({_elements(made)}, p)") for made in node.sets]
        longest = f"greatest({', '.join(_size(made) for made in node.sets)})"
        view = f"explode({_places(longest, first=0)}) t AS p"
    columns += [f"CAST({text} AS {made.type.spark})" for text, made in zip(members, node.sets, strict=True)]
    if node.ordinality:
        columns.append("CAST(p + 1 AS bigint)")
    return select(columns, WEIGHT, f"({zset}) LATERAL VIEW {outer}{view}")


def _member(made: TableFunction, value: str) -> str:
    """A member of the set: its value, or what stands at place p, from 0; NULL behind the last."""
    match made.function:
        case SetReturningFunction.SERIES | SetReturningFunction.LISTED:
            return value
        case SetReturningFunction.MOMENTS | SetReturningFunction.CALENDAR:
            return f"CAST(timestamp_micros({value}) AS timestamp_ntz)"
        case SetReturningFunction.ELEMENTS:
            (array,) = made.args
            return parse_output(array.type.pg.name[1:], f"pg_arrays_get({spark_sql(array)}, p + 1)")
        case SetReturningFunction.MEMBERS:
            return f"pg_json_get({spark_sql(made.args[0])}, p)"
        case _:
            assert_never(made.function)


def _size(made: TableFunction) -> str:
    """How many members there are; 0 for NULL."""
    match made.function:
        case SetReturningFunction.ELEMENTS:
            return f"coalesce(pg_arrays_cardinality({spark_sql(made.args[0])}), 0)"
        case SetReturningFunction.MEMBERS:
            return f"coalesce(pg_json_array_length({spark_sql(made.args[0])}), 0)"
        case _:
            return f"coalesce(size({_elements(made)}), 0)"


def _places(size: str, first: int = 1) -> str:
    return f"if({size} > 0, sequence({first}, {size} - {1 - first}), CAST(array() AS array<int>))"


def _elements(made: TableFunction) -> str:
    args = [spark_sql(arg) for arg in made.args]
    match made.function:
        case SetReturningFunction.LISTED:
            return f"array({', '.join(args)})"
        case SetReturningFunction.ELEMENTS:
            return _places(f"pg_arrays_cardinality({args[0]})")
        case SetReturningFunction.MEMBERS:
            return _places(f"pg_json_array_length({args[0]})")
        case SetReturningFunction.CALENDAR:
            first, last = (f"unix_micros(CAST({arg} AS timestamp))" for arg in args[:2])
            return f"CAST(split(nullif(pg_dates_series({first}, {last}, {args[2]}), ''), ',') AS array<bigint>)"
        case SetReturningFunction.SERIES | SetReturningFunction.MOMENTS:
            # Counted in bigint: the end of a type's range is no overflow.
            if made.function is SetReturningFunction.MOMENTS:
                args[:2] = (f"unix_micros(CAST({arg} AS timestamp))" for arg in args[:2])
            first, last, step = (f"CAST({arg} AS bigint)" for arg in [*args, "1"][:3])
            going = f"(({step} > 0 AND {first} <= {last}) OR ({step} < 0 AND {first} >= {last}))"
            stopped = f"if({step} = 0, CAST(raise_error('{NO_STEP}') AS bigint), {step})"
            empty = "CAST(array() AS array<bigint>)"
            guarded = f"CASE WHEN {step} = 0 AND {first} IS NOT NULL AND {last} IS NOT NULL THEN array({stopped}) "
            return guarded + f"WHEN {going} THEN sequence({first}, {last}, {step}) ELSE {empty} END"
        case _:
            assert_never(made.function)
