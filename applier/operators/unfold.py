"""Δ(υ_f(A)) = υ_f(ΔA): a row's own set depends on that row alone, so unfolding is linear."""

from __future__ import annotations

from typing import assert_never

from applier.expressions.emit import spark_sql
from applier.expressions.outputs import read
from applier.plan.nodes import SetFunction, Unfold, fields
from applier.zset import WEIGHT, column_names, select

NO_STEP = "step size cannot equal zero"


def apply_unfold(node: Unfold, zset: str) -> str:
    """υ_f of a Z-set, delta or snapshot alike.   Reads no trace, keeps no state."""
    columns = [*column_names(len(fields(node.input))), f"CAST({_member(node)} AS {node.type.spark})"]
    if node.ordinality:
        columns.append("CAST(p + 1 AS bigint)")
    outer = "OUTER " if node.outer else ""
    return select(columns, WEIGHT, f"({zset}) LATERAL VIEW {outer}posexplode({_elements(node)}) t AS p, v")


def _member(node: Unfold) -> str:
    """A member of the set: v, or what stands at place p, from 0."""
    match node.function:
        case SetFunction.SERIES | SetFunction.LISTED:
            return "v"
        case SetFunction.MOMENTS | SetFunction.CALENDAR:
            return "CAST(timestamp_micros(v) AS timestamp_ntz)"
        case SetFunction.ELEMENTS:
            (array,) = node.args
            return read(array.type.pg.name[1:], f"pg_arrays_get({spark_sql(array)}, p + 1)")
        case SetFunction.MEMBERS:
            return f"pg_json_get({spark_sql(node.args[0])}, p)"
        case _:
            assert_never(node.function)


def _places(size: str) -> str:
    return f"if({size} > 0, sequence(1, {size}), CAST(array() AS array<int>))"


def _elements(node: Unfold) -> str:
    args = [spark_sql(arg) for arg in node.args]
    match node.function:
        case SetFunction.LISTED:
            return f"array({', '.join(args)})"
        case SetFunction.ELEMENTS:
            return _places(f"pg_arrays_cardinality({args[0]})")
        case SetFunction.MEMBERS:
            return _places(f"pg_json_array_length({args[0]})")
        case SetFunction.CALENDAR:
            first, last = (f"unix_micros(CAST({arg} AS timestamp))" for arg in args[:2])
            return f"CAST(split(nullif(pg_dates_series({first}, {last}, {args[2]}), ''), ',') AS array<bigint>)"
        case SetFunction.SERIES | SetFunction.MOMENTS:
            # Counted in bigint: the end of a type's range is no overflow.
            if node.function is SetFunction.MOMENTS:
                args[:2] = (f"unix_micros(CAST({arg} AS timestamp))" for arg in args[:2])
            first, last, step = (f"CAST({arg} AS bigint)" for arg in [*args, "1"][:3])
            going = f"(({step} > 0 AND {first} <= {last}) OR ({step} < 0 AND {first} >= {last}))"
            stopped = f"if({step} = 0, CAST(raise_error('{NO_STEP}') AS bigint), {step})"
            empty = "CAST(array() AS array<bigint>)"
            guarded = f"CASE WHEN {step} = 0 AND {first} IS NOT NULL AND {last} IS NOT NULL THEN array({stopped}) "
            return guarded + f"WHEN {going} THEN sequence({first}, {last}, {step}) ELSE {empty} END"
        case _:
            assert_never(node.function)
