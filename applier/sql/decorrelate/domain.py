"""A correlated subquery and its outer rows -> the rows of the subquery for all outer rows, evaluated once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from applier.plan.expr import Col, Expr
from applier.plan.keys import row_key
from applier.plan.nodes import Aggregate, Node
from applier.sql.bind.bound import BoundQuery, bound_columns, project_columns
from applier.sql.catalog_snapshot import CatalogSnapshot
from applier.sql.decorrelate.null_safe import Pairs, null_safe_pairs
from applier.sql.decorrelate.over_domain import evaluate_over_domain
from applier.sql.pg_tree import query_tree, tree
from applier.sql.pg_tree.flatten import Flattener
from applier.sql.typing.compile import ExpressionCompiler, Scope

Levels = tuple[query_tree.Query, ...]
BindQuery = Callable[[query_tree.Query, Sequence[int], Levels], BoundQuery]


@dataclass(frozen=True, slots=True)
class OuterQuery:
    """The outer query of a subquery: the node of its rows, and the scope of expressions over them.

    `base` has the same rows before the results of other subqueries were joined to them.
    """

    node: Node
    base: Node
    scope: Scope
    levels: Levels


@dataclass(frozen=True, slots=True)
class DomainResult:
    """The rows of a subquery for each row of the domain: the columns of the subquery, then those of the domain."""

    node: Node
    width: int
    outer_values: tuple[Expr, ...]
    """One expression over the outer rows for each column of the domain."""
    positions: dict[tuple[int, int], int]

    @property
    def result_columns(self) -> tuple[Expr, ...]:
        """The columns of the subquery."""
        return bound_columns(self.node)[: self.width]

    @property
    def domain_columns(self) -> tuple[Expr, ...]:
        """The columns of the domain: they say for which outer values a row is."""
        return bound_columns(self.node)[self.width :]

    @property
    def join_keys(self) -> Pairs:
        """The null-safe join keys between the outer rows and these rows."""
        return null_safe_pairs(zip(self.outer_values, self.domain_columns, strict=True))

    @property
    def has_single_row(self) -> bool:
        """Whether there is at most one row per row of the domain."""
        key = row_key(self.node)
        return key is not None and all(i >= self.width for i in key)

    def resolve(self, expression: tree.Expression) -> Expr | None:
        """Resolve the columns of a test: those of the subquery's result and those of the outer query."""
        if not isinstance(expression, tree.Var):
            return None
        if expression.entry == tree.RESULT:
            return self.result_columns[expression.number - 1]
        position = self.positions.get((expression.entry, expression.number))
        return None if position is None else self.domain_columns[position - 1]


class DependentQueries:
    """Evaluates correlated subqueries once for all outer rows; `bind_query` binds a query."""

    def __init__(self, catalog: CatalogSnapshot, bind_query: BindQuery) -> None:
        self._catalog = catalog
        self._bind_query = bind_query

    def evaluate(
        self, outer: OuterQuery, query: query_tree.Query, needed: Sequence[int], compared: Sequence[tree.Var] = ()
    ) -> DomainResult:
        """Evaluate the needed columns of a subquery over its domain; `compared` adds more outer columns to it."""
        flatten, compiler = Flattener(outer.levels[-1].entries), ExpressionCompiler(self._catalog, outer.scope)
        values: dict[Expr, tree.Var] = {}
        positions: dict[tuple[int, int], int] = {}
        for var in (*query_tree.outer_columns(query), *compared):
            if (var.entry, var.number) not in positions:
                value = compiler.compile(flatten(var))
                values.setdefault(value, var)
                positions[var.entry, var.number] = 1 + list(values).index(value)
        domain = _distinct_values(outer.base, tuple(values))
        rewritten = evaluate_over_domain(query, list(values.values()), positions, domain)
        built = self._bind_query(rewritten, [*needed, *rewritten.domain_targets], outer.levels)
        return DomainResult(project_columns(built.node, built.exprs), len(needed), tuple(values), positions)

    def join_rows(self, outer: OuterQuery, query: query_tree.Query, needed: Sequence[int]) -> Node | None:
        """Join each outer row with the subquery's rows for it; the needed columns follow those of the outer row.

        The outer rows themselves are the domain. That is possible only where the subquery neither groups nor compares
        its rows; otherwise the result is None.
        """
        if not _is_row_by_row(query):
            return None
        flatten, compiler = Flattener(outer.levels[-1].entries), ExpressionCompiler(self._catalog, outer.scope)
        outer_columns, positions = bound_columns(outer.base), {}
        for var in query_tree.outer_columns(query):
            value = compiler.compile(flatten(var))
            if not isinstance(value, Col):
                return None
            positions[var.entry, var.number] = 1 + value.ordinal
        columns = [tree.Var(0, i, c.type.pg.oid, c.type.pg.typmod, 0, 0, None) for i, c in enumerate(outer_columns, 1)]
        rewritten = evaluate_over_domain(query, columns, positions, outer.base)
        built = self._bind_query(rewritten, [*rewritten.domain_targets, *needed], outer.levels)
        return project_columns(built.node, built.exprs)


def _distinct_values(node: Node, values: tuple[Expr, ...]) -> Node:
    """Return every combination of these values once: the domain."""
    key = row_key(node)
    is_unique = key is not None and set(key) <= {value.ordinal for value in values if isinstance(value, Col)}
    return project_columns(node, values) if is_unique else Aggregate(node, values, ())


def _is_row_by_row(query: query_tree.Query) -> bool:
    """Whether the result for one row of the domain does not depend on the other rows."""
    if query.is_grouped or query.distinct or query.windows or query.limit is not None:
        return False
    if query.union is None:
        return True
    keeps = query.union.kind is query_tree.SetOperationType.UNION and query.union.keeps_duplicates
    branches = (query.entries[number - 1] for number in query.union.entries())
    return keeps and all(isinstance(b, query_tree.SubqueryEntry) and _is_row_by_row(b.query) for b in branches)


def is_never_empty(query: query_tree.Query) -> bool:
    """Whether the subquery has at least one row for all outer values."""
    filtered = query.where is not None or query.match_conditions
    if filtered or query.is_grouped or query.limit is not None or query.has_set_functions:
        return False
    if query.union is not None:
        first = query.entries[next(query.union.entries()) - 1]
        keeps = query.union.kind is query_tree.SetOperationType.UNION
        return keeps and isinstance(first, query_tree.SubqueryEntry) and is_never_empty(first.query)
    entries = (isinstance(i, query_tree.RangeTblRef) and query.entries[i.entry - 1] for i in query.items)
    return all(isinstance(entry, query_tree.ValuesEntry) for entry in entries)
