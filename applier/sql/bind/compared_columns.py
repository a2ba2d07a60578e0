"""The columns of UNION, INTERSECT or EXCEPT -> the keys by which their rows are compared."""

from __future__ import annotations

from collections.abc import Sequence

from applier.plan.expr import Expr
from applier.sql.bind.group_key import check_key, group_key
from applier.sql.bound.nodes import GroupKey
from applier.sql.catalog_snapshot import CatalogSnapshot
from applier.sql.pg_tree import query_tree, tree


def union_keys(
    operation: query_tree.SetOperation, columns: Sequence[Expr], catalog: CatalogSnapshot
) -> tuple[GroupKey, ...]:
    """Return the keys by which the rows of a UNION are compared."""
    pairs = zip(columns, _compared_columns(operation), strict=True)
    return tuple(group_key(expr, *column, catalog) for expr, column in pairs)


def check_columns(operation: query_tree.SetOperation, columns: Sequence[Expr], catalog: CatalogSnapshot) -> None:
    """Refuse columns whose equal values may have different representations."""
    for expr, column in zip(columns, _compared_columns(operation), strict=True):
        check_key(expr, *column, catalog, operation.kind.name)


def _compared_columns(operation: query_tree.SetOperation) -> list[tuple[tree.Expression, query_tree.GroupItem]]:
    return [
        (tree.Var(0, 1, c.type, c.typmod, c.collation, 0, None), query_tree.GroupItem(0, c.equality))
        for c in operation.columns
    ]
