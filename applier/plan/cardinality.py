"""At most how many rows of a result a change touches, from what its relations hold and what changed of them. Pure.

    |Δ(L ⋈ R)| ≤ |ΔL| · partners in R + |ΔR| · partners in L

A row has one partner on a side whose rows the join's pairs tell apart, and else perhaps all of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import assert_never

from applier.plan.expr import Expr
from applier.plan.nodes import (
    Aggregate,
    Filter,
    Join,
    Node,
    OuterJoin,
    Project,
    Recursion,
    Repeat,
    Scan,
    SemiJoin,
    TopK,
    Unfold,
    UnionAll,
    Values,
    Window,
    Working,
    row_key,
    tells_apart,
)


@dataclass(frozen=True, slots=True)
class Extent:
    """Rows that changed, and rows there are; infinite where nothing is known."""

    changed: float
    held: float


UNKNOWN = Extent(math.inf, math.inf)


def reach(node: Node, relation: Callable[[Scan], Extent]) -> Extent:
    """Of the node, from those of the relations it reads."""
    match node:
        case Scan():
            return relation(node)
        case Values():
            return Extent(0, len(node.rows))
        case Filter() | Project():
            return reach(node.input, relation)
        case UnionAll():
            branches = [reach(branch, relation) for branch in node.branches]
            return Extent(sum(b.changed for b in branches), sum(b.held for b in branches))
        case Aggregate():
            # The old row of a group and the new one.
            found = reach(node.input, relation)
            return Extent(2 * found.changed, found.held + 1)
        case TopK(ties=False):
            # For each row that comes or leaves another leaves or comes.
            found = reach(node.input, relation)
            return Extent(2 * found.changed, found.held)
        case Join() | OuterJoin() | SemiJoin():
            return _joined(node, reach(node.left, relation), reach(node.right, relation))
        case TopK() | Window() | Repeat() | Unfold() | Recursion() | Working():
            return UNKNOWN
        case _:
            assert_never(node)


def _joined(node: Join | OuterJoin | SemiJoin, left: Extent, right: Extent) -> Extent:
    in_left = _partners(node.left, left, tuple(ours for ours, _ in node.equi))
    in_right = _partners(node.right, right, tuple(theirs for _, theirs in node.equi))
    changed = _times(left.changed, in_right) + _times(right.changed, in_left)
    held = min(_times(left.held, in_right), _times(right.held, in_left))
    match node:
        case Join():
            return Extent(changed, held)
        case OuterJoin():
            # Each match is also one row less, or more, that stands alone.
            return Extent(2 * changed + left.changed + right.changed, held + left.held + right.held)
        case SemiJoin():
            return Extent(left.changed + changed, left.held)


def _partners(side: Node, extent: Extent, pairs: tuple[Expr, ...]) -> float:
    """Without a key a row may be there any number of times, and each of them is met."""
    return 1 if row_key(side) is not None and tells_apart(side, pairs) else extent.held


def _times(rows: float, partners: float) -> float:
    return rows * partners if rows and partners else 0
