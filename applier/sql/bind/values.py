"""VALUES or functions in FROM -> SELECT * FROM them, for a join that needs a query. Pure."""

from __future__ import annotations

from dataclasses import replace

from applier.sql.pg_tree import query_tree, tree
from applier.sql.pg_tree.rewriting import OuterColumnRewriter


def wrap_in_subquery(entry: query_tree.FunctionEntry | query_tree.ValuesEntry, width: int) -> query_tree.Query:
    """Build SELECT all columns FROM the entry, which then reads the other items as its outer query."""

    def column(var: tree.Var, _: int) -> tree.Expression:
        return replace(var, levels_up=var.levels_up + 1)

    rewrite = OuterColumnRewriter(column).expression
    if isinstance(entry, query_tree.FunctionEntry):
        inner: query_tree.RangeTblEntry = replace(entry, calls=tuple(map(rewrite, entry.calls)))
    else:
        inner = replace(entry, rows=tuple(tuple(map(rewrite, row)) for row in entry.rows))
    columns = [tree.Var(1, i, 0, -1, 0, 0, None) for i in range(1, 1 + width)]
    targets = tuple(query_tree.TargetEntry(column, None, 0, False) for column in columns)
    return query_tree.select_from(targets, (inner,), (query_tree.RangeTblRef(1),))
