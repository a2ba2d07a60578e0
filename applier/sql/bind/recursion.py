"""WITH RECURSIVE -> Recursion.

A recursive WITH query is a UNION of a base and a step. The step reads the query itself, and reads there the rows of the
last round, the work table. Base and step must have columns of the same physical types. When the step makes a numeric
wider, the recursion is bound again with the wider type. A numeric that grows in every round has no physical type.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count

from applier.plan.expr import Expr, ValueType
from applier.plan.nodes import Field, Node, Recursion, WorkTable
from applier.sql.bind.bound import BoundQuery, project_columns
from applier.sql.bind.joins import JoinItem
from applier.sql.bind.search_cycle import add_search_cycle
from applier.sql.bind.set_operations import check_columns, unify_columns
from applier.sql.catalog_snapshot import CatalogSnapshot
from applier.sql.pg_tree import query_tree
from applier.sql.pg_tree.fields import unknown
from applier.sql.refusal import Reason, Refused

Levels = tuple[query_tree.Query, ...]
BindBranch = Callable[[int | query_tree.SetOperation, Sequence[int], Levels], BoundQuery]
"""Binds a branch of a set operation; returns the needed columns."""
_MAX_WIDENINGS = 3
_HINT = "write base UNION [ALL] step, where only the step reads the recursive query itself"


class RecursionBinder:
    """Binds recursive WITH queries; inside the step, a reference to the query is its work table."""

    def __init__(self, catalog: CatalogSnapshot, bind_branch: BindBranch) -> None:
        self._catalog = catalog
        self._bind_branch = bind_branch
        self._numbers = count(1)
        self._work_tables: dict[tuple[int, str], WorkTable] = {}

    def bind_reference(self, number: int, name: str, reads: Sequence[int], holders: Levels) -> JoinItem:
        """Bind a reference to a recursive WITH query as a FROM item."""
        work_table = self._work_tables.get((id(holders[-1]), name))
        ordinals = {r: r - 1 for r in reads}
        return JoinItem(number, work_table or self._bind_recursion(name, holders), ordinals)

    def _bind_recursion(self, name: str, holders: Levels) -> Node:
        query, search_cycle = holders[-1].ctes[name], holders[-1].search_cycles.get(name)
        if search_cycle is not None:
            query = add_search_cycle(query, search_cycle, name, self._catalog)
        union, levels = query.union, (*holders, query)
        if (
            union is None
            or union.kind is not query_tree.SetOperationType.UNION
            or query.limit is not None
            or query.order
        ):
            raise Refused(Reason.CONSTRUCT, "WITH RECURSIVE in this form", hint=_HINT)
        match union.branches:
            case (first, second):
                return self._bind_fixpoint((id(holders[-1]), name), union, levels, (first, second))
            case _:
                raise unknown("WITH RECURSIVE with several branches")

    def _bind_fixpoint(
        self,
        key: tuple[int, str],
        union: query_tree.SetOperation,
        levels: Levels,
        branches: tuple[int | query_tree.SetOperation, int | query_tree.SetOperation],
    ) -> Node:
        all_columns, number = range(len(union.columns)), next(self._numbers)
        pg = [self._catalog.pg_type(column.type, column.typmod) for column in union.columns]
        base = self._bind_branch(branches[0], all_columns, levels)
        types = [e.type for e in unify_columns([base.exprs], pg)[0]]
        for _ in range(_MAX_WIDENINGS):
            step = self._bind_step(key, WorkTable(number, tuple(Field(t, True) for t in types)), levels, branches[1])
            first, second = unify_columns([base.exprs, step.exprs], pg)
            found = _types(first)
            if found == types:
                sides = project_columns(base.node, first), project_columns(step.node, second)
                if not union.keeps_duplicates:
                    check_columns(union, sides[0], self._catalog)
                return Recursion(number, *sides, distinct=not union.keeps_duplicates)
            types = found
        construct = "WITH RECURSIVE with a numeric column that gets more digits in every round"
        raise Refused(Reason.TYPE, construct, hint="cast the column to one numeric(p,s) in both branches")

    def _bind_step(
        self, key: tuple[int, str], work_table: WorkTable, levels: Levels, branch: int | query_tree.SetOperation
    ) -> BoundQuery:
        self._work_tables[key] = work_table
        try:
            return self._bind_branch(branch, range(len(work_table.fields)), levels)
        finally:
            del self._work_tables[key]


def _types(exprs: Sequence[Expr]) -> list[ValueType]:
    return [expr.type for expr in exprs]
