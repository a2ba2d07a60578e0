"""A plan node -> the relation and the linear map that it consists of: the part of a plan that can be arranged."""

from __future__ import annotations

from functools import partial
from typing import assert_never

from applier.operators.filter import apply_filter
from applier.operators.project import apply_project
from applier.operators.repeat import apply_repeat
from applier.operators.support.inputs import LinearMap, identity_map
from applier.plan.nodes import Filter, Node, Project, Repeat, Scan
from applier.zset import ZSet


def linear_prefix(node: Node) -> tuple[Scan, LinearMap] | None:
    """Return the relation and the linear map of the node; None where the node is more than that."""
    match node:
        case Scan():
            return node, identity_map
        case Filter() | Project():
            below = linear_prefix(node.input)
            return None if below is None else (below[0], partial(_apply_after, node, below[1]))
        case _:
            return None


def _apply_after(node: Filter | Project, below: LinearMap, zset: ZSet) -> ZSet:
    return apply_linear(node, below(zset))


def apply_linear(node: Filter | Project | Repeat, zset: ZSet) -> ZSet:
    """Apply the node to a Z-set."""
    match node:
        case Filter():
            return apply_filter(node, zset)
        case Project():
            return apply_project(node, zset)
        case Repeat():
            return apply_repeat(node, zset)
        case _:
            assert_never(node)
