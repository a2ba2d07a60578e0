"""Rows with set-returning functions -> one row per member of their sets: unnesting is linear.

    Δ(υ_f(A)) = υ_f(ΔA)

Intuitively: the set of a row depends on that row alone, so it is enough to unnest the changes.

    A: (1, {a,b}) (2, {})   f: unnest(second column)     result (1, {a,b}, a) (1, {a,b}, b)
    ΔA: +(3, {c})  →  delta +(3, {c}, c)
"""

from __future__ import annotations

from typing import assert_never

from applier.functions.emit import spark_sql
from applier.functions.output_text import parse_output
from applier.plan.nodes import SetReturningFunction, TableFunction, Unnest
from applier.zset import WEIGHT, ZSet

NO_STEP = "step size cannot equal zero"


def apply_unnest(node: Unnest, zset: ZSet) -> ZSet:
    """Return υ_f of a Z-set; the same for a delta and a snapshot.   Reads no trace, keeps no state."""
    columns = list(zset.columns)
    outer = "OUTER " if node.outer else ""
    if len(node.sets) == 1:
        (fn,) = node.sets
        members, view = [_member_sql(fn, "v")], f"posexplode({_elements_sql(fn)}) t AS p, v"
    else:
        members = [_member_sql(fn, f"get({_elements_sql(fn)}, p)") for fn in node.sets]
        longest = f"greatest({', '.join(_size_sql(fn) for fn in node.sets)})"
        view = f"explode({_sequence_sql(longest, first=0)}) t AS p"
    columns += [f"CAST({text} AS {fn.type.spark})" for text, fn in zip(members, node.sets, strict=True)]
    if node.ordinality:
        columns.append("CAST(p + 1 AS bigint)")
    return ZSet.select_from(f"({zset.sql}) LATERAL VIEW {outer}{view}", columns, WEIGHT)


def _member_sql(fn: TableFunction, value: str) -> str:
    """Return the SQL of one member: its value, or the member at place p, counted from 0; NULL after the last one."""
    match fn.function:
        case SetReturningFunction.SERIES | SetReturningFunction.LISTED:
            return value
        case SetReturningFunction.MOMENTS | SetReturningFunction.CALENDAR:
            return f"CAST(timestamp_micros({value}) AS timestamp_ntz)"
        case SetReturningFunction.ELEMENTS:
            (array,) = fn.args
            return parse_output(array.type.pg.name[1:], f"pg_arrays_get({spark_sql(array)}, p + 1)")
        case SetReturningFunction.MEMBERS:
            return f"pg_json_get({spark_sql(fn.args[0])}, p)"
        case _:
            assert_never(fn.function)


def _size_sql(fn: TableFunction) -> str:
    """Return the SQL of the number of members; 0 for NULL."""
    match fn.function:
        case SetReturningFunction.ELEMENTS:
            return f"coalesce(pg_arrays_cardinality({spark_sql(fn.args[0])}), 0)"
        case SetReturningFunction.MEMBERS:
            return f"coalesce(pg_json_array_length({spark_sql(fn.args[0])}), 0)"
        case _:
            return f"coalesce(size({_elements_sql(fn)}), 0)"


def _sequence_sql(size: str, first: int = 1) -> str:
    return f"if({size} > 0, sequence({first}, {size} - {1 - first}), CAST(array() AS array<int>))"


def _elements_sql(fn: TableFunction) -> str:
    args = [spark_sql(arg) for arg in fn.args]
    match fn.function:
        case SetReturningFunction.LISTED:
            return f"array({', '.join(args)})"
        case SetReturningFunction.ELEMENTS:
            return _sequence_sql(f"pg_arrays_cardinality({args[0]})")
        case SetReturningFunction.MEMBERS:
            return _sequence_sql(f"pg_json_array_length({args[0]})")
        case SetReturningFunction.CALENDAR:
            first, last = (f"unix_micros(CAST({arg} AS timestamp))" for arg in args[:2])
            return f"CAST(split(nullif(pg_dates_series({first}, {last}, {args[2]}), ''), ',') AS array<bigint>)"
        case SetReturningFunction.SERIES | SetReturningFunction.MOMENTS:
            # Counted in bigint, so that the last value of a type's range does not overflow.
            if fn.function is SetReturningFunction.MOMENTS:
                args[:2] = (f"unix_micros(CAST({arg} AS timestamp))" for arg in args[:2])
            first, last, step = (f"CAST({arg} AS bigint)" for arg in [*args, "1"][:3])
            has_members = f"(({step} > 0 AND {first} <= {last}) OR ({step} < 0 AND {first} >= {last}))"
            checked_step = f"if({step} = 0, CAST(raise_error('{NO_STEP}') AS bigint), {step})"
            empty = "CAST(array() AS array<bigint>)"
            guarded = f"CASE WHEN {step} = 0 AND {first} IS NOT NULL AND {last} IS NOT NULL THEN array({checked_step}) "
            return guarded + f"WHEN {has_members} THEN sequence({first}, {last}, {step}) ELSE {empty} END"
        case _:
            assert_never(fn.function)
