"""Expressions of one PostgreSQL type -> the same expressions in one physical type. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from applier.functions.entry import UnsuitableArguments, common_decimal, decimal_of
from applier.plan.expr import Const, Expr, ValueType, Widen

_INTEGERS = ("smallint", "int", "bigint")


def unify(args: Sequence[Expr]) -> tuple[Expr, ...]:
    """Convert the expressions to one physical type, with the same values and the same text.

    A numeric keeps its scale: where the scales differ, the common physical type is text. Raises UnsuitableArguments
    when no physical type can store all values exactly.
    """
    not_null = [a for a in args if not _is_null(a)]
    if not not_null:
        return tuple(replace(a, type=ValueType(a.type.pg, args[0].type.spark)) for a in args)
    common = _common_type(not_null)
    return tuple(_convert(arg, common) for arg in args)


def unify_for_equality(args: Sequence[Expr]) -> tuple[Expr, ...]:
    """Like `unify`, for values that are only compared for equality: 1.0 may become 1.00."""
    try:
        common = common_decimal([decimal_of(arg) for arg in args])
    except UnsuitableArguments:
        return unify(args)
    return tuple(_convert(arg, common) for arg in args)


def _is_null(arg: Expr) -> bool:
    return isinstance(arg, Const) and arg.value is None


def _common_type(args: Sequence[Expr]) -> str:
    physical_types = [a.type.spark for a in args]
    if len(set(physical_types)) == 1:
        return physical_types[0]
    if all(c in _INTEGERS for c in physical_types):
        return max(physical_types, key=_INTEGERS.index)
    if all(a.type.pg.name == "numeric" for a in args):
        return _common_numeric(args)
    raise UnsuitableArguments(f"values stored as {' and '.join(sorted(set(physical_types)))}")


def _common_numeric(args: Sequence[Expr]) -> str:
    try:
        sizes = [decimal_of(a) for a in args]
        return common_decimal(sizes) if len({scale for _, scale in sizes}) == 1 else "string"
    except UnsuitableArguments:
        return "string"


def _convert(arg: Expr, physical_type: str) -> Expr:
    if arg.type.spark == physical_type:
        return arg
    target = ValueType(arg.type.pg, physical_type)
    return replace(arg, type=target) if _is_null(arg) else Widen(arg, target)
