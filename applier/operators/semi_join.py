"""A ⋉ B: rows of A that have a match in B. A ▷ B: rows of A that have none.

A row counts as often as it is in A, however many matches it has.

    Δ(A ⋉ B) = ΔA ⋉ B' + (A_K ⋉ B'_K − A_K ⋉ B_K),   K = the keys of ΔB

The same for ▷: see `support.join_match`.

Intuitively: a change can only matter to the keys that it affects, so both sides are looked up by those keys, before
and after.

    A: (1) (2)   B: (2)     result (2)
    ΔB: +(1)  →  affected keys {1}  →  before {} after {(1)}  →  delta +(1)
"""

from __future__ import annotations

from applier.operators.support.delta_plan import MergedRows, RowsPlan, SemiJoinDelta, SidesPlan
from applier.operators.support.input_plans import InputPlans
from applier.operators.support.join_match import AffectedSides, JoinMatch, MatchKind, join_match_of
from applier.plan.nodes import SemiJoin, fields
from applier.zset import ZSet


def _match_kind(node: SemiJoin) -> MatchKind:
    return MatchKind.ANTI if node.anti else MatchKind.SEMI


def semi_join(node: SemiJoin, left: ZSet, right: ZSet) -> ZSet:
    """Return A ⋉ B or A ▷ B of two Z-sets."""
    return join_match_of(node).filter_by_match(_match_kind(node), left, right)


def plan_semi_join_delta(node: SemiJoin, inputs: InputPlans) -> SemiJoinDelta | None:
    """Plan Δ(A ⋉ B) or Δ(A ▷ B).   Reads the traces of both inputs, keeps no state."""
    match = join_match_of(node)
    left, right = inputs.delta_read_again(node.left), inputs.delta_read_again(node.right)
    left_delta = None if left is None else match.left.plan_placed(left)
    if right is not None:
        return SemiJoinDelta(node, _sides_of_right_change(node, match, left_delta, right, inputs))
    if left_delta is None:
        return None
    matches = match.right.plan_affected(node.right, [(match.left.keys, left_delta)], inputs)
    return SemiJoinDelta(node, SidesPlan(left_delta, None, None, match.right.plan_placed(matches)))


def _sides_of_right_change(
    node: SemiJoin, match: JoinMatch, left_delta: RowsPlan | None, right: RowsPlan, inputs: InputPlans
) -> SidesPlan:
    """Plan both sides after a change of B: each is read more than once.

    The rows of B serve only to find matches, so they have no columns but those that the condition reads.
    """
    only = match.right.own_ordinals(match.reads)
    kept = [fields(node.right)[i] for i in only]
    types = tuple(field.type.spark for field in kept)
    right_delta = match.right.plan_placed(MergedRows(right, only, types), only)
    affected = match.left.plan_affected(node.left, [(match.right.keys, right_delta)], inputs)
    if match.left.exprs:
        affected = inputs.read_again(affected, fields(node.left))
    left_before = match.left.plan_placed(affected)
    # Matches are needed only for rows that exist; where those are few and already computed, they have fewer keys.
    few = inputs.small and match.left.keys
    of_matches = (match.left.keys, left_before) if few else (match.right.keys, right_delta)
    matches = match.right.plan_affected(node.right, [(match.left.keys, left_delta), of_matches], inputs)
    present: RowsPlan = MergedRows(matches, only, types)
    if match.right.exprs:
        present = inputs.read_again(present, kept)
    return SidesPlan(left_delta, right_delta, left_before, match.right.plan_placed(present, only))


def render_semi_join_delta(plan: SemiJoinDelta, sides: AffectedSides) -> ZSet | None:
    """Return Δ(A ⋉ B) or Δ(A ▷ B) from the affected rows of both sides."""
    return join_match_of(plan.node).delta(_match_kind(plan.node), sides)
