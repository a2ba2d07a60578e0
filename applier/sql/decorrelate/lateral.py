"""LATERAL subqueries -> joins.

A LATERAL subquery reads the FROM items before it. It is evaluated once for all their rows: the rows of the subquery
alone, joined by its correlated conditions. Where the subquery groups or limits its rows, this is done per value of its
own side of these conditions, which then must be equalities. Any other subquery is evaluated over the domain.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from applier.plan.expr import Case, Const, Expr, shift
from applier.plan.nodes import Aggregate, Filter, Join, Node, OuterJoin, Project, fields
from applier.sql.bind.bound import BoundQuery, bound_columns, project_columns
from applier.sql.bind.group_key import GroupKey
from applier.sql.bind.grouping import GroupedQuery, bind_group_by, default_if_no_group
from applier.sql.bind.joins import JoinScope, can_push_down, conjuncts, split_condition
from applier.sql.bind.ordering import bind_limit
from applier.sql.catalog_snapshot import CatalogSnapshot
from applier.sql.decorrelate.domain import BindQuery, DependentQueries, OuterQuery, is_never_empty
from applier.sql.decorrelate.null_safe import Pairs
from applier.sql.decorrelate.over_domain import is_correlated_only_in_where
from applier.sql.decorrelate.semi_joins import has_outer_column, inner_columns, resolve_outer_columns
from applier.sql.pg_tree import query_tree, tree, walk
from applier.sql.pg_tree.flatten import Flattener
from applier.sql.refusal import Reason, Refused
from applier.sql.typing.compile import ExpressionCompiler, Scope

Levels = tuple[query_tree.Query, ...]
BindRows = Callable[[Levels, Sequence[tree.Expression], Sequence[tree.Expression]], JoinScope]
"""Binds FROM and WHERE of the innermost query; takes the expressions needed over its rows, and the conditions."""


@dataclass(frozen=True, slots=True)
class LateralItem:
    """A LATERAL subquery: its entry number, the columns that are read, and whether it is the right side of a left join.

    `on` has the conditions of the left join.
    """

    number: int
    query: query_tree.Query
    reads: Sequence[int]
    is_left_join: bool
    on: tuple[tree.Expression, ...] = ()


@dataclass(frozen=True, slots=True)
class _InnerQuery:
    """The subquery's rows, its correlated conditions and its targets; all written from inside it."""

    rows: JoinScope
    correlated: tuple[tree.Expression, ...]
    targets: tuple[tree.Expression, ...]


class LateralJoins:
    """Joins LATERAL subqueries to the FROM items that they read."""

    def __init__(self, catalog: CatalogSnapshot, bind_rows: BindRows, bind_query: BindQuery) -> None:
        self._catalog = catalog
        self._bind_rows = bind_rows
        self._dependents = DependentQueries(catalog, bind_query)

    def join(self, scope: JoinScope, lateral: LateralItem, levels: Levels) -> JoinScope:
        """Join the subquery to the scope; its columns follow those of the scope."""
        query = lateral.query
        inner = None if lateral.on else self._bind_inner(lateral, levels)
        if inner is not None and self._can_join_directly(scope, lateral, inner):
            if query.is_grouped:
                return self._join_grouped(scope, lateral, inner)
            if query.limit is not None or query.distinct_on:
                return self._join_first_rows(scope, lateral, inner)
            return self._join_plain(scope, lateral, inner)
        return self._join_over_domain(scope, lateral, levels)

    def _join_over_domain(self, scope: JoinScope, lateral: LateralItem, levels: Levels) -> JoinScope:
        """Join a subquery with any kind of correlation, by evaluating it over the domain."""
        outer_query = OuterQuery(scope.node, scope.node, _scope_of(scope), levels)
        needed = [r - 1 for r in lateral.reads]
        width = len(fields(scope.node))
        if not lateral.is_left_join or (not lateral.on and is_never_empty(lateral.query)):
            node = self._dependents.join_rows(outer_query, lateral.query, needed)
            if node is not None:
                return _add_columns(
                    scope, node, {(lateral.number, r): width + i for i, r in enumerate(lateral.reads)}, lateral
                )
        result = self._dependents.evaluate(outer_query, lateral.query, needed)
        ordinals = {(lateral.number, r): width + i for i, r in enumerate(lateral.reads)}
        joined = _add_columns(
            scope,
            _join(scope.node, result.node, result.join_keys, None, left_join=lateral.is_left_join),
            ordinals,
            lateral,
        )
        compiler = ExpressionCompiler(self._catalog, _scope_of(joined))
        on = [compiler.compile(c) for c in lateral.on]
        if not all(can_push_down(c) for c in on):
            raise Refused(
                Reason.CONSTRUCT,
                "LEFT JOIN LATERAL on a condition that may raise an error",
                hint="compute the expression in the subquery",
                token=next((at for at in map(walk.place_of, lateral.on) if at is not None), None),
            )
        equi, residual = split_condition(on, width)
        return replace(
            joined,
            node=_join(scope.node, result.node, (*result.join_keys, *equi), residual, left_join=lateral.is_left_join),
        )

    def _can_join_directly(self, scope: JoinScope, lateral: LateralItem, inner: _InnerQuery) -> bool:
        """Whether the uncorrelated rows of the subquery, joined by its correlated conditions, give the result."""
        query = lateral.query
        read_targets = [inner.targets[r - 1] for r in lateral.reads]
        if not self._can_push_down(scope, inner):
            return False
        if not query.is_grouped and query.limit is None and not query.distinct_on:
            return not (lateral.is_left_join and any(has_outer_column(t) for t in read_targets))
        if query.is_grouped and (query.limit is not None or query.distinct_on):
            return False
        pairs, residual = split_condition(self._compile_correlated(scope, inner), len(fields(scope.node)))
        return residual is None and bool(pairs) and not any(has_outer_column(t) for t in inner.targets)

    def _can_push_down(self, scope: JoinScope, inner: _InnerQuery) -> bool:
        return all(can_push_down(c) for c in self._compile_correlated(scope, inner))

    def _bind_inner(self, lateral: LateralItem, levels: Levels) -> _InnerQuery | None:
        """Bind the uncorrelated rows of the subquery; None where more than its WHERE and select list is correlated."""
        query = lateral.query
        groups_otherwise = query.grouping_sets or (query.distinct and not query.distinct_on)
        if query.union is not None or query.windows or query.has_set_functions or groups_otherwise:
            return None
        flatten, flatten_outer = Flattener(query.entries), Flattener(levels[-1].entries)
        where = [flatten(resolve_outer_columns(c, flatten_outer)) for c in conjuncts(query.where)]
        correlated = tuple(c for c in where if has_outer_column(c))
        if not is_correlated_only_in_where(replace(query, targets=()), correlated):
            return None
        plain = tuple(c for c in where if not has_outer_column(c))
        targets = tuple(flatten(resolve_outer_columns(t.expression, flatten_outer)) for t in query.targets)
        if any(any(walk.subqueries(t)) for t in targets if has_outer_column(t)):
            return None
        having = () if query.having is None else (flatten(query.having),)
        rows = self._bind_rows((*levels, query), inner_columns([*correlated, *targets, *having]), plain)
        return _InnerQuery(rows, correlated, targets)

    def _compile_correlated(self, scope: JoinScope, inner: _InnerQuery) -> list[Expr]:
        compiler = ExpressionCompiler(self._catalog, _scope_of_both(scope, inner.rows))
        return [compiler.compile(c) for c in inner.correlated]

    def _pairs(self, scope: JoinScope, inner: _InnerQuery) -> Pairs:
        return split_condition(self._compile_correlated(scope, inner), len(fields(scope.node)))[0]

    def _join_plain(self, scope: JoinScope, lateral: LateralItem, inner: _InnerQuery) -> JoinScope:
        read_targets = [inner.targets[r - 1] for r in lateral.reads]
        width, base = len(fields(scope.node)), len(fields(inner.rows.node))
        own = ExpressionCompiler(self._catalog, _scope_of(inner.rows))
        own_values = tuple(own.compile(t) for t in read_targets if not has_outer_column(t))
        right = project_columns(inner.rows.node, (*bound_columns(inner.rows.node), *own_values))
        equi, residual = split_condition(self._compile_correlated(scope, inner), width)
        joined = _join(scope.node, right, equi, residual, left_join=lateral.is_left_join)
        ordinals, above = {}, ExpressionCompiler(self._catalog, _scope_of_both(scope, inner.rows))
        correlated_values = [above.compile(t) for t in read_targets if has_outer_column(t)]
        early_ordinal, late_ordinal = width + base, len(fields(joined))
        for r, target in zip(lateral.reads, read_targets, strict=True):
            if has_outer_column(target):
                ordinals[lateral.number, r], late_ordinal = late_ordinal, late_ordinal + 1
            else:
                ordinals[lateral.number, r], early_ordinal = early_ordinal, early_ordinal + 1
        node = Project(joined, (*bound_columns(joined), *correlated_values)) if correlated_values else joined
        return _add_columns(scope, node, ordinals, lateral)

    def _join_first_rows(self, scope: JoinScope, lateral: LateralItem, inner: _InnerQuery) -> JoinScope:
        pairs = self._pairs(scope, inner)
        own = ExpressionCompiler(self._catalog, _scope_of(inner.rows))

        def select(indexes: Sequence[int]) -> BoundQuery:
            return BoundQuery(inner.rows.node, tuple(own.compile(inner.targets[i]) for i in indexes))

        needed = [r - 1 for r in lateral.reads]
        built = bind_limit(lateral.query, needed, select, self._catalog, [theirs for _, theirs in pairs])
        return self._join_by_keys(scope, lateral, built, pairs)

    def _join_by_keys(self, scope: JoinScope, lateral: LateralItem, built: BoundQuery, pairs: Pairs) -> JoinScope:
        """Join by the key columns, which follow the columns that are read."""
        right, width, count = project_columns(built.node, built.exprs), len(fields(scope.node)), len(lateral.reads)
        keys = bound_columns(right)[count:]
        equi = tuple((ours, key) for (ours, _), key in zip(pairs, keys, strict=True))
        node = _join(scope.node, right, equi, None, left_join=lateral.is_left_join)
        return _add_columns(scope, node, {(lateral.number, r): width + i for i, r in enumerate(lateral.reads)}, lateral)

    def _join_grouped(self, scope: JoinScope, lateral: LateralItem, inner: _InnerQuery) -> JoinScope:
        query, flatten = lateral.query, Flattener(lateral.query.entries)
        read_targets = [inner.targets[r - 1] for r in lateral.reads]
        having = None if query.having is None else flatten(query.having)
        by_reference = {t.group_reference: inner.targets[i] for i, t in enumerate(query.targets)}
        keys = [(by_reference[item.reference], item) for item in query.groups]
        pairs, rows = self._pairs(scope, inner), inner.rows
        below = ExpressionCompiler(self._catalog, _scope_of(rows))
        theirs = tuple(key for _, key in pairs)
        grouped = bind_group_by(keys, read_targets, having, below, rows.node, catalog=self._catalog, within=theirs)
        if not query.groups:
            return self._join_single_group(scope, lateral, (grouped, theirs), pairs, (read_targets, having, rows.node))
        joining = tuple(GroupKey(key, key) for key in theirs)
        grouped_by_keys = replace(
            grouped, keys=(*grouped.keys, *inner.correlated), planned_keys=(*grouped.planned_keys, *joining)
        )
        node: Node = grouped_by_keys.node(rows.node)
        compiler = ExpressionCompiler(self._catalog, grouped_by_keys.scope(fields(node)))
        if having is not None:
            node = Filter(node, compiler.compile(having))
        first = len(grouped.keys)
        exprs = (*(compiler.compile(t) for t in read_targets), *bound_columns(node)[first : first + len(theirs)])
        return self._join_by_keys(scope, lateral, BoundQuery(node, exprs), pairs)

    def _join_single_group(
        self,
        scope: JoinScope,
        lateral: LateralItem,
        groups: tuple[GroupedQuery, tuple[Expr, ...]],
        pairs: Pairs,
        above: tuple[Sequence[tree.Expression], tree.Expression | None, Node],
    ) -> JoinScope:
        """Join an aggregate without GROUP BY: it has one row per outer row, also where the group is empty."""
        (grouped, theirs), (read_targets, having, rows) = groups, above
        if grouped.keys:
            raise _refuse("a column together with an aggregate in LATERAL")
        calls = tuple(dict.fromkeys(grouped.planned_calls))
        width = len(fields(scope.node))
        aggregated = Aggregate(rows, theirs, calls)
        equi = tuple((ours, key) for (ours, _), key in zip(pairs, bound_columns(aggregated), strict=False))
        joined = OuterJoin(scope.node, aggregated, equi, None, full=False)
        found = bound_columns(joined)[width + len(theirs) :]
        ordinals = {
            call: calls.index(planned) for call, planned in zip(grouped.calls, grouped.planned_calls, strict=True)
        }

        def resolve(expression: tree.Expression) -> Expr | None:
            if isinstance(expression, tree.Aggref) and expression in ordinals:
                return default_if_no_group(calls[ordinals[expression]], found[ordinals[expression]])
            return None

        compiler = ExpressionCompiler(self._catalog, resolve)
        results = [compiler.compile(t) for t in read_targets]
        node: Node = joined
        if having is not None:
            condition = compiler.compile(having)
            if lateral.is_left_join:
                results = [Case(((condition, r),), Const(None, r.type), r.type) for r in results]
            else:
                node = Filter(node, condition)
        node = Project(node, (*bound_columns(joined)[:width], *results))
        return _add_columns(scope, node, {(lateral.number, r): width + i for i, r in enumerate(lateral.reads)}, lateral)


def _join(left: Node, right: Node, equi: Pairs, residual: Expr | None, *, left_join: bool) -> Node:
    return OuterJoin(left, right, equi, residual, full=False) if left_join else Join(left, right, equi, residual)


def _add_columns(scope: JoinScope, node: Node, ordinals: dict[tuple[int, int], int], lateral: LateralItem) -> JoinScope:
    return replace(scope, node=node, ordinals=scope.ordinals | ordinals, entries=scope.entries | {lateral.number})


def _scope_of(rows: JoinScope) -> Scope:
    def resolve(expression: tree.Expression) -> Expr | None:
        if isinstance(expression, tree.Var) and expression.levels_up == 0:
            return rows.column(expression)
        return rows.subquery_results.get(expression.number) if isinstance(expression, tree.SubLink) else None

    return resolve


def _scope_of_both(scope: JoinScope, rows: JoinScope) -> Scope:
    own, width = _scope_of(rows), len(fields(scope.node))

    def resolve(expression: tree.Expression) -> Expr | None:
        if isinstance(expression, tree.Var) and expression.levels_up == 1:
            return scope.column(replace(expression, levels_up=0))
        found = own(expression)
        return None if found is None else shift(found, width)

    return resolve


def _refuse(construct: str) -> Refused:
    return Refused(Reason.CONSTRUCT, construct, hint="join the tables instead")
