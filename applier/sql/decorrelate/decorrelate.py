"""Bound plan -> plan: dependent joins become joins over the domain of outer values. Pure.

Each query is decorrelated *for a domain*: the rows that hold the values of its outer columns. A query that reads no
outer query has none. The rules of dependent joins try the cheaper forms first, and evaluate over the domain otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from typing import assert_never

from applier.plan.expr import Expr
from applier.plan.keys import row_key
from applier.plan.limits import PlanBudget
from applier.plan.nodes import Filter, Node, Unnest, fields
from applier.sql.bound.columns import BoundColumn, SetCol, SubqueryCol
from applier.sql.bound.nodes import BoundQuery, Distinct, GroupBy, GroupKey, Select, SetOp, TopRows
from applier.sql.decorrelate.from_where import join_subqueries, lower_from_where
from applier.sql.decorrelate.grouping import aggregate_by, lower_groups, map_key
from applier.sql.decorrelate.items import map_function
from applier.sql.decorrelate.lowered import Lowered, bound_columns, project_columns, resolve_over
from applier.sql.decorrelate.rules import join_result
from applier.sql.decorrelate.scope import Domain, OuterRows, Rows, Scope
from applier.sql.decorrelate.set_operations import lower_set_operation
from applier.sql.decorrelate.top_rows import keep_top_rows
from applier.sql.decorrelate.windows import lower_targets
from applier.sql.refusal import Reason, Refused


def decorrelate(query: BoundQuery, budget: PlanBudget) -> Node:
    """Return the plan of a bound query; its columns are those of the query. Raises QueryTooLarge beyond the budget."""
    lowered = _Decorrelator(budget).query(query)
    return project_columns(lowered.node, lowered.exprs)


class _Decorrelator:
    """Decorrelates the queries of one plan; holds only the numbers of its recursions, and what it may use."""

    def __init__(self, budget: PlanBudget) -> None:
        self._budget = budget
        self.work_tables: dict[int, int] = {}
        self._recursions = count(1)

    def query(self, query: BoundQuery, domain: Domain | None = None, domain_at: int | None = None) -> Lowered:
        """Decorrelate a query for all rows of the domain, which read its outer columns.

        `domain_at` says before which of its columns those of the domain are computed; None is after the last.
        """
        lowered = self._lower(query, domain, domain_at)
        # A domain holds the outer query once more, so each level may double the plan.
        self._budget.check(lowered.node)
        return lowered

    def _lower(self, query: BoundQuery, domain: Domain | None, domain_at: int | None) -> Lowered:
        match query:
            case Select():
                return self._select(query, domain, domain_at)
            case SetOp():
                return lower_set_operation(self, query, domain, domain_at)
            case Distinct():
                return _keep_distinct(query, self.query(query.input, domain))
            case TopRows():
                return keep_top_rows(query, self.query(query.input, domain, query.width))
            case _:
                assert_never(query)

    def rows(self, select: Select, domain: Domain | None, where: Sequence[Expr]) -> Rows:
        """Join the FROM items of a Select, with these conditions of its WHERE."""
        return lower_from_where(self, select, domain, where)

    def join_result(self, outer: OuterRows, subquery: int) -> tuple[Node, Expr]:
        """Join the result of a dependent join of the outer Select; return the node and the result over it."""
        return join_result(self, outer, outer.scope.select.subqueries[subquery])

    def next_recursion(self) -> int:
        """Return an unused number for a recursion."""
        return next(self._recursions)

    def _select(self, select: Select, domain: Domain | None, domain_at: int | None) -> Lowered:
        if domain is not None and select.group is not None and select.group.sets is not None:
            construct, hint = "GROUPING SETS in a correlated subquery", "join the subquery in FROM"
            raise Refused(Reason.CONSTRUCT, construct, hint=hint, token=domain.at)
        rows = self.rows(select, domain, select.where)
        if select.set_keys:
            width, resolve = len(fields(rows.node)), rows.scope.resolve
            functions = tuple(map_function(f, resolve) for f in select.set_keys)
            unnested = Unnest(rows.node, functions, ordinality=False, outer=False)
            rows = replace(rows, node=unnested, sets=bound_columns(unnested)[width:])
        if select.group is None:
            rows = join_subqueries(self, rows, select.target_subqueries)
            node, scope = rows.node, rows.scope
        else:
            rows = join_subqueries(self, rows, select.group.subqueries)
            node, scope = self._above_groups(rows, select.group, select)
        if select.set_functions:
            node, scope = _unnest(node, scope)
        return lower_targets(node, scope, domain_at)

    def _above_groups(self, rows: Rows, group: GroupBy, select: Select) -> tuple[Node, Scope]:
        """Group the rows; then HAVING, and the dependent joins in HAVING and in the targets."""
        below = rows.scope
        domain = None if rows.domain is None else (rows.domain, below.domain_columns)
        groups = lower_groups(rows.node, group, below.resolve, domain)
        known = Scope(select, groups.find, rows.domain, groups.domain)
        node, base, results = groups.node, groups.node, dict[int, Expr]()

        def find(column: BoundColumn) -> Expr | None:
            return results.get(column.subquery) if isinstance(column, SubqueryCol) else groups.find(column)

        scope = replace(known, find=find)
        for subquery in group.having_subqueries:
            node, results[subquery] = self.join_result(OuterRows(node, base, known), subquery)
        if group.having is not None:
            node = base = Filter(node, scope.resolve(group.having))
        for subquery in select.target_subqueries:
            if subquery not in results:
                node, results[subquery] = self.join_result(OuterRows(node, base, known), subquery)
        return node, scope


def _unnest(node: Node, scope: Scope) -> tuple[Node, Scope]:
    """Unnest the set-returning functions of the select list in parallel over the node."""
    select, width = scope.select, len(fields(node))
    functions = tuple(map_function(f, scope.resolve) for f in select.set_functions)
    unnested = Unnest(node, functions, ordinality=False, outer=False)
    added, first = bound_columns(unnested)[width:], len(select.set_keys)

    def find(column: BoundColumn) -> Expr | None:
        match column:
            case SetCol(number=number) if number >= first:
                return added[number - first]
            case _:
                return scope.find(column)

    return unnested, replace(scope, find=find)


def _keep_distinct(query: Distinct, below: Lowered) -> Lowered:
    """Keep one row per combination of all columns, and per row of the domain."""
    exprs = (*below.exprs, *below.domain)
    node = project_columns(below.node, exprs)
    if row_key(node) is None:
        if isinstance(query.keys, Refused):
            raise query.keys
        keys = [map_key(key, lambda expr: resolve_over(expr, below.exprs)) for key in query.keys]
        node = aggregate_by(below.node, [*keys, *(GroupKey(column, column) for column in below.domain)], ())
    shown, width = bound_columns(node), len(below.exprs)
    return Lowered(node, tuple(shown[i] for i in query.output), shown[width:])
