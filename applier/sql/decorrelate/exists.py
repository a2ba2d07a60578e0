"""EXISTS as a value -> whether the group of an outer row has rows. Pure."""

from __future__ import annotations

from applier.functions.aggregates.aggregates import COUNT_CALL
from applier.plan.expr import Expr
from applier.plan.nodes import Node
from applier.sql.bound.nodes import DependentJoin, DependentKind, Select
from applier.sql.decorrelate.correlated_groups import group_correlated
from applier.sql.decorrelate.domain_groups import greater_than, join_group_results
from applier.sql.decorrelate.inner_rows import InnerResult, InnerRows, uncorrelated_result, uncorrelated_rows
from applier.sql.decorrelate.scope import Decorrelator, OuterRows


def join_exists(decorrelator: Decorrelator, outer: OuterRows, dependent: DependentJoin) -> tuple[Node, Expr] | None:
    """Join EXISTS of a subquery that reads its outer query only in conditions of WHERE, or not at all."""
    if dependent.kind is not DependentKind.EXISTS or needs_domain(dependent):
        return None
    groups = group_correlated(outer, truth_rows(decorrelator, dependent), dependent)
    node, (count,) = join_group_results(outer.node, groups, (COUNT_CALL,))
    return node, greater_than(count, 0)


def needs_domain(dependent: DependentJoin) -> bool:
    """Whether the inner query reads its outer query not only in conditions of WHERE, or does not give row by row."""
    if not dependent.correlation.reads:
        return False
    row_wise = isinstance(dependent.inner, Select) and dependent.inner.is_row_wise and not dependent.limited
    return not row_wise or not dependent.correlation.only_in_where


def truth_rows(decorrelator: Decorrelator, dependent: DependentJoin) -> InnerRows | InnerResult:
    """Return the rows of the inner query that EXISTS, ANY or ALL tests, without its conditions on the outer query."""
    if isinstance(dependent.inner, Select) and dependent.inner.is_row_wise:
        return uncorrelated_rows(decorrelator, dependent.inner)
    return uncorrelated_result(decorrelator, dependent.inner)
