"""VALUES in FROM -> Values, or a Project for each row; members of FROM that look at others.

A member of FROM *leans* on those before it when it looks at their columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from applier.plan.expr import Expr, nullable
from applier.plan.nodes import Field, Node, Project, UnionAll, Values
from applier.sql.analyze.system_catalog import SystemCatalog
from applier.sql.bind.bound import bound_columns
from applier.sql.bind.set_operations import common_type
from applier.sql.pg_tree import query_tree, tree
from applier.sql.pg_tree.rewriting import OuterColumnRewriter
from applier.sql.typing.compile import ExpressionCompiler
from shared_schema.pg_types import PgType


def is_dependent(item: query_tree.FromItem, query: query_tree.Query) -> bool:
    """Whether it is one entry that looks at others."""
    return isinstance(item, query_tree.RangeTblRef) and any(query_tree.lateral_columns(query.entries[item.entry - 1]))


def always_true(condition: tree.Expression) -> bool:
    """Whether it is written out as true."""
    return isinstance(condition, tree.Constant) and bool(condition.datum) and any(condition.datum or b"")


def bind_standalone(entry: query_tree.FunctionEntry | query_tree.ValuesEntry, width: int) -> query_tree.Query:
    """SELECT all columns FROM the entry, which reads the query around it."""

    def column(var: tree.Var, _: int) -> tree.Expression:
        return replace(var, levels_up=var.levels_up + 1)

    change = OuterColumnRewriter(column).expression
    if isinstance(entry, query_tree.FunctionEntry):
        inside: query_tree.RangeTblEntry = replace(entry, calls=tuple(map(change, entry.calls)))
    else:
        inside = replace(entry, rows=tuple(tuple(map(change, row)) for row in entry.rows))
    columns = [tree.Var(1, i, 0, -1, 0, 0, None) for i in range(1, 1 + width)]
    targets = tuple(query_tree.TargetEntry(column, None, 0, False) for column in columns)
    return query_tree.select_from(targets, (inside,), (query_tree.RangeTblRef(1),))


def bind_per_row(node: Node, rows: Sequence[Sequence[Expr]], types: Sequence[PgType]) -> Node:
    """Every row of the node once for each of these rows, which are written over it."""
    branches = [Project(node, (*bound_columns(node), *row)) for row in common_type(rows, types)]
    return branches[0] if len(branches) == 1 else UnionAll(tuple(branches))


def bind_values(entry: query_tree.ValuesEntry, reads: Sequence[int], catalog: SystemCatalog) -> Node:
    """The columns read of VALUES."""
    compiler = ExpressionCompiler(catalog, lambda _: None)
    rows = [[compiler.compile(row[r - 1]) for r in reads] for row in entry.rows]
    met = common_type(rows, [catalog.pg_type(*entry.types[r - 1]) for r in reads])
    across = list(zip(*met, strict=True)) if reads else []
    return Values(tuple(met), tuple(Field(column[0].type, any(nullable(e) for e in column)) for column in across))
