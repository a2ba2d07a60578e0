"""About how many rows a node has, from what it reads. Pure."""

from __future__ import annotations

from applier.operators.inputs import Inputs
from applier.plan.nodes import Filter, Node, Project, Scan, SemiJoin, TopK, Values, Window


def size_of(node: Node, inputs: Inputs) -> int | None:
    """At most so many, except that nobody counts what joins and sets multiply: None."""
    match node:
        case Scan():
            return inputs.rows(node)
        case Values():
            return len(node.rows)
        case Filter() | Project() | TopK() | Window():
            return size_of(node.input, inputs)
        case SemiJoin():
            return size_of(node.left, inputs)
        case _:
            return None
