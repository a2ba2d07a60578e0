"""A subquery of an expression -> a DependentJoin."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, assert_never

from applier.plan.expr import BOOL, Col, Expr, ValueType
from applier.sql.bind.array_subquery import rewrite_to_array_agg
from applier.sql.bind.correlation import correlation_of, reads_outside
from applier.sql.bind.expressions import ExpressionBinder
from applier.sql.bind.levels import Binder, Levels
from applier.sql.bind.limits import replace_limit_by_count
from applier.sql.bound.conditions import is_total
from applier.sql.bound.nodes import DependentJoin, DependentKind, Select, result_columns
from applier.sql.pg_tree import query_tree, tree, walk


class SelectColumns(Protocol):
    """The query around the subquery."""

    def resolve(self, expression: tree.Expression) -> Expr | None:
        """Resolve an expression over its columns."""
        ...

    def result_column(self, subquery: int, number: int, value: Expr) -> Col:
        """Return the column of a dependent join's inner query, for its test."""
        ...


class SubqueryBinder:
    """Binds the subqueries of one query's expressions."""

    def __init__(
        self,
        binder: Binder,
        outer: SelectColumns,
        levels: Levels,
        flatten: Callable[[tree.Expression], tree.Expression],
    ) -> None:
        self._binder = binder
        self._outer = outer
        self._levels = levels
        self._flatten = flatten

    def bind(self, subquery: tree.SubLink, index: int) -> tuple[DependentJoin, ValueType]:
        """Bind a subquery as the dependent join with this index; return it and the type of its result."""
        query, skipped = subquery.query, 0
        limited = query.limit is not None
        kind = _kind(subquery.kind)
        if kind is DependentKind.ARRAY:
            query = rewrite_to_array_agg(subquery, self._binder.catalog).query
        if kind is DependentKind.EXISTS and query.limit is not None and reads_outside(query):
            # Which rows OFFSET skips makes no difference to the number of rows.
            query, skipped = replace_limit_by_count(query, self._binder.catalog)
        correlation = correlation_of(query, self._levels)
        visible = sum(not t.hidden for t in query.targets)
        inner = self._binder.bind_query(query, () if kind is DependentKind.EXISTS else range(visible), self._levels)
        output = result_columns(inner)
        test: Expr | None = None
        compared: tuple[int, ...] = ()
        if subquery.test is not None or kind is DependentKind.ROW:
            columns = {i: self._outer.result_column(index, i - 1, value) for i, value in enumerate(output, 1)}

            def resolve(expression: tree.Expression) -> Expr | None:
                if isinstance(expression, tree.Var) and expression.entry == tree.RESULT and not expression.levels_up:
                    return columns[expression.number]
                # No dependent join is computed before the test of another one.
                return None if isinstance(expression, tree.SubLink) else self._outer.resolve(expression)

            expressions = ExpressionBinder(self._binder.catalog, resolve)
            written = subquery.test if subquery.test is not None else tree.BoolExpr(tree.BoolOperator.AND, ())
            test = expressions.bind(_flatten_test(written, self._flatten))
            read = [v for v in walk.variables(written) if v.entry != tree.RESULT or v.levels_up]
            compared = tuple(c.ordinal for v in read if isinstance(c := expressions.bind(self._flatten(v)), Col))
        type_ = output[0].type if kind in (DependentKind.VALUE, DependentKind.ARRAY) else BOOL
        return DependentJoin(kind, inner, correlation, test, compared, limited, skipped, subquery.at), type_


def may_raise(dependent: DependentJoin) -> bool:
    """Whether the result is computed above the joined aggregates of the subquery, and may be an error there."""
    select = dependent.inner
    if not isinstance(select, Select) or select.group is None or select.group.keys:
        return False
    value = dependent.kind in (DependentKind.VALUE, DependentKind.ARRAY) and bool(dependent.correlation.reads)
    return value and not all(map(is_total, select.targets))


def _kind(kind: tree.SubLinkType) -> DependentKind:
    match kind:
        case tree.SubLinkType.VALUE:
            return DependentKind.VALUE
        case tree.SubLinkType.ARRAY:
            return DependentKind.ARRAY
        case tree.SubLinkType.ROW:
            return DependentKind.ROW
        case tree.SubLinkType.EXISTS:
            return DependentKind.EXISTS
        case tree.SubLinkType.ANY:
            return DependentKind.ANY
        case tree.SubLinkType.ALL:
            return DependentKind.ALL
        case _:
            assert_never(kind)


def _flatten_test(test: tree.Expression, flatten: Callable[[tree.Expression], tree.Expression]) -> tree.Expression:
    if isinstance(test, tree.Var):
        return test if test.entry == tree.RESULT else flatten(test)
    return walk.rebuild(test, lambda part: _flatten_test(part, flatten))


def to_sublink(condition: query_tree.MatchCondition) -> tree.Expression:
    """Convert a condition of WHERE to an ordinary expression with a SubLink."""
    kind = tree.SubLinkType.EXISTS if condition.test is None else tree.SubLinkType.ANY
    number = query_tree.next_subquery_number()
    blank = tree.SubLink(number, kind, condition.query, None, (), 0, condition.at)
    subquery = query_tree.replace_subquery(blank, condition.query, condition.test)
    return tree.BoolExpr(tree.BoolOperator.NOT, (subquery,)) if condition.negated else subquery
