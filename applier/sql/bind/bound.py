"""The result of binding one query level: a node, and the query's columns as expressions over it. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from applier.plan.expr import Col, Expr
from applier.plan.nodes import Node, Project, fields


@dataclass(frozen=True, slots=True)
class BoundQuery:
    """A node, and the query's columns as expressions over it."""

    node: Node
    exprs: tuple[Expr, ...]


def project_columns(node: Node, exprs: tuple[Expr, ...]) -> Node:
    """Put a Project on the node; return the node itself when the Project would change nothing."""
    plain = [e.ordinal if isinstance(e, Col) else -1 for e in exprs]
    same_types = all(e.type == f.type for e, f in zip(exprs, fields(node), strict=False))
    return node if plain == list(range(len(fields(node)))) and same_types else Project(node, exprs)


def bound_columns(node: Node) -> tuple[Col, ...]:
    """Return the node's own columns as expressions over it."""
    return tuple(Col(i, field.type, field.nullable) for i, field in enumerate(fields(node)))
