"""A query level on its way to a plan: a node, and what over it are the query's columns. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from applier.plan.expr import Col, Expr
from applier.plan.nodes import Node, Project, fields


@dataclass(frozen=True, slots=True)
class BoundQuery:
    """A node and the expressions over it that are the query's columns."""

    node: Node
    exprs: tuple[Expr, ...]


def project_columns(node: Node, exprs: tuple[Expr, ...]) -> Node:
    """A Project, left out where it would change nothing."""
    plain = [e.ordinal if isinstance(e, Col) else -1 for e in exprs]
    same_types = all(e.type == f.type for e, f in zip(exprs, fields(node), strict=False))
    return node if plain == list(range(len(fields(node)))) and same_types else Project(node, exprs)


def bound_columns(node: Node) -> tuple[Col, ...]:
    """The node's own columns as expressions over it."""
    return tuple(Col(i, field.type, field.nullable) for i, field in enumerate(fields(node)))
