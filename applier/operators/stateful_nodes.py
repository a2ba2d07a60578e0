"""A plan -> the nodes for which state is kept between LSN ranges."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from applier.operators.support.accumulators import is_additive, min_max_calls
from applier.operators.support.inputs import StatefulNode
from applier.operators.top_k import last_place
from applier.plan.nodes import Aggregate, Node, Recursion, TopK, inputs, is_derived
from applier.plan.recursion import is_delete_rederivable

MAX_BUFFERED_PLACES = 10_000
"""A LIMIT that reaches further is computed from its input."""


def stateful_nodes(root: Node) -> list[StatefulNode]:
    """Return the nodes for which state is worth keeping, inner ones first.

    Sums always are, and minima and maxima too. A multiset of values is worth keeping only where it is not made of the
    rows of one relation, because a trace holds those anyway.
    Nothing is kept inside a recursion: it is maintained from the rows that it derived, or computed in whole.
    """
    return list(
        dict.fromkeys(
            node for node in _walk_inner_first(root) if isinstance(node, StatefulNode) and _is_worth_keeping(node)
        )
    )


def _is_worth_keeping(node: StatefulNode) -> bool:
    match node:
        case Aggregate():
            return is_additive(node) or is_derived(node.input) or min_max_calls(node) is not None
        case Recursion():
            return is_delete_rederivable(node)
        case TopK():
            return (
                not node.keys
                and bool(node.order)
                and node.limit is not None
                and last_place(node) <= MAX_BUFFERED_PLACES
            )
        case _:
            assert_never(node)


def _walk_inner_first(node: Node) -> Iterator[Node]:
    if not isinstance(node, Recursion):
        for child in inputs(node):
            yield from _walk_inner_first(child)
    yield node
