"""Subqueries inside expressions -> columns of joins.

A subquery becomes a table of its answers: one row per value of the columns that connect it to the query around it, made
by grouping. Joined to the rows of that query, the answer is a column, or what an empty subquery answers where there is
no row: NULL for a value (0 for a count), false for EXISTS and ANY, true for ALL.

Where equalities connect the two, the groups are those of the subquery's own columns. Where anything else does, they are
the distinct values the rows around it ask with, each joined with the rows of the subquery it sees.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import assert_never

from applier.functions.aggregates.aggregates import COUNT, ONLY_ROW
from applier.plan.expr import (
    BOOL,
    AggregateCall,
    BoolOp,
    Case,
    Coalesce,
    Col,
    Const,
    Expr,
    IsNull,
    Logic,
    nullable,
    renumber,
    shift,
)
from applier.plan.nodes import Aggregate, Join, Node, OuterJoin, Project, SemiJoin, TopK, fields, row_key
from applier.sql.analyze.system_catalog import SystemCatalog
from applier.sql.bind.bound import BoundQuery, bound_columns, project_columns
from applier.sql.bind.grouping import GroupedQuery, bind_group_by
from applier.sql.bind.joins import JoinScope, conjuncts, is_placeable, split_condition
from applier.sql.bind.ordering import literal_number, without_limit
from applier.sql.bind.sort_key import sort_key
from applier.sql.decorrelate.array_subquery import rewrite_to_array_agg
from applier.sql.decorrelate.domain import DependentQueries, OuterQuery
from applier.sql.decorrelate.domain_groups import (
    DomainGroups,
    domain_groups,
    domain_values,
    join_results,
    more_than_one_row,
    test_groups,
)
from applier.sql.decorrelate.over_domain import correlation_of_where, is_correlated
from applier.sql.decorrelate.semi_joins import correlated, into_subquery, outer_part, own_columns
from applier.sql.pg_tree import query_tree, tree, walk
from applier.sql.pg_tree.flatten import Flattener
from applier.sql.refusal import Reason, Refused
from applier.sql.typing.compile import ExpressionCompiler, Scope

Levels = tuple[query_tree.Query, ...]
_HINT = "join the subquery in FROM"


@dataclass(frozen=True, slots=True)
class _Inside:
    """The rows of a subquery: conditions and test are written from inside it."""

    rows: JoinScope
    conditions: tuple[tree.Expression, ...]
    test: tree.Expression | None


class SubqueryJoins:
    """Turns subqueries of expressions into columns; `rows` and `query` build what stands inside them."""

    def __init__(
        self,
        catalog: SystemCatalog,
        rows: Callable[[Levels, Sequence[tree.Expression], Sequence[tree.Expression]], JoinScope],
        query: Callable[[query_tree.Query, Sequence[int], Levels], BoundQuery],
    ) -> None:
        self._catalog = catalog
        self._rows = rows
        self._query = query
        self._dependents = DependentQueries(catalog, query)

    def answer(self, around: OuterQuery, subquery: tree.SubLink) -> tuple[Node, Expr]:
        """The rows around it with more columns, and the answer over those."""
        match subquery.kind:
            case tree.SubLinkType.VALUE:
                return self._value(around, subquery)
            case tree.SubLinkType.ROW:
                return self._row(around, subquery)
            case tree.SubLinkType.ARRAY:
                node, value = self._value(around, rewrite_to_array_agg(subquery, self._catalog))
                return node, Coalesce((value, Const("{}", value.type)), value.type)
            case tree.SubLinkType.EXISTS | tree.SubLinkType.ANY | tree.SubLinkType.ALL:
                return self._truth(around, subquery)
            case _:
                assert_never(subquery.kind)

    def kept(self, around: OuterQuery, condition: tree.Expression) -> Node | None:
        """The rows around for which EXISTS, or NOT of it, holds; None where the condition is another."""
        match condition:
            case tree.SubLink(kind=tree.SubLinkType.EXISTS) as subquery:
                negated = False
            case tree.BoolExpr(tree.BoolOperator.NOT, (tree.SubLink(kind=tree.SubLinkType.EXISTS) as subquery,)):
                negated = True
            case _:
                return None
        if not is_correlated(subquery.query) or subquery.query.limit is not None:
            return None
        answers = self._dependents.answers(around, subquery.query, ())
        return SemiJoin(around.node, answers.node, answers.pairs, None, negated)

    def _value(self, around: OuterQuery, subquery: tree.SubLink) -> tuple[Node, Expr]:
        query = subquery.query
        if not is_correlated(query):
            built = self._query(query, [0], around.levels)
            return _beside(around.node, _single(project_columns(built.node, built.exprs)))
        flat = Flattener(query.entries)
        (target,) = (flat(t.expression) for t in query.targets if not t.hidden)
        hidden = [flat(t.expression) for t in query.targets if t.hidden]
        whole = query.groups or query.having is not None or query.distinct or query.union is not None or query.windows
        if (
            whole
            or query.has_set_functions
            or not self._by_where(around, query)
            or (query.is_grouped and query.limit is not None)
        ):
            node, (value,) = self._only_row(around, subquery, 1)
            return node, value
        if query.is_grouped:
            inside = self._inside(around, subquery, [target])
            groups = self._groups(around, inside, subquery)
            return self._aggregated(around, inside, groups, target)
        if query.limit is not None and not self._is_first(query.limit):
            node, (value,) = self._only_row(around, subquery, 1)
            return node, value
        inside = self._inside(around, subquery, [target, *hidden])
        return self._one_row(around, inside, target, subquery)

    def _row(self, around: OuterQuery, subquery: tree.SubLink) -> tuple[Node, Expr]:
        """The test over the only row; where there is none its columns are NULL, and so is the test."""
        query = subquery.query
        width = sum(not t.hidden for t in query.targets)
        if is_correlated(query):
            node, found = self._only_row(around, subquery, width)
        else:
            built = self._query(query, range(width), around.levels)
            below = project_columns(built.node, built.exprs)
            node = Join(around.node, Aggregate(below, (), _only_rows(bound_columns(below))), (), None)
            found = list(bound_columns(node)[len(fields(around.node)) :])

        def scope(expression: tree.Expression) -> Expr | None:
            if isinstance(expression, tree.Var) and expression.entry == tree.RESULT:
                return found[expression.number - 1]
            return around.scope(expression)

        flat = Flattener(around.levels[-1].entries)
        test = subquery.test if subquery.test is not None else tree.BoolExpr(tree.BoolOperator.AND, ())
        return node, ExpressionCompiler(self._catalog, scope).compile(_flat_test(test, flat))

    def _only_row(self, around: OuterQuery, subquery: tree.SubLink, width: int) -> tuple[Node, list[Expr]]:
        """The columns of the only row there is for a row around, NULL where there is none."""
        answers = self._dependents.answers(around, subquery.query, range(width))
        if answers.single:
            node = OuterJoin(around.node, answers.node, answers.pairs, None, full=False)
            first = len(fields(around.node))
            return node, list(bound_columns(node)[first : first + width])
        return join_results(around.node, domain_groups(answers), _only_rows(answers.own))

    def _by_where(self, around: OuterQuery, query: query_tree.Query) -> bool:
        own, outer = Flattener(query.entries), Flattener(around.levels[-1].entries)
        where = [own(outer_part(c, outer)) for c in conjuncts(query.where)]
        return correlation_of_where(query, [c for c in where if correlated(c)])

    def _is_first(self, limit: query_tree.Limit) -> bool:
        return limit.offset is None and not limit.ties and literal_number(limit.count, "LIMIT", self._catalog) == 1

    def _aggregated(
        self, around: OuterQuery, inside: _Inside, groups: DomainGroups, target: tree.Expression
    ) -> tuple[Node, Expr]:
        below = ExpressionCompiler(self._catalog, _shifted(inside.rows, groups.width))
        grouped = bind_group_by([], [target], None, below, groups.node, catalog=self._catalog, within=groups.keys)
        if grouped.keys:
            raise Refused(Reason.CONSTRUCT, "a column of an outer query beside an aggregate", hint=_HINT)
        calls = tuple(dict.fromkeys(grouped.planned_calls))
        node, found = join_results(around.node, groups, calls)
        scope = _empty_is_zero(grouped, calls, found)
        return node, ExpressionCompiler(self._catalog, scope).compile(target)

    def _one_row(
        self, around: OuterQuery, inside: _Inside, target: tree.Expression, subquery: tree.SubLink
    ) -> tuple[Node, Expr]:
        groups = self._groups(around, inside, subquery)
        below = ExpressionCompiler(self._catalog, _shifted(inside.rows, groups.width))
        value = below.compile(target)
        limit = subquery.query.limit
        if limit is not None:
            groups = self._first(groups, subquery, below)
        elif not _unique(groups):
            # Only rows that somebody asks for may be too many.
            asked = tuple(zip(groups.keys, groups.asked_with, strict=True))
            groups = replace(groups, node=SemiJoin(groups.node, around.base, asked, None, anti=False))
        node, found = join_results(around.node, groups, (AggregateCall(ONLY_ROW, (value,), value.type),))
        return node, found[0]

    def _first(self, groups: DomainGroups, subquery: tree.SubLink, below: ExpressionCompiler) -> DomainGroups:
        query, flat = subquery.query, Flattener(subquery.query.entries)
        by_reference = {t.group_reference: flat(t.expression) for t in query.targets}
        order = tuple(
            sort_key(below.compile(by_reference[item.reference]), by_reference[item.reference], item, self._catalog)
            for item in query.order
        )
        return replace(groups, node=TopK(groups.node, groups.keys, order, 1, 0, ties=False))

    def _truth(self, around: OuterQuery, subquery: tree.SubLink) -> tuple[Node, Expr]:
        query = subquery.query
        if is_correlated(query) and (not query.is_row_wise or not self._by_where(around, query)):
            return self._truth_of_all(around, subquery)
        inside = self._inside(around, subquery, [])
        if inside.test is None:
            groups = self._groups(around, inside, subquery)
            node, (count,) = join_results(around.node, groups, (COUNT,))
            return node, more_than_one_row(count, 0)
        if subquery.kind is tree.SubLinkType.ANY and (found := self._looked_up(around, inside)) is not None:
            return found
        groups = self._groups(around, inside, subquery, test=inside.test)
        test = ExpressionCompiler(self._catalog, self._between(around, inside, groups)).compile(inside.test)
        return test_groups(around.node, groups, test, every=subquery.kind is tree.SubLinkType.ALL)

    def _truth_of_all(self, around: OuterQuery, subquery: tree.SubLink) -> tuple[Node, Expr]:
        """The same where the subquery does more with what it reads outside than to compare it."""
        query, test = subquery.query, subquery.test
        if test is None:
            # Which rows are left out makes no difference to how many are left.
            query, passed = without_limit(query, self._catalog)
            groups = domain_groups(self._dependents.answers(around, query, ()))
            node, (count,) = join_results(around.node, groups, (COUNT,))
            return node, more_than_one_row(count, passed)
        compared = [var for var in walk.variables(test) if var.entry != tree.RESULT]
        width = sum(not t.hidden for t in query.targets)
        answers = self._dependents.answers(around, query, range(width), compared)
        compiled = ExpressionCompiler(self._catalog, answers.scope).compile(test)
        return test_groups(around.node, domain_groups(answers), compiled, every=subquery.kind is tree.SubLinkType.ALL)

    def _looked_up(self, around: OuterQuery, inside: _Inside) -> tuple[Node, Expr] | None:
        """x IN (…) by the hash of x, where nothing but equalities connects it; None where something else does."""
        width = len(fields(around.base))
        compiler = ExpressionCompiler(self._catalog, _both(around.scope, _shifted(inside.rows, width)))
        pairs, residual = split_condition([compiler.compile(c) for c in inside.conditions], width)
        compared, rest = split_condition([compiler.compile(c) for c in conjuncts(inside.test)], width)
        if residual is not None or rest is not None or len(compared) != 1:
            return None
        (ours, theirs), rows = compared[0], inside.rows.node
        asked, keys = tuple(mine for mine, _ in pairs), tuple(key for _, key in pairs)
        node, (equal,) = join_results(around.node, DomainGroups(rows, (*keys, theirs), (*asked, ours), 0), (COUNT,))
        branches: list[tuple[Expr, Expr]] = [(more_than_one_row(equal), Const(True, BOOL))]
        if nullable(ours) or nullable(theirs):
            calls = (COUNT, replace(COUNT, filter=IsNull(theirs, False, BOOL)))
            node, (any_, nulls) = join_results(node, DomainGroups(rows, keys, asked, 0), calls)
            unanswered = BoolOp(Logic.AND, (IsNull(ours, False, BOOL), more_than_one_row(any_)), BOOL)
            branches.append((BoolOp(Logic.OR, (unanswered, more_than_one_row(nulls)), BOOL), Const(None, BOOL)))
        return node, Case(tuple(branches), Const(False, BOOL), BOOL)

    def _inside(self, around: OuterQuery, subquery: tree.SubLink, wanted: Sequence[tree.Expression]) -> _Inside:
        """The subquery's rows by themselves, and what connects them to the query around it."""
        query, outer = subquery.query, Flattener(around.levels[-1].entries)
        own = Flattener(query.entries)
        visible = [t.expression for t in query.targets if not t.hidden]
        where = [own(outer_part(c, outer)) for c in conjuncts(query.where)]
        connecting = [c for c in where if correlated(c)]
        if subquery.kind is tree.SubLinkType.VALUE or query.is_row_wise:
            test = None
            if subquery.test is not None:
                test = own(outer_part(into_subquery(subquery.test, lambda var: visible[var.number - 1]), outer))
            inside = [c for c in where if not correlated(c)]
            asked = own_columns([*connecting, *(() if test is None else (test,))])
            rows = self._rows((*around.levels, query), [*asked, *wanted], inside)
            return _Inside(rows, tuple(connecting), test)
        built = self._query(query, range(len(visible)) if subquery.test is not None else (), around.levels)
        places = {(tree.RESULT, i + 1): i for i in range(len(built.exprs))}
        rows = JoinScope(project_columns(built.node, built.exprs), places, frozenset({tree.RESULT}))
        test = None if subquery.test is None else outer_part(into_subquery(subquery.test, lambda var: var), outer)
        return _Inside(rows, (), test)

    def _groups(
        self, around: OuterQuery, inside: _Inside, subquery: tree.SubLink, test: tree.Expression | None = None
    ) -> DomainGroups:
        width = len(fields(around.base))
        scope = _both(around.scope, _shifted(inside.rows, width))
        conditions = [ExpressionCompiler(self._catalog, scope).compile(c) for c in inside.conditions]
        if not all(is_placeable(c) for c in conditions):
            construct = "a subquery asked by a condition that may raise an error"
            raise Refused(Reason.CONSTRUCT, construct, hint=_HINT, token=subquery.at)
        equi, residual = split_condition(conditions, width)
        if residual is None and test is None:
            keys = tuple(theirs for _, theirs in equi)
            return DomainGroups(inside.rows.node, keys, tuple(ours for ours, _ in equi), 0)
        asked = [*conditions, *(() if test is None else (ExpressionCompiler(self._catalog, scope).compile(test),))]
        return domain_values(around.base, inside.rows.node, conditions, asked)

    def _between(self, around: OuterQuery, inside: _Inside, groups: DomainGroups) -> Scope:
        """What columns are over the rows of `groups`, where the values asked with stand in front."""
        place = {c.ordinal: i for i, c in enumerate(groups.asked_with) if isinstance(c, Col)}

        def column(var: tree.Var) -> Expr | None:
            found = around.scope(var)
            return None if found is None else renumber(found, place.__getitem__)

        return _both(column, _shifted(inside.rows, groups.width))


def _flat_test(test: tree.Expression, flat: Flattener) -> tree.Expression:
    if isinstance(test, tree.Var):
        return test if test.entry == tree.RESULT else flat(test)
    return walk.rebuild(test, lambda part: _flat_test(part, flat))


def _only_rows(values: Sequence[Expr]) -> tuple[AggregateCall, ...]:
    return tuple(AggregateCall(ONLY_ROW, (value,), value.type) for value in values)


def _shifted(frame: JoinScope, by: int) -> Callable[[tree.Expression], Expr | None]:
    def find(expression: tree.Expression) -> Expr | None:
        found: Expr | None = None
        if isinstance(expression, tree.Var) and expression.levels_up == 0:
            found = frame.column(expression)
        elif isinstance(expression, tree.SubLink):
            found = frame.answers.get(expression.number)
        return None if found is None else shift(found, by)

    return find


def _both(outer: Callable[[tree.Var], Expr | None], inner: Scope) -> Scope:
    def find(expression: tree.Expression) -> Expr | None:
        if isinstance(expression, tree.Var) and expression.levels_up:
            if expression.levels_up > 1:
                construct = "a reference to a query further out"
                raise Refused(Reason.CONSTRUCT, construct, hint=_HINT, token=expression.at)
            return outer(replace(expression, levels_up=0))
        return inner(expression)

    return find


def _single(node: Node) -> Node:
    """The only row of a subquery, or NULL; an error where there are more."""
    if _one_row_always(node):
        return node
    (value,) = bound_columns(node)
    return Aggregate(node, (), (AggregateCall(ONLY_ROW, (value,), value.type),))


def _one_row_always(node: Node) -> bool:
    if isinstance(node, Project):
        return _one_row_always(node.input)
    return isinstance(node, Aggregate) and not node.keys


def _beside(node: Node, single: Node) -> tuple[Node, Expr]:
    joined = Join(node, single, (), None)
    return joined, bound_columns(joined)[len(fields(node))]


def _unique(groups: DomainGroups) -> bool:
    key = row_key(groups.node)
    return key is not None and set(key) <= {k.ordinal for k in groups.keys if isinstance(k, Col)}


def _empty_is_zero(grouped: GroupedQuery, calls: Sequence[AggregateCall], found: Sequence[Expr]) -> Scope:
    places = {
        written: calls.index(planned) for written, planned in zip(grouped.calls, grouped.planned_calls, strict=True)
    }

    def find(expression: tree.Expression) -> Expr | None:
        if isinstance(expression, tree.Aggref) and expression in places:
            return found[places[expression]]
        return None

    return find
