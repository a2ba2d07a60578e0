"""An expression of a query and its columns -> a plan expression: its parts are resolved, then the whole is typed."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from applier.plan.expr import Expr
from applier.sql.catalog_snapshot import CatalogSnapshot
from applier.sql.pg_tree import tree, walk
from applier.sql.typing.compile import compile_expression

Resolve = Callable[[tree.Expression], Expr | None]
"""Returns the column that an expression is at this point of the binding; None when it is computed from its parts."""

_RESOLVED_AS_A_WHOLE = (tree.Aggref, tree.WindowFunc, tree.GroupingFunc, tree.SetReturningExpr, tree.SubLink)
"""Expressions whose parts belong to a node below: without a column of their own they are refused."""


class ExpressionBinder:
    """Binds expressions over the columns that `resolve` knows when it is asked."""

    def __init__(self, catalog: CatalogSnapshot, resolve: Resolve) -> None:
        self._catalog = catalog
        self._resolve = resolve

    def bind(self, expression: tree.Expression) -> Expr:
        """Bind an expression; raises Refused when any part of it is not proven."""
        return compile_expression(expression, dict(self._resolve_parts(expression)), self._catalog)

    def _resolve_parts(self, expression: tree.Expression) -> Iterator[tuple[int, Expr]]:
        """Yield the largest parts that are columns, by identity."""
        if (found := self._resolve(expression)) is not None:
            yield id(expression), found
        elif not isinstance(expression, _RESOLVED_AS_A_WHOLE):
            for part in walk.arguments(expression):
                yield from self._resolve_parts(part)
