"""A ⋉ B keeps the rows of A with a partner in B, A ▷ B those without; each once, however many partners there are.

Δ(A ⋉ B) = ΔA ⋉ B' + (A_K ⋉ B'_K − A_K ⋉ B_K), K = the keys of ΔB, and the same for ▷: see `match`.
"""

from __future__ import annotations

from applier.operators.support.join_match import MatchKind, join_match_of
from applier.operators.support.operand_delta import OperandDelta
from applier.plan.nodes import SemiJoin


def _partner(node: SemiJoin) -> MatchKind:
    return MatchKind.ANTI if node.anti else MatchKind.SEMI


def semi_join(node: SemiJoin, left: str, right: str) -> str:
    """A ⋉ B or A ▷ B of two Z-sets."""
    return join_match_of(node).filter_by_match(_partner(node), left, right)


def delta_semi_join(node: SemiJoin, left: OperandDelta, right: OperandDelta, *, small: bool) -> str | None:
    """Δ(A ⋉ B) or Δ(A ▷ B).   Reads the traces of both inputs, keeps no state."""
    match = join_match_of(node)
    return match.delta(_partner(node), match.affected_sides(left, right, small=small, bare=True))
