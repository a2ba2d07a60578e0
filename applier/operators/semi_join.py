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

from applier.operators.support.join_match import MatchKind, join_match_of
from applier.operators.support.operand_delta import OperandDelta
from applier.plan.nodes import SemiJoin
from applier.zset import ZSet


def _match_kind(node: SemiJoin) -> MatchKind:
    return MatchKind.ANTI if node.anti else MatchKind.SEMI


def semi_join(node: SemiJoin, left: ZSet, right: ZSet) -> ZSet:
    """Return A ⋉ B or A ▷ B of two Z-sets."""
    return join_match_of(node).filter_by_match(_match_kind(node), left, right)


def delta_semi_join(node: SemiJoin, left: OperandDelta, right: OperandDelta, *, small: bool) -> ZSet | None:
    """Return Δ(A ⋉ B) or Δ(A ▷ B).   Reads the traces of both inputs, keeps no state."""
    match = join_match_of(node)
    return match.delta(_match_kind(node), match.affected_sides(left, right, small=small, bare=True))
