"""Subqueries inside expressions -> columns of joins.

The rows of a subquery are grouped by the values that correlate it with its outer query, with one result per group. This
result is joined to the outer rows as a column. Where there is no group, the column has the result of an empty subquery:
NULL for a value (0 for a count), false for EXISTS and ANY, true for ALL.

Where all correlated conditions are equalities, the group keys are the subquery's own columns. Otherwise they are the
distinct outer values (the domain), each joined with the subquery's rows that satisfy the conditions.
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
from applier.plan.keys import row_key
from applier.plan.nodes import Aggregate, Join, Node, OuterJoin, Project, SemiJoin, TopK, fields
from applier.sql.bind.bound import BoundQuery, bound_columns, project_columns
from applier.sql.bind.grouping import GroupedQuery, bind_group_by
from applier.sql.bind.joins import JoinScope, can_push_down, conjuncts, split_condition
from applier.sql.bind.ordering import literal_number, replace_limit_by_count
from applier.sql.bind.sort_key import sort_key
from applier.sql.catalog_snapshot import CatalogSnapshot
from applier.sql.decorrelate.array_subquery import rewrite_to_array_agg
from applier.sql.decorrelate.domain import DependentQueries, OuterQuery
from applier.sql.decorrelate.domain_groups import (
    DomainGroups,
    greater_than,
    group_by_domain,
    group_by_outer_values,
    join_any_or_all,
    join_group_results,
)
from applier.sql.decorrelate.over_domain import is_correlated, is_correlated_only_in_where
from applier.sql.decorrelate.semi_joins import (
    has_outer_column,
    inner_columns,
    move_into_subquery,
    resolve_outer_columns,
)
from applier.sql.pg_tree import query_tree, tree, walk
from applier.sql.pg_tree.flatten import Flattener
from applier.sql.refusal import Reason, Refused
from applier.sql.typing.compile import ExpressionCompiler, Scope

Levels = tuple[query_tree.Query, ...]
_HINT = "join the subquery in FROM"


@dataclass(frozen=True, slots=True)
class _InnerQuery:
    """The rows of a subquery, its correlated conditions and its test, which are written from inside it."""

    rows: JoinScope
    conditions: tuple[tree.Expression, ...]
    test: tree.Expression | None


class SubqueryJoins:
    """Joins subqueries of expressions to their outer rows; `bind_rows` binds FROM and WHERE."""

    def __init__(
        self,
        catalog: CatalogSnapshot,
        bind_rows: Callable[[Levels, Sequence[tree.Expression], Sequence[tree.Expression]], JoinScope],
        bind_query: Callable[[query_tree.Query, Sequence[int], Levels], BoundQuery],
    ) -> None:
        self._catalog = catalog
        self._bind_rows = bind_rows
        self._bind_query = bind_query
        self._dependents = DependentQueries(catalog, bind_query)

    def join_result(self, outer: OuterQuery, subquery: tree.SubLink) -> tuple[Node, Expr]:
        """Join the result of a subquery to the outer rows; return the joined node and the result as its expression."""
        match subquery.kind:
            case tree.SubLinkType.VALUE:
                return self._join_value(outer, subquery)
            case tree.SubLinkType.ROW:
                return self._join_row_test(outer, subquery)
            case tree.SubLinkType.ARRAY:
                node, value = self._join_value(outer, rewrite_to_array_agg(subquery, self._catalog))
                return node, Coalesce((value, Const("{}", value.type)), value.type)
            case tree.SubLinkType.EXISTS | tree.SubLinkType.ANY | tree.SubLinkType.ALL:
                return self._join_truth_value(outer, subquery)
            case _:
                assert_never(subquery.kind)

    def filter_by_exists(self, outer: OuterQuery, condition: tree.Expression) -> Node | None:
        """Keep the outer rows that satisfy a correlated EXISTS or NOT EXISTS; None for any other condition."""
        match condition:
            case tree.SubLink(kind=tree.SubLinkType.EXISTS) as subquery:
                negated = False
            case tree.BoolExpr(tree.BoolOperator.NOT, (tree.SubLink(kind=tree.SubLinkType.EXISTS) as subquery,)):
                negated = True
            case _:
                return None
        if not is_correlated(subquery.query) or subquery.query.limit is not None:
            return None
        result = self._dependents.evaluate(outer, subquery.query, ())
        return SemiJoin(outer.node, result.node, result.join_keys, None, negated)

    def _join_value(self, outer: OuterQuery, subquery: tree.SubLink) -> tuple[Node, Expr]:
        query = subquery.query
        if not is_correlated(query):
            built = self._bind_query(query, [0], outer.levels)
            return _cross_join(outer.node, _reduce_to_single_row(project_columns(built.node, built.exprs)))
        flatten = Flattener(query.entries)
        (target,) = (flatten(t.expression) for t in query.targets if not t.hidden)
        hidden = [flatten(t.expression) for t in query.targets if t.hidden]
        combines_rows = (
            query.groups or query.having is not None or query.distinct or query.union is not None or query.windows
        )
        if (
            combines_rows
            or query.has_set_functions
            or not self._is_correlated_only_in_where(outer, query)
            or (query.is_grouped and query.limit is not None)
        ):
            node, (value,) = self._join_single_row(outer, subquery, 1)
            return node, value
        if query.is_grouped:
            inner = self._bind_inner(outer, subquery, [target])
            groups = self._group_rows(outer, inner, subquery)
            return self._join_aggregate(outer, inner, groups, target)
        if query.limit is not None and not self._is_limit_one(query.limit):
            node, (value,) = self._join_single_row(outer, subquery, 1)
            return node, value
        inner = self._bind_inner(outer, subquery, [target, *hidden])
        return self._join_single_value(outer, inner, target, subquery)

    def _join_row_test(self, outer: OuterQuery, subquery: tree.SubLink) -> tuple[Node, Expr]:
        """Join the test of a row comparison; where the subquery has no row, its columns and the test are NULL."""
        query = subquery.query
        width = sum(not t.hidden for t in query.targets)
        if is_correlated(query):
            node, found = self._join_single_row(outer, subquery, width)
        else:
            built = self._bind_query(query, range(width), outer.levels)
            below = project_columns(built.node, built.exprs)
            node = Join(outer.node, Aggregate(below, (), _only_row_calls(bound_columns(below))), (), None)
            found = list(bound_columns(node)[len(fields(outer.node)) :])

        def resolve(expression: tree.Expression) -> Expr | None:
            if isinstance(expression, tree.Var) and expression.entry == tree.RESULT:
                return found[expression.number - 1]
            return outer.scope(expression)

        flatten = Flattener(outer.levels[-1].entries)
        test = subquery.test if subquery.test is not None else tree.BoolExpr(tree.BoolOperator.AND, ())
        return node, ExpressionCompiler(self._catalog, resolve).compile(_flatten_test(test, flatten))

    def _join_single_row(self, outer: OuterQuery, subquery: tree.SubLink, width: int) -> tuple[Node, list[Expr]]:
        """Join the columns of the single row of the subquery for each outer row; NULL where there is none."""
        result = self._dependents.evaluate(outer, subquery.query, range(width))
        if result.has_single_row:
            node = OuterJoin(outer.node, result.node, result.join_keys, None, full=False)
            first = len(fields(outer.node))
            return node, list(bound_columns(node)[first : first + width])
        return join_group_results(outer.node, group_by_domain(result), _only_row_calls(result.result_columns))

    def _is_correlated_only_in_where(self, outer: OuterQuery, query: query_tree.Query) -> bool:
        flatten, flatten_outer = Flattener(query.entries), Flattener(outer.levels[-1].entries)
        where = [flatten(resolve_outer_columns(c, flatten_outer)) for c in conjuncts(query.where)]
        return is_correlated_only_in_where(query, [c for c in where if has_outer_column(c)])

    def _is_limit_one(self, limit: query_tree.Limit) -> bool:
        return limit.offset is None and not limit.ties and literal_number(limit.count, "LIMIT", self._catalog) == 1

    def _join_aggregate(
        self, outer: OuterQuery, inner: _InnerQuery, groups: DomainGroups, target: tree.Expression
    ) -> tuple[Node, Expr]:
        below = ExpressionCompiler(self._catalog, _shift_scope(inner.rows, groups.width))
        grouped = bind_group_by([], [target], None, below, groups.node, catalog=self._catalog, within=groups.keys)
        if grouped.keys:
            raise Refused(Reason.CONSTRUCT, "a column of an outer query together with an aggregate", hint=_HINT)
        calls = tuple(dict.fromkeys(grouped.planned_calls))
        node, found = join_group_results(outer.node, groups, calls)
        scope = _scope_of_aggregates(grouped, calls, found)
        return node, ExpressionCompiler(self._catalog, scope).compile(target)

    def _join_single_value(
        self, outer: OuterQuery, inner: _InnerQuery, target: tree.Expression, subquery: tree.SubLink
    ) -> tuple[Node, Expr]:
        groups = self._group_rows(outer, inner, subquery)
        below = ExpressionCompiler(self._catalog, _shift_scope(inner.rows, groups.width))
        value = below.compile(target)
        limit = subquery.query.limit
        if limit is not None:
            groups = self._keep_first_row(groups, subquery, below)
        elif not _has_unique_keys(groups):
            # More than one row is an error only for values that an outer row has.
            keys = tuple(zip(groups.keys, groups.outer_values, strict=True))
            groups = replace(groups, node=SemiJoin(groups.node, outer.base, keys, None, anti=False))
        node, found = join_group_results(outer.node, groups, (AggregateCall(ONLY_ROW, (value,), value.type),))
        return node, found[0]

    def _keep_first_row(self, groups: DomainGroups, subquery: tree.SubLink, below: ExpressionCompiler) -> DomainGroups:
        query, flatten = subquery.query, Flattener(subquery.query.entries)
        by_reference = {t.group_reference: flatten(t.expression) for t in query.targets}
        order = tuple(
            sort_key(below.compile(by_reference[item.reference]), by_reference[item.reference], item, self._catalog)
            for item in query.order
        )
        return replace(groups, node=TopK(groups.node, groups.keys, order, 1, 0, ties=False))

    def _join_truth_value(self, outer: OuterQuery, subquery: tree.SubLink) -> tuple[Node, Expr]:
        query = subquery.query
        if is_correlated(query) and (not query.is_row_wise or not self._is_correlated_only_in_where(outer, query)):
            return self._join_truth_value_over_domain(outer, subquery)
        inner = self._bind_inner(outer, subquery, [])
        if inner.test is None:
            groups = self._group_rows(outer, inner, subquery)
            node, (count,) = join_group_results(outer.node, groups, (COUNT,))
            return node, greater_than(count, 0)
        if subquery.kind is tree.SubLinkType.ANY and (found := self._join_in_by_hash(outer, inner)) is not None:
            return found
        groups = self._group_rows(outer, inner, subquery, test=inner.test)
        test = ExpressionCompiler(self._catalog, self._scope_of_groups(outer, inner, groups)).compile(inner.test)
        return join_any_or_all(outer.node, groups, test, every=subquery.kind is tree.SubLinkType.ALL)

    def _join_truth_value_over_domain(self, outer: OuterQuery, subquery: tree.SubLink) -> tuple[Node, Expr]:
        """Join EXISTS, ANY or ALL of a subquery that reads its outer query not only in conditions of WHERE."""
        query, test = subquery.query, subquery.test
        if test is None:
            # Which rows OFFSET skips makes no difference to the number of rows.
            query, skipped = replace_limit_by_count(query, self._catalog)
            groups = group_by_domain(self._dependents.evaluate(outer, query, ()))
            node, (count,) = join_group_results(outer.node, groups, (COUNT,))
            return node, greater_than(count, skipped)
        compared = [var for var in walk.variables(test) if var.entry != tree.RESULT]
        width = sum(not t.hidden for t in query.targets)
        result = self._dependents.evaluate(outer, query, range(width), compared)
        compiled = ExpressionCompiler(self._catalog, result.resolve).compile(test)
        return join_any_or_all(
            outer.node, group_by_domain(result), compiled, every=subquery.kind is tree.SubLinkType.ALL
        )

    def _join_in_by_hash(self, outer: OuterQuery, inner: _InnerQuery) -> tuple[Node, Expr] | None:
        """Join x IN (…) by the hash of x, where all correlated conditions are equalities; otherwise return None."""
        width = len(fields(outer.base))
        compiler = ExpressionCompiler(self._catalog, _combine_scopes(outer.scope, _shift_scope(inner.rows, width)))
        pairs, residual = split_condition([compiler.compile(c) for c in inner.conditions], width)
        compared, rest = split_condition([compiler.compile(c) for c in conjuncts(inner.test)], width)
        if residual is not None or rest is not None or len(compared) != 1:
            return None
        (ours, theirs), rows = compared[0], inner.rows.node
        outer_values, keys = tuple(value for value, _ in pairs), tuple(key for _, key in pairs)
        node, (equal,) = join_group_results(
            outer.node, DomainGroups(rows, (*keys, theirs), (*outer_values, ours), 0), (COUNT,)
        )
        branches: list[tuple[Expr, Expr]] = [(greater_than(equal), Const(True, BOOL))]
        if nullable(ours) or nullable(theirs):
            calls = (COUNT, replace(COUNT, filter=IsNull(theirs, False, BOOL)))
            node, (any_, nulls) = join_group_results(node, DomainGroups(rows, keys, outer_values, 0), calls)
            compared_null = BoolOp(Logic.AND, (IsNull(ours, False, BOOL), greater_than(any_)), BOOL)
            branches.append((BoolOp(Logic.OR, (compared_null, greater_than(nulls)), BOOL), Const(None, BOOL)))
        return node, Case(tuple(branches), Const(False, BOOL), BOOL)

    def _bind_inner(self, outer: OuterQuery, subquery: tree.SubLink, needed: Sequence[tree.Expression]) -> _InnerQuery:
        """Bind the uncorrelated rows of the subquery, and collect its conditions on the outer query."""
        query, flatten_outer = subquery.query, Flattener(outer.levels[-1].entries)
        flatten = Flattener(query.entries)
        visible = [t.expression for t in query.targets if not t.hidden]
        where = [flatten(resolve_outer_columns(c, flatten_outer)) for c in conjuncts(query.where)]
        correlated = [c for c in where if has_outer_column(c)]
        if subquery.kind is tree.SubLinkType.VALUE or query.is_row_wise:
            test = None
            if subquery.test is not None:
                test = flatten(
                    resolve_outer_columns(
                        move_into_subquery(subquery.test, lambda var: visible[var.number - 1]), flatten_outer
                    )
                )
            uncorrelated = [c for c in where if not has_outer_column(c)]
            columns = inner_columns([*correlated, *(() if test is None else (test,))])
            rows = self._bind_rows((*outer.levels, query), [*columns, *needed], uncorrelated)
            return _InnerQuery(rows, tuple(correlated), test)
        built = self._bind_query(query, range(len(visible)) if subquery.test is not None else (), outer.levels)
        ordinals = {(tree.RESULT, i + 1): i for i in range(len(built.exprs))}
        rows = JoinScope(project_columns(built.node, built.exprs), ordinals, frozenset({tree.RESULT}))
        test = (
            None
            if subquery.test is None
            else resolve_outer_columns(move_into_subquery(subquery.test, lambda var: var), flatten_outer)
        )
        return _InnerQuery(rows, (), test)

    def _group_rows(
        self, outer: OuterQuery, inner: _InnerQuery, subquery: tree.SubLink, test: tree.Expression | None = None
    ) -> DomainGroups:
        width = len(fields(outer.base))
        scope = _combine_scopes(outer.scope, _shift_scope(inner.rows, width))
        conditions = [ExpressionCompiler(self._catalog, scope).compile(c) for c in inner.conditions]
        if not all(can_push_down(c) for c in conditions):
            construct = "a subquery whose condition on the outer query may raise an error"
            raise Refused(Reason.CONSTRUCT, construct, hint=_HINT, token=subquery.at)
        equi, residual = split_condition(conditions, width)
        if residual is None and test is None:
            keys = tuple(theirs for _, theirs in equi)
            return DomainGroups(inner.rows.node, keys, tuple(ours for ours, _ in equi), 0)
        expressions = [
            *conditions,
            *(() if test is None else (ExpressionCompiler(self._catalog, scope).compile(test),)),
        ]
        return group_by_outer_values(outer.base, inner.rows.node, conditions, expressions)

    def _scope_of_groups(self, outer: OuterQuery, inner: _InnerQuery, groups: DomainGroups) -> Scope:
        """Return the scope over the rows of `groups`, where the outer values are the first columns."""
        new_ordinal = {c.ordinal: i for i, c in enumerate(groups.outer_values) if isinstance(c, Col)}

        def column(var: tree.Var) -> Expr | None:
            found = outer.scope(var)
            return None if found is None else renumber(found, new_ordinal.__getitem__)

        return _combine_scopes(column, _shift_scope(inner.rows, groups.width))


def _flatten_test(test: tree.Expression, flatten: Flattener) -> tree.Expression:
    if isinstance(test, tree.Var):
        return test if test.entry == tree.RESULT else flatten(test)
    return walk.rebuild(test, lambda part: _flatten_test(part, flatten))


def _only_row_calls(values: Sequence[Expr]) -> tuple[AggregateCall, ...]:
    return tuple(AggregateCall(ONLY_ROW, (value,), value.type) for value in values)


def _shift_scope(scope: JoinScope, by: int) -> Callable[[tree.Expression], Expr | None]:
    def resolve(expression: tree.Expression) -> Expr | None:
        found: Expr | None = None
        if isinstance(expression, tree.Var) and expression.levels_up == 0:
            found = scope.column(expression)
        elif isinstance(expression, tree.SubLink):
            found = scope.subquery_results.get(expression.number)
        return None if found is None else shift(found, by)

    return resolve


def _combine_scopes(outer: Callable[[tree.Var], Expr | None], inner: Scope) -> Scope:
    def resolve(expression: tree.Expression) -> Expr | None:
        if isinstance(expression, tree.Var) and expression.levels_up:
            if expression.levels_up > 1:
                construct = "a reference to a query more than one level out"
                raise Refused(Reason.CONSTRUCT, construct, hint=_HINT, token=expression.at)
            return outer(replace(expression, levels_up=0))
        return inner(expression)

    return resolve


def _reduce_to_single_row(node: Node) -> Node:
    """Reduce a subquery to its single row, or NULL; more rows are an error."""
    if _has_one_row(node):
        return node
    (value,) = bound_columns(node)
    return Aggregate(node, (), (AggregateCall(ONLY_ROW, (value,), value.type),))


def _has_one_row(node: Node) -> bool:
    if isinstance(node, Project):
        return _has_one_row(node.input)
    return isinstance(node, Aggregate) and not node.keys


def _cross_join(node: Node, single: Node) -> tuple[Node, Expr]:
    joined = Join(node, single, (), None)
    return joined, bound_columns(joined)[len(fields(node))]


def _has_unique_keys(groups: DomainGroups) -> bool:
    key = row_key(groups.node)
    return key is not None and set(key) <= {k.ordinal for k in groups.keys if isinstance(k, Col)}


def _scope_of_aggregates(grouped: GroupedQuery, calls: Sequence[AggregateCall], found: Sequence[Expr]) -> Scope:
    ordinals = {
        written: calls.index(planned) for written, planned in zip(grouped.calls, grouped.planned_calls, strict=True)
    }

    def resolve(expression: tree.Expression) -> Expr | None:
        if isinstance(expression, tree.Aggref) and expression in ordinals:
            return found[ordinals[expression]]
        return None

    return resolve
