"""Handles the two physical types of numeric: DECIMAL(p,s) with PostgreSQL's display scale s, or PostgreSQL's text."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from applier.functions.entry import UnsuitableArguments, decimal_of
from applier.plan.expr import Call, Expr, Widen

PRODUCTS = frozenset({"numeric_mul(numeric,numeric)"})
SUMS = frozenset({"numeric_add(numeric,numeric)", "numeric_sub(numeric,numeric)"})
SAME_DIGITS = frozenset({"numeric_uminus(numeric)", "numeric_uplus(numeric)", "numeric_abs(numeric)", "abs(numeric)"})
"""Functions by the scale of their results: PRODUCTS add the scales, SUMS use the larger one, SAME_DIGITS keep it."""


SUMMED_DIGITS = 32
"""The sum of a column of more declared digits is text: with 38 digits a million values of 32 digits can be added up."""


def outgrows_decimal(arg: Expr) -> bool:
    """Return whether sums of a DECIMAL may need more than 38 digits, by its declaration.

    Not by the digits that an expression could have at most: those of a product are far more than its values need.
    """
    declared = arg.type.pg.precision_scale
    return not is_text(arg) and declared is not None and declared[0] > SUMMED_DIGITS


def is_text(arg: Expr) -> bool:
    """Return whether the numeric is stored as text."""
    return arg.type.spark == "string"


def check_numeric(args: Sequence[Expr]) -> None:
    """Raise UnsuitableArguments unless each argument is a numeric in one of its two physical types."""
    for arg in args:
        if arg.type.pg.name != "numeric":
            raise UnsuitableArguments(f"values of type {arg.type.pg.display}")
        if not is_text(arg):
            decimal_of(arg)


def of_numerics(result: str) -> Callable[[tuple[Expr, ...]], str]:
    """Return a `physical_type` function that accepts numerics of both physical types."""

    def physical_type(args: tuple[Expr, ...]) -> str:
        check_numeric(args)
        return result

    return physical_type


def as_text(arg: Expr, sql: str) -> str:
    """Return Spark SQL for the numeric as PostgreSQL's text."""
    return sql if is_text(arg) else f"CAST({sql} AS string)"


def digits(arg: Expr) -> tuple[int, int] | None:
    """Return the maximal number of digits of a numeric and its scale, the same in every row; None if unknown."""
    if not is_text(arg):
        return decimal_of(arg) if arg.type.pg.name == "numeric" else None
    match arg:
        case Widen():
            return digits(arg.arg)
        case Call(args=(first,)) if arg.signature in SAME_DIGITS:
            return digits(first)
        case Call(args=(first, second)) if arg.signature in PRODUCTS | SUMS:
            left, right = digits(first), digits(second)
            if left is None or right is None:
                return None
            if arg.signature in PRODUCTS:
                return left[0] + right[0], left[1] + right[1]
            scale = max(left[1], right[1])
            return max(left[0] - left[1], right[0] - right[1]) + 1 + scale, scale
        case _:
            return None
