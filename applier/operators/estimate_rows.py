"""A plan node -> an upper estimate of its number of rows, from the relations that it reads. Pure."""

from __future__ import annotations

from applier.operators.linear_prefix import linear_prefix
from applier.operators.support.inputs import Inputs
from applier.plan.nodes import Filter, Node, Project, SemiJoin, TopK, Values, Window


def estimate_rows(node: Node, inputs: Inputs) -> int | None:
    """Return about how many rows the node has at most; None for joins, unions and others, which are not estimated."""
    if (found := linear_prefix(node)) is not None:
        return inputs.rows(*found)
    match node:
        case Values():
            return len(node.rows)
        case Filter() | Project() | TopK() | Window():
            return estimate_rows(node.input, inputs)
        case SemiJoin():
            return estimate_rows(node.left, inputs)
        case _:
            return None
