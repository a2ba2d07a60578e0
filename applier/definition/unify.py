"""Bring expressions of one PostgreSQL type to one carrier. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from applier.expressions.entry import Unfit, common_decimal, decimal_of
from applier.expressions.numtext import scale_known
from applier.plan.expr import Const, Expr, ValueType, Widen

_INTEGERS = ("smallint", "int", "bigint")


def unify(args: Sequence[Expr]) -> tuple[Expr, ...]:
    """The same values, all in one carrier; Unfit when no carrier holds them all exactly."""
    carriers = [a.type.spark for a in args if not _is_null(a)]
    if not carriers:
        return tuple(replace(a, type=ValueType(a.type.pg, args[0].type.spark)) for a in args)
    common = _common(carriers, [a for a in args if not _is_null(a)])
    return tuple(_in(arg, common) for arg in args)


def _is_null(arg: Expr) -> bool:
    return isinstance(arg, Const) and arg.value is None


def _common(carriers: Sequence[str], args: Sequence[Expr]) -> str:
    if len(set(carriers)) == 1:
        return carriers[0]
    if all(c in _INTEGERS for c in carriers):
        return max(carriers, key=_INTEGERS.index)
    if all(c.startswith("decimal(") for c in carriers):
        try:
            return common_decimal([decimal_of(a) for a in args])
        except Unfit:
            pass
    if all(a.type.pg.name == "numeric" for a in args):
        for arg in args:
            scale_known(arg)
        return "string"
    raise Unfit(f"values held as {' and '.join(sorted(set(carriers)))}")


def _in(arg: Expr, carrier: str) -> Expr:
    if arg.type.spark == carrier:
        return arg
    wanted = ValueType(arg.type.pg, carrier)
    return replace(arg, type=wanted) if _is_null(arg) else Widen(arg, wanted)
