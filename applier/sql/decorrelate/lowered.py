"""The result of decorrelating one query: a node, and the query's columns as expressions over it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from applier.plan.expr import Col, Expr, map_columns
from applier.plan.nodes import Node, Project, fields


@dataclass(frozen=True, slots=True)
class Lowered:
    """A node, and the query's columns and those of its domain as expressions over it."""

    node: Node
    exprs: tuple[Expr, ...]
    domain: tuple[Expr, ...] = ()


def resolve_columns(expr: Expr, of: Callable[[Col], Expr]) -> Expr:
    """Return a bound expression with each column replaced; a column that is read as another type keeps that type."""

    def column(reference: Col) -> Expr:
        found = of(reference)
        return found if found.type == reference.type else replace(found, type=reference.type)

    return map_columns(expr, column)


def resolve_over(expr: Expr, columns: Sequence[Expr]) -> Expr:
    """Return a bound expression over the columns of a query, with these columns."""
    return resolve_columns(expr, lambda reference: columns[reference.ordinal])


def project_columns(node: Node, exprs: tuple[Expr, ...]) -> Node:
    """Put a Project on the node; return the node itself when the Project would change nothing."""
    plain = [e.ordinal if isinstance(e, Col) else -1 for e in exprs]
    same_types = all(e.type == f.type for e, f in zip(exprs, fields(node), strict=False))
    return node if plain == list(range(len(fields(node)))) and same_types else Project(node, exprs)


def bound_columns(node: Node) -> tuple[Col, ...]:
    """Return the node's own columns as expressions over it."""
    return tuple(Col(i, field.type, field.nullable) for i, field in enumerate(fields(node)))
