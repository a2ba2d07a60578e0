"""Δ(A ⟕ B) = Δ(A ⋈ B) + Δ(A ▷ B) × NULL, and for a full join also + NULL × Δ(B ▷ A).

A ▷ B are the rows of A without a partner in B: see `match`.
"""

from __future__ import annotations

from applier.operators.inner_join import inner_join
from applier.operators.support.join_match import MatchKind, join_match_of
from applier.operators.support.operand_delta import OperandDelta
from applier.plan.nodes import Field, Join, OuterJoin, fields
from applier.zset import WEIGHT, column_name, plus, select


def _inner(node: OuterJoin) -> Join:
    return Join(node.left, node.right, node.equi, node.residual)


def _extended(rows: str | None, places: range, output: tuple[Field, ...]) -> str | None:
    """Rows at their places in the output, NULL everywhere else."""
    if rows is None:
        return None
    columns = [column_name(i) if i in places else f"CAST(NULL AS {field.type.spark})" for i, field in enumerate(output)]
    return select(columns, WEIGHT, f"({rows})")


def outer_join(node: OuterJoin, left: str, right: str) -> str:
    """A ⟕ B of two Z-sets, or the full join."""
    match, output = join_match_of(node), fields(node)
    alone = match.filter_by_match(MatchKind.ANTI, left, right)
    others = match.flipped().filter_by_match(MatchKind.ANTI, right, left) if node.full else None
    parts = (
        inner_join(_inner(node), left, right),
        _extended(alone, match.left.places, output),
        _extended(others, match.right.places, output),
    )
    return " UNION ALL ".join(part for part in parts if part is not None)


def delta_outer_join(node: OuterJoin, left: OperandDelta, right: OperandDelta, *, small: bool) -> str | None:
    """Δ(A ⋈ B) + Δ(A ▷ B) × NULL [+ NULL × Δ(B ▷ A)].   Reads the traces of both inputs, keeps no state."""
    match, output = join_match_of(node), fields(node)
    sides = match.affected_sides(left, right, small=small, again=True, full=node.full, bare=False)
    alone = match.delta(MatchKind.ANTI, sides)
    others = match.flipped().delta(MatchKind.ANTI, sides.flipped()) if node.full else None
    return plus(
        match.delta_joined(sides, small=small),
        _extended(alone, match.left.places, output),
        _extended(others, match.right.places, output),
    )
