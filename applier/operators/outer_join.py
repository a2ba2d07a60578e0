"""A ⟕ B: the joined rows, and every row of A that has no match in B, with NULLs in place of B. A full join: both ways.

    Δ(A ⟕ B) = Δ(A ⋈ B) + Δ(A ▷ B) × NULL, and for a full join also + NULL × Δ(B ▷ A)

A ▷ B are the rows of A that have no match in B: see `support.join_match`.

Intuitively: when the first match of a row arrives, the joined row comes and the row with NULLs leaves, and the other
way round when the last match goes.

    A: (1) (2)   B: (2)     result (1, NULL) (2, 2)
    ΔB: +(1)  →  Δ(A ⋈ B) = +(1, 1)  and  Δ(A ▷ B) = −(1)  →  delta +(1, 1) −(1, NULL)
"""

from __future__ import annotations

from applier.operators.inner_join import inner_join
from applier.operators.support.delta_plan import OuterJoinDelta, SidesPlan
from applier.operators.support.input_plans import InputPlans
from applier.operators.support.join_match import AffectedSides, MatchKind, join_match_of
from applier.plan.nodes import Field, Join, OuterJoin, fields
from applier.zset import ZSet, column_name, plus


def _inner_join_of(node: OuterJoin) -> Join:
    return Join(node.left, node.right, node.equi, node.residual)


def _extend_with_nulls(rows: ZSet | None, places: range, output: tuple[Field, ...]) -> ZSet | None:
    """Return the rows at their places in the output, with NULL in every other column."""
    if rows is None:
        return None
    columns = [column_name(i) if i in places else f"CAST(NULL AS {field.type.spark})" for i, field in enumerate(output)]
    return rows.select(columns)


def outer_join(node: OuterJoin, left: ZSet, right: ZSet) -> ZSet:
    """Return A ⟕ B of two Z-sets, or their full join."""
    match, output = join_match_of(node), fields(node)
    unmatched_left = match.filter_by_match(MatchKind.ANTI, left, right)
    unmatched_right = match.flipped().filter_by_match(MatchKind.ANTI, right, left) if node.full else None
    parts = (
        _extend_with_nulls(unmatched_left, match.left.places, output),
        _extend_with_nulls(unmatched_right, match.right.places, output),
    )
    return inner_join(_inner_join_of(node), left, right).plus(*(part for part in parts if part is not None))


def plan_outer_join_delta(node: OuterJoin, inputs: InputPlans) -> OuterJoinDelta | None:
    """Plan Δ(A ⋈ B) + Δ(A ▷ B) × NULL [+ NULL × Δ(B ▷ A)].   Reads the traces of both inputs, keeps no state."""
    left, right = inputs.delta_read_again(node.left), inputs.delta_read_again(node.right)
    if left is None and right is None:
        return None
    match = join_match_of(node)
    left_delta = None if left is None else match.left.plan_placed(left)
    right_delta = None if right is None else match.right.plan_placed(right)
    own, other = (match.left.keys, left_delta), (match.right.keys, right_delta)
    left_before = None
    # Of a full join both sides are affected by either delta, otherwise the left one by that of the right alone.
    if node.full or right_delta is not None:
        rows = match.left.plan_affected(node.left, (own, other) if node.full else (other,), inputs)
        left_before = match.left.plan_placed(inputs.read_again(rows, fields(node.left)) if match.left.exprs else rows)
    # Matches are needed only for rows that exist; where those are few and already computed, they have fewer keys.
    few = inputs.small and match.left.keys and not node.full
    rows = match.right.plan_affected(node.right, (own, (match.left.keys, left_before) if few else other), inputs)
    right_before = match.right.plan_placed(inputs.read_again(rows, fields(node.right)) if match.right.exprs else rows)
    return OuterJoinDelta(node, SidesPlan(left_delta, right_delta, left_before, right_before), inputs.small)


def render_outer_join_delta(plan: OuterJoinDelta, sides: AffectedSides) -> ZSet | None:
    """Return Δ(A ⋈ B) + Δ(A ▷ B) × NULL [+ NULL × Δ(B ▷ A)] from the affected rows of both sides."""
    match, output = join_match_of(plan.node), fields(plan.node)
    unmatched_left = match.delta(MatchKind.ANTI, sides)
    unmatched_right = match.flipped().delta(MatchKind.ANTI, sides.flipped()) if plan.node.full else None
    return plus(
        match.delta_joined(sides, broadcast=plan.broadcast),
        _extend_with_nulls(unmatched_left, match.left.places, output),
        _extend_with_nulls(unmatched_right, match.right.places, output),
    )
