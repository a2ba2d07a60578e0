"""What a query that reads the query around it answers, for all rows it is asked for at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from applier.plan.expr import Col, Expr
from applier.plan.nodes import Aggregate, Node, row_key
from applier.sql.analyze.system_catalog import SystemCatalog
from applier.sql.bind.bound import BoundQuery, bound_columns, project_columns
from applier.sql.decorrelate.null_safe import Pairs, null_safe_pairs
from applier.sql.decorrelate.over_domain import evaluate_over_domain
from applier.sql.pg_tree import query_tree, tree
from applier.sql.pg_tree.flatten import Flattener
from applier.sql.typing.compile import ExpressionCompiler, Scope

Levels = tuple[query_tree.Query, ...]
BuildQuery = Callable[[query_tree.Query, Sequence[int], Levels], BoundQuery]


@dataclass(frozen=True, slots=True)
class OuterQuery:
    """The rows a query is asked for: their node, and what an expression of theirs is.

    `base` are the same rows before the answers of other subqueries were put beside them.
    """

    node: Node
    base: Node
    scope: Scope
    levels: Levels


@dataclass(frozen=True, slots=True)
class DomainResult:
    """The rows of a query, each beside the given row it is for: first its own columns, then the given ones."""

    node: Node
    width: int
    asked_with: tuple[Expr, ...]
    """Over the rows around it, one for each given column."""
    places: dict[tuple[int, int], int]

    @property
    def own(self) -> tuple[Expr, ...]:
        """The columns of the query itself."""
        return bound_columns(self.node)[: self.width]

    @property
    def given(self) -> tuple[Expr, ...]:
        """What tells for which row a row is."""
        return bound_columns(self.node)[self.width :]

    @property
    def pairs(self) -> Pairs:
        """What joins them to the rows around."""
        return null_safe_pairs(zip(self.asked_with, self.given, strict=True))

    @property
    def single(self) -> bool:
        """Whether there is never more than one row for a given one."""
        key = row_key(self.node)
        return key is not None and all(i >= self.width for i in key)

    def scope(self, expression: tree.Expression) -> Expr | None:
        """What the columns of a test are: those of the result, and those of the rows around."""
        if not isinstance(expression, tree.Var):
            return None
        if expression.entry == tree.RESULT:
            return self.own[expression.number - 1]
        place = self.places.get((expression.entry, expression.number))
        return None if place is None else self.given[place - 1]


class DependentQueries:
    """Asks queries for all rows at once; `query` builds them."""

    def __init__(self, catalog: SystemCatalog, query: BuildQuery) -> None:
        self._catalog = catalog
        self._query = query

    def answers(
        self, around: OuterQuery, query: query_tree.Query, needed: Sequence[int], also: Sequence[tree.Var] = ()
    ) -> DomainResult:
        """The needed columns of the query; `also` are columns of the rows around that somebody compares them with."""
        flat, compiler = Flattener(around.levels[-1].entries), ExpressionCompiler(self._catalog, around.scope)
        asked: dict[Expr, tree.Var] = {}
        places: dict[tuple[int, int], int] = {}
        for var in (*query_tree.outer_columns(query), *also):
            if (var.entry, var.number) not in places:
                value = compiler.compile(flat(var))
                asked.setdefault(value, var)
                places[var.entry, var.number] = 1 + list(asked).index(value)
        given = _each_once(around.base, tuple(asked))
        alone = evaluate_over_domain(query, list(asked.values()), places, given)
        built = self._query(alone, [*needed, *alone.domain_targets], around.levels)
        return DomainResult(project_columns(built.node, built.exprs), len(needed), tuple(asked), places)

    def beside(self, around: OuterQuery, query: query_tree.Query, needed: Sequence[int]) -> Node | None:
        """The rows around, each as often as the query has rows for it, with the needed columns after their own.

        The rows themselves are given to the query where it neither groups nor compares its rows; None where it does.
        """
        if not _row_by_row(query):
            return None
        flat, compiler = Flattener(around.levels[-1].entries), ExpressionCompiler(self._catalog, around.scope)
        shown, places = bound_columns(around.base), {}
        for var in query_tree.outer_columns(query):
            value = compiler.compile(flat(var))
            if not isinstance(value, Col):
                return None
            places[var.entry, var.number] = 1 + value.ordinal
        given = [tree.Var(0, i, c.type.pg.oid, c.type.pg.typmod, 0, 0, None) for i, c in enumerate(shown, 1)]
        alone = evaluate_over_domain(query, given, places, around.base)
        built = self._query(alone, [*alone.domain_targets, *needed], around.levels)
        return project_columns(built.node, built.exprs)


def _each_once(node: Node, values: tuple[Expr, ...]) -> Node:
    """Every combination of these values once."""
    key = row_key(node)
    unique = key is not None and set(key) <= {value.ordinal for value in values if isinstance(value, Col)}
    return project_columns(node, values) if unique else Aggregate(node, values, ())


def _row_by_row(query: query_tree.Query) -> bool:
    """Whether what it makes of some given rows does not depend on what others are given."""
    if query.is_grouped or query.distinct or query.windows or query.limit is not None:
        return False
    if query.union is None:
        return True
    keeps = query.union.kind is query_tree.SetOperationType.UNION and query.union.keeps_duplicates
    branches = (query.entries[number - 1] for number in query.union.entries())
    return keeps and all(isinstance(b, query_tree.SubqueryEntry) and _row_by_row(b.query) for b in branches)


def never_empty(query: query_tree.Query) -> bool:
    """Whether it has a row whatever it is asked with."""
    if (
        query.is_grouped
        or query.limit is not None
        or query.where is not None
        or query.match_conditions
        or query.has_set_functions
    ):
        return False
    if query.union is not None:
        first = query.entries[next(query.union.entries()) - 1]
        keeps = query.union.kind is query_tree.SetOperationType.UNION
        return keeps and isinstance(first, query_tree.SubqueryEntry) and never_empty(first.query)
    written = (isinstance(i, query_tree.RangeTblRef) and query.entries[i.entry - 1] for i in query.items)
    return all(isinstance(entry, query_tree.ValuesEntry) for entry in written)
