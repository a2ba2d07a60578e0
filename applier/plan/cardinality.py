"""The sizes of relations and their deltas -> an upper bound for the rows of a result that change. Pure.

    |Δ(L ⋈ R)| ≤ |ΔL| · matches in R + |ΔR| · matches in L

A row has at most one match on a side whose rows the join's pairs identify; otherwise it may match all of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import assert_never

from applier.plan.expr import Expr
from applier.plan.keys import identifies_rows, row_key
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
)


@dataclass(frozen=True, slots=True)
class Cardinality:
    """The number of rows that changed, and of rows that exist; infinite where it is not known."""

    changed: float
    held: float


UNKNOWN = Cardinality(math.inf, math.inf)


def bound_cardinality(node: Node, relation: Callable[[Scan], Cardinality]) -> Cardinality:
    """Return the bounds of the node, from those of the relations that it reads."""
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
            # For each row that comes another may leave, and for each row that leaves another may come.
            found = bound_cardinality(node.input, relation)
            return Cardinality(2 * found.changed, found.held)
        case Join() | OuterJoin() | SemiJoin():
            return _bound_join(node, bound_cardinality(node.left, relation), bound_cardinality(node.right, relation))
        case TopK() | Window() | Repeat() | Unnest() | Recursion() | WorkTable():
            return UNKNOWN
        case _:
            assert_never(node)


def may_shrink(node: Node) -> bool:
    """Whether the result may have far fewer rows than are read: rows are grouped or left out, and not joined after
    that with more of them."""
    match node:
        case Aggregate() | Filter() | TopK() | SemiJoin():
            return True
        case Project() | Window() | Repeat() | Unnest():
            return may_shrink(node.input)
        case UnionAll():
            return all(may_shrink(branch) for branch in node.branches)
        case Join() | OuterJoin():
            return may_shrink(node.left) and may_shrink(node.right)
        case Values():
            return True
        case Scan() | Recursion() | WorkTable():
            return False
        case _:
            assert_never(node)


def _bound_join(node: Join | OuterJoin | SemiJoin, left: Cardinality, right: Cardinality) -> Cardinality:
    in_left = _max_matches(node.left, left, tuple(left_expr for left_expr, _ in node.equi))
    in_right = _max_matches(node.right, right, tuple(right_expr for _, right_expr in node.equi))
    changed = _multiply(left.changed, in_right) + _multiply(right.changed, in_left)
    held = min(_multiply(left.held, in_right), _multiply(right.held, in_left))
    match node:
        case Join():
            return Cardinality(changed, held)
        case OuterJoin():
            # Each match that comes or goes may also remove or add one row without a match.
            return Cardinality(2 * changed + left.changed + right.changed, held + left.held + right.held)
        case SemiJoin():
            return Cardinality(left.changed + changed, left.held)


def _max_matches(side: Node, cardinality: Cardinality, pairs: tuple[Expr, ...]) -> float:
    """Return how many rows of a side a row may match: without a key all of them, because rows may repeat."""
    return 1 if row_key(side) is not None and identifies_rows(side, pairs) else cardinality.held


def _multiply(rows: float, matches: float) -> float:
    return rows * matches if rows and matches else 0
