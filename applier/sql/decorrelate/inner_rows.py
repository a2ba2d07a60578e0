"""The rows of a subquery without its conditions on the outer query, and these conditions. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from applier.plan.expr import Col, Expr, shift
from applier.plan.nodes import Node
from applier.sql.bound.columns import ComputedCol, OuterCol, ResultCol
from applier.sql.bound.nodes import BoundQuery, Select
from applier.sql.decorrelate.lowered import bound_columns, project_columns, resolve_columns
from applier.sql.decorrelate.scope import Decorrelator, Rows, Scope, has_outer_column


@dataclass(frozen=True, slots=True)
class InnerRows:
    """The rows of FROM and WHERE of a subquery, and the conditions of its WHERE that read the outer query."""

    rows: Rows
    correlated: tuple[Expr, ...]

    @property
    def node(self) -> Node:
        """The rows of the subquery."""
        return self.rows.node

    def conditions(self, outer: Scope, width: int) -> list[Expr]:
        """Return the conditions over outer rows, which have `width` columns, joined with these rows."""
        return self.resolve(self.correlated, outer, width)

    def results(self, outer: Scope, width: int) -> list[Expr]:
        """Return the columns of the subquery over the same rows."""
        return self.resolve(self.rows.select.targets, outer, width)

    def resolve(self, exprs: Sequence[Expr], outer: Scope, width: int) -> list[Expr]:
        """Resolve expressions of the subquery over the same rows."""
        own, select = self.rows.scope, self.rows.select

        def column(reference: Col) -> Expr:
            found = select.columns[reference.ordinal]
            match found:
                case OuterCol():
                    return outer.read(found)
                case ComputedCol(expr=expr):
                    return resolve_columns(expr, column)
                case _:
                    return shift(own.column(reference.ordinal), width)

        return [resolve_columns(expr, column) for expr in exprs]


@dataclass(frozen=True, slots=True)
class InnerResult:
    """The result of a subquery that reads no outer query."""

    node: Node

    def conditions(self, _outer: Scope, _width: int) -> list[Expr]:
        """Return no conditions."""
        return []

    def results(self, _outer: Scope, width: int) -> list[Expr]:
        """Return the columns of the subquery over outer rows, which have `width` columns, joined with these rows."""
        return [shift(column, width) for column in bound_columns(self.node)]


def uncorrelated_rows(decorrelator: Decorrelator, select: Select) -> InnerRows:
    """Return the rows of a subquery alone, which reads the outer query only in conditions of its WHERE."""
    correlated = tuple(c for c in select.where if has_outer_column(select, c))
    plain = [c for c in select.where if c not in correlated]
    return InnerRows(decorrelator.rows(select, None, plain), correlated)


def uncorrelated_result(decorrelator: Decorrelator, query: BoundQuery) -> InnerResult:
    """Return the result of a subquery that reads no outer query."""
    lowered = decorrelator.query(query)
    return InnerResult(project_columns(lowered.node, lowered.exprs))


def resolve_test(test: Expr, outer: Scope, results: Sequence[Expr]) -> Expr:
    """Resolve the test of a dependent join: columns of the outer query, and results of the inner query."""

    def column(reference: Col) -> Expr:
        found = outer.select.columns[reference.ordinal]
        return results[found.number] if isinstance(found, ResultCol) else outer.column(reference.ordinal)

    return resolve_columns(test, column)
