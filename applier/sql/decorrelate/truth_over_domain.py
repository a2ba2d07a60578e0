"""EXISTS, ANY and ALL of any subquery as values -> counts of rows, evaluated over the domain. Pure."""

from __future__ import annotations

from applier.functions.aggregates.aggregates import COUNT_CALL
from applier.plan.expr import Col, Expr
from applier.plan.nodes import Node
from applier.sql.bound.columns import ComputedCol, OuterCol, ResultCol
from applier.sql.bound.nodes import DependentJoin, DependentKind
from applier.sql.decorrelate.domain import DomainResult, evaluate
from applier.sql.decorrelate.domain_groups import greater_than, group_by_domain, join_any_or_all, join_group_results
from applier.sql.decorrelate.lowered import resolve_columns
from applier.sql.decorrelate.scope import Decorrelator, OuterRows


def join_truth_over_domain(
    decorrelator: Decorrelator, outer: OuterRows, dependent: DependentJoin
) -> tuple[Node, Expr] | None:
    """Join EXISTS, ANY or ALL of any correlated subquery."""
    if dependent.kind not in (DependentKind.EXISTS, DependentKind.ANY, DependentKind.ALL):
        return None
    result = evaluate(decorrelator, outer, dependent)
    groups = group_by_domain(result)
    if dependent.test is None:
        node, (count,) = join_group_results(outer.node, groups, (COUNT_CALL,))
        return node, greater_than(count, dependent.skipped)
    test = _test_over_domain(dependent.test, outer, result)
    return join_any_or_all(outer.node, groups, test, every=dependent.kind is DependentKind.ALL)


def _test_over_domain(test: Expr, outer: OuterRows, result: DomainResult) -> Expr:
    """Resolve a test: columns of the result, and columns of the outer query, which the domain has."""
    select = outer.scope.select

    def column(reference: Col) -> Expr:
        found = select.columns[reference.ordinal]
        if isinstance(found, ResultCol):
            return result.result_columns[found.number]
        position = result.positions.get(OuterCol(select.number, reference.ordinal))
        if position is not None:
            return result.domain_columns[position]
        if isinstance(found, ComputedCol):
            return resolve_columns(found.expr, column)
        raise AssertionError("a test reads a column that the domain does not have")

    return resolve_columns(test, column)
