"""A numeric expression with several scales -> its value as a DECIMAL, and the scale that PostgreSQL shows. Pure.

`sum(CASE WHEN paid THEN price ELSE 0 END)` adds numerics with two decimals and with none; only text preserves both. The
sum has the largest scale of its rows. So the values are summed as decimals, and the rows of each scale are counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from applier.functions.allow_list import ENTRIES
from applier.functions.entry import decimal_of, extreme
from applier.functions.numeric.by_scale import BY_SCALE, scale_aggregates
from applier.functions.numeric.physical_types import PRODUCTS, SAME_DIGITS, SUMS
from applier.plan.expr import BOOL, INT4, AggregateCall, Call, Case, Coalesce, Const, Expr, IsNull, ValueType, Widen
from applier.sql.typing.unify import unify_for_equality

_MAX = extreme("GREATEST", "int4")
_SCALE_FUNCTION = dict.fromkeys(SUMS, _MAX) | dict.fromkeys(PRODUCTS, "int4pl(int4,int4)")


@dataclass(frozen=True, slots=True)
class _ScaledValue:
    """A value and its scale; `scale` is computed from literals, and is NULL where the value is NULL."""

    value: Expr
    scale: Expr


def split_by_scale(call: AggregateCall) -> AggregateCall:
    """Rewrite a sum or average to use value and scale, if its argument has known scales; else return it unchanged."""
    name = BY_SCALE.get(call.signature)
    if name is None or call.distinct or call.args[0].type.spark != "string":
        return call
    found = _split(call.args[0])
    scales = _possible_scales(found.scale) if found else ()
    if found is None or not scales:
        return call
    return replace(call, signature=name, args=(found.value, found.scale, scale_aggregates(scales)))


def _possible_scales(scale: Expr) -> frozenset[int]:
    """Return the possible values of a scale expression."""
    match scale:
        case Const(value=int() as value):
            return frozenset({value})
        case Const(value=None):
            return frozenset()
        case Case():
            return frozenset().union(
                *(_possible_scales(e) for e in (*(result for _, result in scale.branches), scale.default))
            )
        case Call(args=(first, second)):
            pairs = [(a, b) for a in _possible_scales(first) for b in _possible_scales(second)]
            return frozenset(max(a, b) if scale.signature == _MAX else a + b for a, b in pairs)
        case _:
            raise AssertionError(f"a scale that is not computed from literals: {scale}")


def _split(expr: Expr) -> _ScaledValue | None:
    if expr.type.spark != "string":
        return _ScaledValue(expr, Const(decimal_of(expr)[1], INT4))
    match expr:
        case Const(value=None):
            return _ScaledValue(replace(expr, type=ValueType(expr.type.pg, "decimal(1,0)")), Const(None, INT4))
        case Widen():
            return _split(expr.arg)
        case Case():
            results = _split_all([*(result for _, result in expr.branches), expr.default])
            return None if results is None else _split_case(expr, results)
        case Coalesce():
            args = _split_all(expr.args)
            return None if args is None else _split_coalesce(expr, args)
        case Call() if expr.signature in _SCALE_FUNCTION or expr.signature in SAME_DIGITS:
            operands = _split_all(expr.args)
            return None if operands is None else _split_call(expr, operands)
        case _:
            return None


def _split_all(exprs: Sequence[Expr]) -> list[_ScaledValue] | None:
    found = [part for part in map(_split, exprs) if part is not None]
    return found if len(found) == len(exprs) else None


def _unify_values(parts: Sequence[_ScaledValue]) -> tuple[Expr, ...] | None:
    """Convert the values to one decimal type; None where 38 digits are not enough."""
    values = unify_for_equality([part.value for part in parts])
    return None if values[0].type.spark == "string" else values


def _split_case(case: Case, results: Sequence[_ScaledValue]) -> _ScaledValue | None:
    values = _unify_values(results)
    if values is None:
        return None
    conditions = [condition for condition, _ in case.branches]
    scales = [part.scale for part in results]
    return _ScaledValue(
        Case(tuple(zip(conditions, values, strict=False)), values[-1], ValueType(case.type.pg, values[0].type.spark)),
        Case(tuple(zip(conditions, scales, strict=False)), scales[-1], INT4),
    )


def _split_coalesce(coalesce: Coalesce, args: Sequence[_ScaledValue]) -> _ScaledValue | None:
    values = _unify_values(args)
    if values is None:
        return None
    not_null = [IsNull(part.value, True, BOOL) for part in args[:-1]]
    scales = [part.scale for part in args]
    return _ScaledValue(
        Coalesce(values, ValueType(coalesce.type.pg, values[0].type.spark)),
        Case(tuple(zip(not_null, scales, strict=False)), scales[-1], INT4),
    )


def _split_call(call: Call, operands: Sequence[_ScaledValue]) -> _ScaledValue | None:
    values = tuple(part.value for part in operands)
    spark = ENTRIES[call.signature].physical_type(values)
    if spark == "string":
        return None
    scale = operands[0].scale
    if len(operands) == 2:
        scale = Call(_SCALE_FUNCTION[call.signature], (scale, operands[1].scale), INT4)
    return _ScaledValue(replace(call, args=values, type=ValueType(call.type.pg, spark)), scale)
