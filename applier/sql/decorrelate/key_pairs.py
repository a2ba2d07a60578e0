"""The conditions of a join -> key pairs that Spark hashes, and the rest. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from applier.functions.allow_list import ENTRIES
from applier.functions.comparison_keys import comparison_key
from applier.functions.entry import UnsuitableArguments
from applier.plan.expr import Call, Expr, columns_read, shift
from applier.sql.bound.conditions import conjunction
from applier.sql.typing.unify import unify_for_equality


def split_condition(conditions: Sequence[Expr], width: int) -> tuple[tuple[tuple[Expr, Expr], ...], Expr | None]:
    """Split the conditions of a join into key pairs and the conjunction of the others."""
    equi: list[tuple[Expr, Expr]] = []
    residual: list[Expr] = []
    for condition in conditions:
        pair = _key_pair(condition, width)
        if pair is None:
            residual.append(condition)
        else:
            equi.append(pair)
    return tuple(equi), conjunction(residual) if residual else None


def _key_pair(condition: Expr, width: int) -> tuple[Expr, Expr] | None:
    if not isinstance(condition, Call):
        return None
    sides = _hashable_sides(condition)
    if sides is None:
        return None
    reads = [set(columns_read(side)) for side in sides]
    for one, other in ((0, 1), (1, 0)):
        if reads[one] and reads[other] and max(reads[one]) < width <= min(reads[other]):
            return sides[one], shift(sides[other], -width)
    return None


def _hashable_sides(condition: Call) -> tuple[Expr, ...] | None:
    """Return two sides of one hashable physical type that are equal where the condition is true; None if impossible.

    Where equal values may have different representations, the sides are their comparison keys.
    """
    entry = ENTRIES[condition.signature]
    if not entry.hash_equal and not entry.key_equal:
        return None
    try:
        sides = unify_for_equality(condition.args)
    except UnsuitableArguments:
        return None
    if entry.hashes(sides):
        return sides
    keys = tuple(key for key in map(comparison_key, sides) if key is not None)
    return keys if len(keys) == len(sides) else None
