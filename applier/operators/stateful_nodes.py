"""Of which nodes something is worth keeping between windows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from applier.operators.support.accumulators import is_additive, min_max_calls
from applier.operators.support.inputs import StatefulNode
from applier.operators.top_k import last_place
from applier.plan.nodes import Aggregate, Node, Recursion, TopK, derived, inputs
from applier.plan.recursion import is_delete_rederivable

MAX_BUFFERED_PLACES = 10_000
"""A LIMIT of more is computed from its input."""


def stateful_nodes(root: Node) -> list[StatefulNode]:
    """The nodes of which something is worth keeping, inner ones first.

    Sums always are, and the least and largest values. A multiset of values is only where its rows are not those of a
    relation, which is kept anyway.
    Within a recursion nothing is: it is followed by what it derived, or computed in whole.
    """
    return list(
        dict.fromkeys(node for node in _within(root) if isinstance(node, StatefulNode) and _worth_keeping(node))
    )


def _worth_keeping(node: StatefulNode) -> bool:
    match node:
        case Aggregate():
            return is_additive(node) or derived(node.input) or min_max_calls(node) is not None
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


def _within(node: Node) -> Iterator[Node]:
    if not isinstance(node, Recursion):
        for child in inputs(node):
            yield from _within(child)
    yield node
