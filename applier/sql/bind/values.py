"""VALUES in FROM -> a Values node, or one Project per row when it reads other FROM items.

A FROM item is LATERAL here when it reads columns of the items before it, also where the word LATERAL is optional.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from applier.plan.expr import Expr, nullable
from applier.plan.nodes import Field, Node, Project, UnionAll, Values
from applier.sql.bind.bound import bound_columns
from applier.sql.bind.set_operations import unify_columns
from applier.sql.catalog_snapshot import CatalogSnapshot
from applier.sql.pg_tree import query_tree, tree
from applier.sql.pg_tree.rewriting import OuterColumnRewriter
from applier.sql.typing.compile import ExpressionCompiler
from shared_schema.pg_types import PgType


def is_lateral(item: query_tree.FromItem, query: query_tree.Query) -> bool:
    """Whether the FROM item is a single entry that reads columns of other entries."""
    return isinstance(item, query_tree.RangeTblRef) and any(query_tree.lateral_columns(query.entries[item.entry - 1]))


def is_true_literal(condition: tree.Expression) -> bool:
    """Whether the condition is the literal true."""
    return isinstance(condition, tree.Constant) and bool(condition.datum) and any(condition.datum or b"")


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


def cross_join_values(node: Node, rows: Sequence[Sequence[Expr]], types: Sequence[PgType]) -> Node:
    """Join every row of the node with each of these rows, which are expressions over the node."""
    branches = [Project(node, (*bound_columns(node), *row)) for row in unify_columns(rows, types)]
    return branches[0] if len(branches) == 1 else UnionAll(tuple(branches))


def bind_values(entry: query_tree.ValuesEntry, reads: Sequence[int], catalog: CatalogSnapshot) -> Node:
    """Bind the columns of VALUES that are read."""
    compiler = ExpressionCompiler(catalog, lambda _: None)
    rows = [[compiler.compile(row[r - 1]) for r in reads] for row in entry.rows]
    unified = unify_columns(rows, [catalog.pg_type(*entry.types[r - 1]) for r in reads])
    columns = list(zip(*unified, strict=True)) if reads else []
    return Values(tuple(unified), tuple(Field(column[0].type, any(nullable(e) for e in column)) for column in columns))
