"""FROM and WHERE of the analysed tree -> the conditions in them, split at AND. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from applier.sql.pg_tree import query_tree, tree


def on_conditions(items: Sequence[query_tree.FromItem]) -> list[tree.Expression]:
    """Return the ON conditions of all inner and outer joins, split at AND."""
    found: list[tree.Expression] = []
    for item in items:
        if not isinstance(item, query_tree.RangeTblRef):
            found += [*on_conditions((item.left, item.right)), *conjuncts(item.condition)]
    return found


def conjuncts(expression: tree.Expression | None) -> list[tree.Expression]:
    """Split an expression at AND; None has no parts."""
    if expression is None:
        return []
    if isinstance(expression, tree.BoolExpr) and expression.connective is tree.BoolOperator.AND:
        return [part for arg in expression.args for part in conjuncts(arg)]
    return [expression]
