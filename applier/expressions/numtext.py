"""numeric held as PostgreSQL's text: when it is, and what is known of the display scale of a DECIMAL."""

from __future__ import annotations

from collections.abc import Sequence

from applier.expressions.entry import Unfit, decimal_of
from applier.plan.expr import Call, Case, Coalesce, Col, Const, Expr, Widen

_SCALE_HINT = "cast the numeric as numeric(p,s), so that its number of decimal places is certain"
_SETS_SCALE = frozenset({"round(numeric,int4)", "trunc(numeric,int4)", "numeric(numeric,int4)"})
"""The result's display scale is that of the call, whatever that of the argument."""

_PRODUCT = frozenset({"numeric_mul(numeric,numeric)"})
_SUMS = frozenset({"numeric_add(numeric,numeric)", "numeric_sub(numeric,numeric)"})
_SAME_DIGITS = frozenset({"numeric_uminus(numeric)", "numeric_uplus(numeric)", "abs(numeric)"})


def is_text(arg: Expr) -> bool:
    """Whether the numeric is held as text."""
    return arg.type.spark == "string"


def check_numeric(args: Sequence[Expr]) -> None:
    """Unfit unless each is a numeric in one of its two carriers."""
    for arg in args:
        if arg.type.pg.name != "numeric":
            raise Unfit(f"values of type {arg.type.pg.display}")
        if not is_text(arg):
            decimal_of(arg)


def by_value(arg: Expr, sql: str) -> str:
    """The numeric as text; the display scale is that of its carrier."""
    return sql if is_text(arg) else f"CAST({sql} AS string)"


def as_text(arg: Expr, sql: str) -> str:
    """The numeric as the text PostgreSQL prints; Unfit where its display scale is not known."""
    scale_known(arg)
    return by_value(arg, sql)


def scale_known(arg: Expr) -> None:
    """Unfit unless the carrier's scale is the display scale PostgreSQL's value has."""
    if not _known(arg):
        raise Unfit("a numeric whose number of decimal places differs between rows", hint=_SCALE_HINT)


def has_known_scale(arg: Expr) -> bool:
    """Whether the carrier's scale is the display scale PostgreSQL's value has."""
    return _known(arg)


def _known(arg: Expr) -> bool:
    if is_text(arg) or arg.type.pg.name != "numeric":
        return True
    match arg:
        case Const():
            return True
        case Col():
            return arg.type.pg.precision_scale == decimal_of(arg)
        case Call():
            return arg.signature in _SETS_SCALE or all(_known(a) for a in arg.args)
        case Coalesce():
            return all(_known(a) for a in arg.args)
        case Case():
            return _known(arg.default) and all(_known(result) for _, result in arg.branches)
        case _:
            return False


def digits(arg: Expr) -> tuple[int, int] | None:
    """The most digits a numeric may have and how many of them are decimals, the same in every row; None if unknown."""
    if not is_text(arg):
        return decimal_of(arg) if arg.type.pg.name == "numeric" and _known(arg) else None
    match arg:
        case Widen():
            return digits(arg.arg)
        case Call(args=(first,)) if arg.signature in _SAME_DIGITS:
            return digits(first)
        case Call(args=(first, second)) if arg.signature in _PRODUCT | _SUMS:
            left, right = digits(first), digits(second)
            if left is None or right is None:
                return None
            if arg.signature in _PRODUCT:
                return left[0] + right[0], left[1] + right[1]
            scale = max(left[1], right[1])
            return max(left[0] - left[1], right[0] - right[1]) + 1 + scale, scale
        case _:
            return None
