"""Analysed query -> plan.

A query becomes scans, a tree of joins and a Filter, then an Aggregate and a Filter for HAVING, then a Project. Columns
that nothing reads are not scanned, also those of subqueries and views. A Scan has a key when the query reads all its
key columns. Key columns are not read for that purpose alone, because a row key is useful only where its columns are in
the result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from applier.plan.expr import Col, Expr
from applier.plan.keys import row_key
from applier.plan.nodes import Filter, Node, fields
from applier.sql.bind.bound import BoundQuery, project_columns
from applier.sql.bind.from_items import FromItems
from applier.sql.bind.grouping import (
    GroupedByDomain,
    GroupedBySets,
    GroupedQuery,
    aggregates_in,
    bind_distinct,
    bind_group_by,
    bind_grouping_sets,
)
from applier.sql.bind.joins import (
    InnerJoinOperand,
    JoinItem,
    JoinScope,
    LateralJoin,
    bind_join,
    bind_outer_join,
    conjuncts,
    flatten_inner_joins,
    on_conditions,
)
from applier.sql.bind.ordering import bind_limit, drop_exists_limit
from applier.sql.bind.recursion import RecursionBinder
from applier.sql.bind.set_operations import bind_set_operation, unify_columns
from applier.sql.bind.table_functions import bind_set_functions
from applier.sql.bind.values import is_lateral
from applier.sql.bind.windows import bind_windows, window_inputs
from applier.sql.catalog_snapshot import CatalogSnapshot
from applier.sql.decorrelate.domain import OuterQuery
from applier.sql.decorrelate.lateral import LateralJoins
from applier.sql.decorrelate.over_domain import is_correlated, is_correlated_only_in_where
from applier.sql.decorrelate.semi_joins import (
    SubqueryTest,
    bind_semi_join,
    has_outer_column,
    inner_columns,
    move_into_subquery,
    resolve_outer_columns,
    to_sublink,
)
from applier.sql.decorrelate.subqueries import SubqueryJoins
from applier.sql.pg_tree import query_tree, tree, walk
from applier.sql.pg_tree.fields import unknown
from applier.sql.pg_tree.flatten import Flattener, whole_row_refusal
from applier.sql.pg_tree.query_tree import lateral_columns
from applier.sql.refusal import Place, Reason, Refused
from applier.sql.sources import Sources, from_entries
from applier.sql.typing.compile import ExpressionCompiler, Scope

Levels = tuple[query_tree.Query, ...]
"""A query and its outer queries, the outermost first."""


def bind(query: query_tree.Query, catalog: CatalogSnapshot, sources: Sources) -> Node:
    """Bind a whole query; the output columns of the plan are the visible targets."""
    visible = [t for t in query.targets if not t.hidden]
    if not visible:
        hint, place = "select at least one column", Place.start()
        raise Refused(Reason.CONSTRUCT, "a query without columns", hint=hint, place=place, full_in_postgres=False)
    built = _QueryBinder(catalog, sources).bind_query(query, range(len(visible)), ())
    return project_columns(built.node, built.exprs)


class _MakeLateral(Protocol):
    """Makes the join of a LATERAL item; `on` has the conditions of a left join, and is None for an inner join."""

    def __call__(self, number: int, *, on: Sequence[tree.Expression] | None) -> LateralJoin: ...


@dataclass(frozen=True, slots=True)
class _ItemBinder:
    """Binds the items of one FROM: `independent` items, and `lateral` items that read others."""

    independent: Callable[[int], JoinItem]
    lateral: _MakeLateral


class _QueryBinder:
    def __init__(self, catalog: CatalogSnapshot, sources: Sources) -> None:
        self._catalog = catalog
        self._subqueries = SubqueryJoins(catalog, self._bind_from_where, self.bind_query)
        laterals = LateralJoins(catalog, self._bind_from_where, self.bind_query)
        self._from_items = FromItems(
            catalog, sources, self.bind_query, laterals, RecursionBinder(catalog, self._bind_set_operation)
        )

    def bind_query(self, query: query_tree.Query, needed: Sequence[int], outer: Levels) -> BoundQuery:
        """Bind one query level; `needed` are the visible targets that are read, `outer` the outer queries."""
        levels = (*outer, query)
        if query.limit is None and not query.distinct_on:
            return self._bind_without_limit(query, needed, levels)
        return bind_limit(
            query, needed, lambda indexes: self._bind_without_limit(query, indexes, levels), self._catalog
        )

    def _bind_without_limit(self, query: query_tree.Query, needed: Sequence[int], levels: Levels) -> BoundQuery:
        """Bind everything but LIMIT and DISTINCT ON; `needed` may name hidden targets too."""
        if query.union is not None:
            return self._bind_union(query, query.union, needed, levels)
        if not query.distinct or query.distinct_on:
            return self._bind_select(query, needed, levels)
        visible = [t for t in query.targets if not t.hidden]
        everything = self._bind_select(query, range(len(visible)), levels)
        node = project_columns(everything.node, everything.exprs)
        if row_key(node) is None:
            flatten = Flattener(query.entries)
            equalities = {item.reference: item for item in query.distinct}
            keys = [
                (flatten(t.expression), equalities[t.group_reference])
                for t in visible
                if t.group_reference in equalities
            ]
            node = bind_distinct(everything.node, everything.exprs, keys, self._catalog)
        output = fields(node)
        return BoundQuery(node, tuple(Col(i, output[i].type, output[i].nullable) for i in needed))

    def _bind_union(
        self, query: query_tree.Query, union: query_tree.SetOperation, needed: Sequence[int], levels: Levels
    ) -> BoundQuery:
        targets = [t.expression for t in query.targets if not t.hidden]
        first = next(union.entries())
        numbers = [t.number for t in targets if isinstance(t, tree.Var) and t.entry == first]
        if numbers != list(range(1, 1 + len(targets))) or query.items or query.where is not None:
            raise unknown("a set operation that does more than combine its branches")
        return self._bind_set_operation(union, needed, levels)

    def _bind_set_operation(
        self, branch: int | query_tree.SetOperation, needed: Sequence[int], levels: Levels
    ) -> BoundQuery:
        if isinstance(branch, int):
            return self._bind_branch(levels, branch, needed)
        plain = branch.kind is query_tree.SetOperationType.UNION and branch.keeps_duplicates
        # Rows are compared by all their columns.
        read = needed if plain else range(len(branch.columns))
        parts = [self._bind_set_operation(part, read, levels) for part in branch.branches]
        types = [self._catalog.pg_type(branch.columns[i].type, branch.columns[i].typmod) for i in read]
        unified = unify_columns([part.exprs for part in parts], types)
        nodes = [project_columns(part.node, exprs) for part, exprs in zip(parts, unified, strict=True)]
        node = bind_set_operation(branch, nodes, self._catalog)
        output = fields(node)
        ordinals = range(len(needed)) if plain else needed
        return BoundQuery(node, tuple(Col(i, output[i].type, output[i].nullable) for i in ordinals))

    def _bind_branch(self, levels: Levels, number: int, needed: Sequence[int]) -> BoundQuery:
        self._from_items.count_item()
        match levels[-1].entries[number - 1]:
            case query_tree.SubqueryEntry(query=query):
                return self.bind_query(query, needed, levels)
            case _:
                raise unknown("a branch of UNION that is not a query")

    def _bind_select(self, query: query_tree.Query, needed: Sequence[int], levels: Levels) -> BoundQuery:
        flatten = Flattener(query.entries)
        targets = [flatten(query.targets[i].expression) for i in needed]
        keys = [(flatten(_group_target(query, item.reference)), item) for item in _group_items(query)]
        having = None if query.having is None else flatten(query.having)
        where = [flatten(c) for c in conjuncts(query.where)]
        window_targets = [flatten(query.targets[i].expression) for i in window_inputs(query, targets)]
        # Every set-returning function determines the number of rows, also one whose value is not read.
        expressions = [flatten(target.expression) for target in query.targets]
        set_calls = list(dict.fromkeys(call for each in expressions for call in walk.set_functions(each)))
        grouped_sets = [call for key, _ in keys for call in walk.set_functions(key)]
        needed_expressions = [
            *targets,
            *window_targets,
            *set_calls,
            *(key for key, _ in keys),
            *(() if having is None else (having,)),
        ]
        scope = self._bind_from_where(levels, needed_expressions, where)
        if grouped_sets:
            scope, set_calls = self._unnest(scope, set_calls), [call for call in set_calls if call not in grouped_sets]
        if set_calls and (grouped_sets or query.windows):
            hint = "call the function in a subquery in FROM"
            construct = "a set-returning function together with a window, or with one that is a grouping key"
            raise Refused(Reason.CONSTRUCT, construct, hint=hint, token=set_calls[0].at)
        if query.is_grouped:
            above = [*targets, *window_targets]
            calls = [call for e in (*above, *(() if having is None else (having,))) for call in aggregates_in(e)]
            scope = self._join_subqueries(scope, [*(key for key, _ in keys), *calls], levels)
            grouped = bind_group_by(
                keys,
                above,
                having,
                self._compiler(scope),
                scope.node,
                catalog=self._catalog,
                by_all_keys=not query.grouping_sets,
            )
            parts = [*above, *(() if having is None else (having,))]
            groups = (
                bind_grouping_sets(grouped, query, parts) if query.grouping_sets else _add_empty_groups(grouped, query)
            )
            below = self._bind_above_groups(scope, groups, above, having, levels=levels)
        else:
            scope = self._join_subqueries(scope, [*targets, *window_targets], levels)
            below = scope.node, scope.resolve
        return bind_windows(query, targets, bind_set_functions(below, set_calls, self._catalog), flatten, self._catalog)

    def _unnest(self, scope: JoinScope, calls: Sequence[tree.SetReturningExpr]) -> JoinScope:
        """Unnest these set-returning functions in parallel over the rows of the scope."""
        node, resolve = bind_set_functions((scope.node, scope.resolve), calls, self._catalog)
        results = {call: value for call in calls if (value := resolve(call)) is not None}
        return replace(scope, node=node, set_results=results)

    def _bind_from_where(
        self, levels: Levels, needed: Sequence[tree.Expression], where: Sequence[tree.Expression]
    ) -> JoinScope:
        """Bind FROM and WHERE of the innermost query; `needed` are the expressions to be computed over its rows."""
        query = levels[-1]
        flatten = Flattener(query.entries)
        on = [flatten(c) for c in on_conditions(query.items)]
        simple = [p for p in query.match_conditions if self._is_semi_join(p, levels)]
        tests = [self._bind_subquery_test(condition, levels) for condition in simple]
        others = [flatten(to_sublink(p)) for p in query.match_conditions if p not in simple]
        # The condition of an inner join belongs to WHERE, also where it has a subquery.
        where = [*where, *(flatten(c) for c in flatten_inner_joins(query.items)[1] if any(walk.subqueries(c))), *others]
        plain = [c for c in where if not any(walk.subqueries(c))]
        with_subquery = [c for c in where if any(walk.subqueries(c))]
        outer_columns = [c for test in tests for c in test.outer_columns()]
        scope = self._bind_from(levels, [*needed, *on, *where, *outer_columns], plain)
        for test in tests:
            scope = bind_semi_join(
                scope, test, lambda c, resolve: ExpressionCompiler(self._catalog, resolve).compile(c)
            )
        for condition in list(with_subquery):
            outer = OuterQuery(scope.node, scope.node, scope.resolve, levels)
            if (filtered := self._subqueries.filter_by_exists(outer, condition)) is not None:
                scope = replace(scope, node=filtered)
                with_subquery.remove(condition)
        scope = self._join_subqueries(scope, with_subquery, levels)
        return scope.filter([self._compiler(scope).compile(c) for c in with_subquery])

    def _is_semi_join(self, condition: query_tree.MatchCondition, levels: Levels) -> bool:
        """Whether EXISTS or IN becomes a semi-join: the subquery reads the outer query only in its own WHERE."""
        query, flatten_outer = drop_exists_limit(condition, self._catalog), Flattener(levels[-1].entries)
        if not is_correlated(query):
            return True
        where = [Flattener(query.entries)(resolve_outer_columns(c, flatten_outer)) for c in conjuncts(query.where)]
        return query.is_row_wise and is_correlated_only_in_where(query, [c for c in where if has_outer_column(c)])

    def _bind_subquery_test(self, condition: query_tree.MatchCondition, levels: Levels) -> SubqueryTest:
        """Bind EXISTS or IN of WHERE: the rows of the subquery alone, and the conditions on the outer query."""
        query, flatten_outer = drop_exists_limit(condition, self._catalog), Flattener(levels[-1].entries)
        flatten_own = Flattener(query.entries)
        visible = [t.expression for t in query.targets if not t.hidden]
        where = [flatten_own(resolve_outer_columns(c, flatten_outer)) for c in conjuncts(query.where)]
        correlated = [c for c in where if has_outer_column(c)]
        if correlated:
            test = [move_into_subquery(c, lambda var: visible[var.number - 1]) for c in conjuncts(condition.test)]
            test = [flatten_own(resolve_outer_columns(c, flatten_outer)) for c in test]
            uncorrelated = [c for c in where if not has_outer_column(c)]
            rows = self._bind_from_where((*levels, query), inner_columns([*correlated, *test]), uncorrelated)
            return SubqueryTest(rows, tuple(correlated), tuple(test), condition.negated, condition.at)
        built = self.bind_query(query, range(len(visible)) if condition.test is not None else (), levels)
        ordinals = {(tree.RESULT, i + 1): i for i in range(len(built.exprs))}
        rows = JoinScope(project_columns(built.node, built.exprs), ordinals, frozenset({tree.RESULT}))
        test = [
            resolve_outer_columns(move_into_subquery(c, lambda var: var), flatten_outer)
            for c in conjuncts(condition.test)
        ]
        return SubqueryTest(rows, (), tuple(test), condition.negated, condition.at)

    def _bind_above_groups(
        self,
        scope: JoinScope,
        grouped: GroupedQuery | GroupedBySets | GroupedByDomain,
        targets: Sequence[tree.Expression],
        having: tree.Expression | None,
        *,
        levels: Levels,
    ) -> tuple[Node, Scope]:
        """Bind what is above the groups: HAVING, and the subqueries in HAVING and in the targets."""
        node: Node = grouped.node(scope.node)
        base, known = node, grouped.scope(fields(node))
        results: dict[int, Expr] = {}

        def resolve(expression: tree.Expression) -> Expr | None:
            found = known(expression)
            return results.get(expression.number) if found is None and isinstance(expression, tree.SubLink) else found

        for expression in (*(() if having is None else (having,)), *targets):
            for subquery in walk.subqueries(expression):
                if subquery.number not in results and known(expression) is None:
                    outer = OuterQuery(node, base, known, levels)
                    node, results[subquery.number] = self._subqueries.join_result(outer, subquery)
            if having is not None and expression is having:
                node = base = Filter(node, ExpressionCompiler(self._catalog, resolve).compile(having))
        return node, resolve

    def _join_subqueries(self, scope: JoinScope, expressions: Sequence[tree.Expression], levels: Levels) -> JoinScope:
        """Join the result of every subquery of the expressions to the rows of the scope."""
        base = scope.node
        for subquery in (s for e in expressions for s in walk.subqueries(e)):
            if subquery.number not in scope.subquery_results:
                outer = OuterQuery(scope.node, base, scope.resolve, levels)
                node, result = self._subqueries.join_result(outer, subquery)
                results = scope.subquery_results | {subquery.number: result}
                scope = replace(scope, node=node, subquery_results=results)
        return scope

    def _compiler(self, scope: JoinScope) -> ExpressionCompiler:
        return ExpressionCompiler(self._catalog, scope.resolve)

    def _bind_from(
        self, levels: Levels, needed: Sequence[tree.Expression], where: Sequence[tree.Expression]
    ) -> JoinScope:
        query = levels[-1]
        reads: dict[int, set[int]] = {}
        for expression in needed:
            for var in walk.variables(expression):
                _check_variable(var)
                reads.setdefault(var.entry, set()).add(var.number)
        for number in from_entries(query.items):
            for var in lateral_columns(query.entries[number - 1]):
                for base in walk.variables(Flattener(query.entries)(var)):
                    _check_variable(base)
                    reads.setdefault(base.entry, set()).add(base.number)

        def make_lateral(number: int, *, on: Sequence[tree.Expression] | None) -> LateralJoin:
            return lambda scope: self._from_items.join_lateral(
                scope, number, sorted(reads.get(number, ())), levels, on=on
            )

        binder = _ItemBinder(lambda n: self._from_items.bind_item(n, sorted(reads.get(n, ())), levels), make_lateral)
        return self._bind_joins(query.items, where, binder, levels)

    def _bind_joins(
        self,
        items: Sequence[query_tree.FromItem],
        where: Sequence[tree.Expression],
        binder: _ItemBinder,
        levels: Levels,
    ) -> JoinScope:
        """Bind inner joins of items; an item may be an outer join, whose sides are bound in the same way."""
        query = levels[-1]
        flatten = Flattener(query.entries)

        def compile_in(condition: tree.Expression, scope: JoinScope) -> Expr:
            return self._compiler(scope).compile(condition)

        def bind_operand(item: InnerJoinOperand) -> JoinScope:
            if isinstance(item, query_tree.RangeTblRef):
                return JoinScope.of(binder.independent(item.entry))
            on = [flatten(c) for c in conjuncts(item.condition)]
            if isinstance(item.right, query_tree.RangeTblRef) and is_lateral(item.right, query):
                return binder.lateral(item.right.entry, on=on)(self._bind_joins((item.left,), (), binder, levels))
            left, right = (self._bind_joins((side,), (), binder, levels) for side in (item.left, item.right))
            for condition in on:
                left, right = self._join_on_subqueries(condition, left, right, levels)
            return bind_outer_join(item.kind, left, right, on, compile_in)

        parts, on = flatten_inner_joins(items)
        independent = [bind_operand(p) for p in parts if not is_lateral(p, query)]
        entries = [p.entry for p in parts if isinstance(p, query_tree.RangeTblRef) and is_lateral(p, query)]
        laterals = [binder.lateral(entry, on=None) for entry in entries]
        # Conditions with a subquery are bound with those of WHERE.
        plain = [flatten(c) for c in on if not any(walk.subqueries(c))]
        return bind_join(independent, [*plain, *where], compile_in, laterals)

    def _join_on_subqueries(
        self, condition: tree.Expression, left: JoinScope, right: JoinScope, levels: Levels
    ) -> tuple[JoinScope, JoinScope]:
        """Join the results of the subqueries of an ON condition to the side of the outer join that they read."""
        for subquery in walk.subqueries(condition):
            read = {var.entry for var in walk.variables(subquery)}
            if read <= right.entries:
                right = self._join_subqueries(right, [subquery], levels)
            elif read <= left.entries:
                left = self._join_subqueries(left, [subquery], levels)
            else:
                construct = "a subquery in ON that reads both sides of an outer join"
                hint = "compute it in a subquery in FROM"
                raise Refused(Reason.CONSTRUCT, construct, hint=hint, token=subquery.at)
        return left, right


def _group_items(query: query_tree.Query) -> Sequence[query_tree.GroupItem]:
    """Return the keys of GROUP BY; without GROUP BY there is one group per row of the domain."""
    if query.groups or not query.is_grouped:
        return query.groups
    return [query_tree.GroupItem(query.targets[i].group_reference, query_tree.SAME) for i in query.domain_targets]


def _add_empty_groups(grouped: GroupedQuery, query: query_tree.Query) -> GroupedQuery | GroupedByDomain:
    """Add the empty groups: an aggregate without GROUP BY has a result also for no rows."""
    if query.groups or not query.domain_targets:
        return grouped
    (domain,) = (entry.node for entry in query.entries if isinstance(entry, query_tree.DomainEntry))
    return GroupedByDomain(grouped, domain)


def _group_target(query: query_tree.Query, reference: int) -> tree.Expression:
    found = [t.expression for t in query.targets if t.group_reference == reference]
    if len(found) != 1:
        raise unknown("a GROUP BY key that names no target")
    return found[0]


def _check_variable(var: tree.Var) -> None:
    if var.levels_up:
        raise Refused(Reason.CONSTRUCT, "a reference to an outer query", hint="join the tables instead", token=var.at)
    if var.number == 0:
        raise whole_row_refusal(var)
    if var.number < 0:
        raise Refused(Reason.COLUMN, "a system column", hint="use a column of your own", token=var.at)
