"""About how many rows a node has, from what it reads. Pure."""

from __future__ import annotations

from applier.operators.linear_prefix import leaf
from applier.operators.support.inputs import Inputs
from applier.plan.nodes import Filter, Node, Project, SemiJoin, TopK, Values, Window


def size_of(node: Node, inputs: Inputs) -> int | None:
    """At most so many, except that nobody counts what joins and sets multiply: None."""
    if (found := leaf(node)) is not None:
        return inputs.rows(*found)
    match node:
        case Values():
            return len(node.rows)
        case Filter() | Project() | TopK() | Window():
            return size_of(node.input, inputs)
        case SemiJoin():
            return size_of(node.left, inputs)
        case _:
            return None
