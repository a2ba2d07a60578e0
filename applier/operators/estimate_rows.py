"""A plan node -> an upper estimate of its number of rows, from the relations that it reads. Pure."""

from __future__ import annotations

from typing import TypeAlias

from applier.operators.linear_prefix import linear_prefix
from applier.operators.support.inputs import Inputs, LinearMap
from applier.plan.nodes import Filter, Node, Project, Scan, SemiJoin, TopK, Values, Window

SizeSource: TypeAlias = tuple[Scan, LinearMap] | int | None
"""What decides about how many rows a node has at most: a relation after a linear map, or a number."""


def size_source(node: Node) -> SizeSource:
    """Return what bounds the rows of the node; None for joins, unions and others, which are not estimated."""
    if (found := linear_prefix(node)) is not None:
        return found
    match node:
        case Values():
            return len(node.rows)
        case Filter() | Project() | TopK() | Window():
            return size_source(node.input)
        case SemiJoin():
            return size_source(node.left)
        case _:
            return None


def estimate_rows(source: SizeSource, inputs: Inputs) -> int | None:
    """Return about how many rows there are at most; None when it is not known."""
    return inputs.rows(*source) if isinstance(source, tuple) else source
