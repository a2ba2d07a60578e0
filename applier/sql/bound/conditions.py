"""What may be said of a typed condition: whether it may raise an error, and its parts. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from applier.functions.allow_list import ENTRIES
from applier.plan.expr import BoolOp, Call, Expr, Logic, children


def is_total(expr: Expr) -> bool:
    """Whether the expression never raises an error: it has a value, or NULL, for every row."""
    return not (isinstance(expr, Call) and ENTRIES[expr.signature].raises) and all(is_total(c) for c in children(expr))


def can_push_down(expr: Expr) -> bool:
    """Whether the expression may be evaluated wherever its columns exist.

    A sum or product that is out of range is an error that PostgreSQL may raise in such places too, depending on its
    plan. An invalid argument (a division by zero) may be exactly what another condition excludes.
    """
    entry = ENTRIES[expr.signature] if isinstance(expr, Call) else None
    raises = entry is not None and entry.raises and not entry.only_out_of_range
    return not raises and all(can_push_down(c) for c in children(expr))


def conjunction(parts: Sequence[Expr]) -> Expr:
    """Combine the conditions with AND, in this order."""
    if len(parts) == 1:
        return parts[0]
    return BoolOp(Logic.AND, tuple(parts), parts[0].type)


def split_conjunction(expr: Expr | None) -> list[Expr]:
    """Split an expression at AND; None has no parts."""
    if expr is None:
        return []
    if isinstance(expr, BoolOp) and expr.logic is Logic.AND:
        return [part for arg in expr.args for part in split_conjunction(arg)]
    return [expr]
