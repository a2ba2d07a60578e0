"""Any subquery with at most one row -> its columns, evaluated over the domain. Pure."""

from __future__ import annotations

from applier.plan.expr import Expr
from applier.plan.nodes import Aggregate, Join, Node, OuterJoin, fields
from applier.sql.bound.nodes import DependentJoin, DependentKind
from applier.sql.decorrelate.domain import evaluate_query
from applier.sql.decorrelate.domain_groups import group_by_domain, join_group_results
from applier.sql.decorrelate.inner_rows import resolve_test, uncorrelated_result
from applier.sql.decorrelate.lowered import bound_columns
from applier.sql.decorrelate.scope import Decorrelator, OuterRows
from applier.sql.decorrelate.single_value import VALUES, only_row


def join_value_over_domain(
    decorrelator: Decorrelator, outer: OuterRows, dependent: DependentJoin
) -> tuple[Node, Expr] | None:
    """Join the value of any correlated subquery."""
    if dependent.kind not in VALUES:
        return None
    node, (value,) = _join_single_row(decorrelator, outer, dependent)
    return node, value


def join_row_test(decorrelator: Decorrelator, outer: OuterRows, dependent: DependentJoin) -> tuple[Node, Expr] | None:
    """Join the test of a row comparison; where the subquery has no row, its columns and the test are NULL."""
    if dependent.kind is not DependentKind.ROW or dependent.test is None:
        return None
    node: Node
    if dependent.correlation.reads:
        node, found = _join_single_row(decorrelator, outer, dependent)
    else:
        below = uncorrelated_result(decorrelator, dependent.inner).node
        only = tuple(only_row(column) for column in bound_columns(below))
        node = Join(outer.node, Aggregate(below, (), only), (), None)
        found = list(bound_columns(node)[len(fields(outer.node)) :])
    return node, resolve_test(dependent.test, outer.scope, found)


def _join_single_row(decorrelator: Decorrelator, outer: OuterRows, dependent: DependentJoin) -> tuple[Node, list[Expr]]:
    """Join the columns of the single row of the subquery for each outer row; NULL where there is none."""
    result = evaluate_query(decorrelator, outer, dependent.inner, dependent.correlation.reads)
    if result.has_single_row:
        node = OuterJoin(outer.node, result.node, result.join_keys, None, full=False)
        first = len(fields(outer.node))
        return node, list(bound_columns(node)[first : first + result.width])
    only = tuple(only_row(column) for column in result.result_columns)
    return join_group_results(outer.node, group_by_domain(result), only)
