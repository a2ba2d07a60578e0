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
    UnionAll,
    Unnest,
    Values,
    Window,
    WorkTable,
    identifies_rows,
    row_key,
)


@dataclass(frozen=True, slots=True)
class Cardinality:
    """Rows that changed, and rows there are; infinite where nothing is known."""

    changed: float
    held: float


UNKNOWN = Cardinality(math.inf, math.inf)


def bound_cardinality(node: Node, relation: Callable[[Scan], Cardinality]) -> Cardinality:
    """Of the node, from those of the relations it reads."""
    match node:
        case Scan():
            return relation(node)
        case Values():
            return Cardinality(0, len(node.rows))
        case Filter() | Project():
            return bound_cardinality(node.input, relation)
        case UnionAll():
            branches = [bound_cardinality(branch, relation) for branch in node.branches]
            return Cardinality(sum(b.changed for b in branches), sum(b.held for b in branches))
        case Aggregate():
            # The old row of a group and the new one.
            found = bound_cardinality(node.input, relation)
            return Cardinality(2 * found.changed, found.held + 1)
        case TopK(ties=False):
            # For each row that comes or leaves another leaves or comes.
            found = bound_cardinality(node.input, relation)
            return Cardinality(2 * found.changed, found.held)
        case Join() | OuterJoin() | SemiJoin():
            return _joined(node, bound_cardinality(node.left, relation), bound_cardinality(node.right, relation))
        case TopK() | Window() | Repeat() | Unnest() | Recursion() | WorkTable():
            return UNKNOWN
        case _:
            assert_never(node)


def _joined(node: Join | OuterJoin | SemiJoin, left: Cardinality, right: Cardinality) -> Cardinality:
    in_left = _partners(node.left, left, tuple(ours for ours, _ in node.equi))
    in_right = _partners(node.right, right, tuple(theirs for _, theirs in node.equi))
    changed = _times(left.changed, in_right) + _times(right.changed, in_left)
    held = min(_times(left.held, in_right), _times(right.held, in_left))
    match node:
        case Join():
            return Cardinality(changed, held)
        case OuterJoin():
            # Each match is also one row less, or more, that stands alone.
            return Cardinality(2 * changed + left.changed + right.changed, held + left.held + right.held)
        case SemiJoin():
            return Cardinality(left.changed + changed, left.held)


def _partners(side: Node, extent: Cardinality, pairs: tuple[Expr, ...]) -> float:
    """Without a key a row may be there any number of times, and each of them is met."""
    return 1 if row_key(side) is not None and identifies_rows(side, pairs) else extent.held


def _times(rows: float, partners: float) -> float:
    return rows * partners if rows and partners else 0
