"""A numeric of several scales taken apart: its value as a DECIMAL, and how many decimals PostgreSQL shows. Pure.

`sum(CASE WHEN paid THEN price ELSE 0 END)` adds up numerics with two decimals and with none, which only text holds as
they are. The sum shows as many as the row with the most; so the values are added up as decimals, and beside them is
counted how many rows there are of each scale.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from applier.functions.allow_list import ENTRIES
from applier.functions.entry import decimal_of, extreme
from applier.functions.numeric.by_scale import BY_SCALE, scale_aggregates
from applier.functions.numeric.physical_types import PRODUCTS, SAME_DIGITS, SUMS
from applier.plan.expr import BOOL, INT4, AggregateCall, Call, Case, Coalesce, Const, Expr, IsNull, ValueType, Widen
from applier.sql.typing.unify import comparable

_LARGER = extreme("GREATEST", "int4")
_SCALE_OF = dict.fromkeys(SUMS, _LARGER) | dict.fromkeys(PRODUCTS, "int4pl(int4,int4)")


@dataclass(frozen=True, slots=True)
class _Scaled:
    """`scale` is an expression over literals, or NULL where the value is NULL."""

    value: Expr
    scale: Expr


def split_by_scale(call: AggregateCall) -> AggregateCall:
    """The sum or average over value and scale where its argument has a few known scales; else the call itself."""
    name = BY_SCALE.get(call.signature)
    if name is None or call.distinct or call.args[0].type.spark != "string":
        return call
    found = _taken_apart(call.args[0])
    scales = _scales(found.scale) if found else ()
    if found is None or not scales:
        return call
    return replace(call, signature=name, args=(found.value, found.scale, scale_aggregates(scales)))


def _scales(scale: Expr) -> frozenset[int]:
    """What an expression over literals may be."""
    match scale:
        case Const(value=int() as value):
            return frozenset({value})
        case Const(value=None):
            return frozenset()
        case Case():
            return frozenset().union(*(_scales(e) for e in (*(result for _, result in scale.branches), scale.default)))
        case Call(args=(first, second)):
            pairs = [(a, b) for a in _scales(first) for b in _scales(second)]
            return frozenset(max(a, b) if scale.signature == _LARGER else a + b for a, b in pairs)
        case _:
            raise AssertionError(f"a number of decimals that is no matter of literals: {scale}")


def _taken_apart(expr: Expr) -> _Scaled | None:
    if expr.type.spark != "string":
        return _Scaled(expr, Const(decimal_of(expr)[1], INT4))
    match expr:
        case Const(value=None):
            return _Scaled(replace(expr, type=ValueType(expr.type.pg, "decimal(1,0)")), Const(None, INT4))
        case Widen():
            return _taken_apart(expr.arg)
        case Case():
            results = _all_apart([*(result for _, result in expr.branches), expr.default])
            return None if results is None else _chosen(expr, results)
        case Coalesce():
            args = _all_apart(expr.args)
            return None if args is None else _first(expr, args)
        case Call() if expr.signature in _SCALE_OF or expr.signature in SAME_DIGITS:
            operands = _all_apart(expr.args)
            return None if operands is None else _computed(expr, operands)
        case _:
            return None


def _all_apart(exprs: Sequence[Expr]) -> list[_Scaled] | None:
    found = [part for part in map(_taken_apart, exprs) if part is not None]
    return found if len(found) == len(exprs) else None


def _met(parts: Sequence[_Scaled]) -> tuple[Expr, ...] | None:
    """The values in one decimal; None where 38 digits do not hold them."""
    values = comparable([part.value for part in parts])
    return None if values[0].type.spark == "string" else values


def _chosen(case: Case, results: Sequence[_Scaled]) -> _Scaled | None:
    values = _met(results)
    if values is None:
        return None
    conditions = [condition for condition, _ in case.branches]
    scales = [part.scale for part in results]
    return _Scaled(
        Case(tuple(zip(conditions, values, strict=False)), values[-1], ValueType(case.type.pg, values[0].type.spark)),
        Case(tuple(zip(conditions, scales, strict=False)), scales[-1], INT4),
    )


def _first(coalesce: Coalesce, args: Sequence[_Scaled]) -> _Scaled | None:
    values = _met(args)
    if values is None:
        return None
    there = [IsNull(part.value, True, BOOL) for part in args[:-1]]
    scales = [part.scale for part in args]
    return _Scaled(
        Coalesce(values, ValueType(coalesce.type.pg, values[0].type.spark)),
        Case(tuple(zip(there, scales, strict=False)), scales[-1], INT4),
    )


def _computed(call: Call, operands: Sequence[_Scaled]) -> _Scaled | None:
    values = tuple(part.value for part in operands)
    spark = ENTRIES[call.signature].physical_type(values)
    if spark == "string":
        return None
    scale = operands[0].scale
    if len(operands) == 2:
        scale = Call(_SCALE_OF[call.signature], (scale, operands[1].scale), INT4)
    return _Scaled(replace(call, args=values, type=ValueType(call.type.pg, spark)), scale)
