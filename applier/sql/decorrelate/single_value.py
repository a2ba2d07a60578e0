"""A subquery with at most one row -> its value as a column. Pure.

(SELECT b.y FROM b WHERE b.x = a.x)                        more than one row for an outer row is an error
(SELECT b.y FROM b WHERE b.x = a.x ORDER BY b.z LIMIT 1)   the first row of each group
"""

from __future__ import annotations

from dataclasses import replace

from applier.functions.aggregates.aggregates import ONLY_ROW
from applier.plan.expr import AggregateCall, Col, Expr
from applier.plan.keys import row_key
from applier.plan.nodes import Aggregate, Join, Node, Project, SemiJoin, TopK, fields
from applier.sql.bound.nodes import DependentJoin, DependentKind, Select, TopRows
from applier.sql.decorrelate.correlated_groups import group_correlated
from applier.sql.decorrelate.domain_groups import DomainGroups, join_group_results
from applier.sql.decorrelate.grouping import map_order
from applier.sql.decorrelate.inner_rows import uncorrelated_result, uncorrelated_rows
from applier.sql.decorrelate.lowered import bound_columns, resolve_over
from applier.sql.decorrelate.scope import Decorrelator, OuterRows

VALUES = (DependentKind.VALUE, DependentKind.ARRAY)


def join_uncorrelated_value(
    decorrelator: Decorrelator, outer: OuterRows, dependent: DependentJoin
) -> tuple[Node, Expr] | None:
    """Join the value of a subquery that reads no outer query: a cross join with one row."""
    if dependent.kind not in VALUES or dependent.correlation.reads:
        return None
    single = _reduce_to_single_row(uncorrelated_result(decorrelator, dependent.inner).node)
    joined = Join(outer.node, single, (), None)
    return joined, bound_columns(joined)[len(fields(outer.node))]


def join_single_value(
    decorrelator: Decorrelator, outer: OuterRows, dependent: DependentJoin
) -> tuple[Node, Expr] | None:
    """Join the value of a subquery that reads its outer query only in conditions of WHERE."""
    select = dependent.inner
    if dependent.kind not in VALUES or not isinstance(select, Select) or not select.is_row_wise:
        return None
    if not dependent.correlation.only_in_where:
        return None
    inner = uncorrelated_rows(decorrelator, select)
    groups = group_correlated(outer, inner, dependent)
    (value,) = inner.results(outer.scope, groups.width)
    if not _has_unique_keys(groups):
        # More than one row is an error only for values that an outer row has.
        keys = tuple(zip(groups.keys, groups.outer_values, strict=True))
        groups = replace(groups, node=SemiJoin(groups.node, outer.base, keys, None, anti=False))
    return _join_only_row(outer, groups, value)


def join_first_row(decorrelator: Decorrelator, outer: OuterRows, dependent: DependentJoin) -> tuple[Node, Expr] | None:
    """Join the value of the first row of a subquery with LIMIT 1."""
    top = dependent.inner
    if dependent.kind not in VALUES or not isinstance(top, TopRows) or not top.is_first_row:
        return None
    if not isinstance(top.input, Select) or not top.input.is_row_wise or not dependent.correlation.only_in_where:
        return None
    inner = uncorrelated_rows(decorrelator, top.input)
    groups = group_correlated(outer, inner, dependent)
    targets = inner.results(outer.scope, groups.width)
    order = map_order(top.order, lambda expr: resolve_over(expr, targets))
    groups = replace(groups, node=TopK(groups.node, groups.keys, order, 1, 0, ties=False))
    return _join_only_row(outer, groups, targets[0])


def only_row(value: Expr) -> AggregateCall:
    """Build the aggregate that returns the value of the only row; more rows are an error."""
    return AggregateCall(ONLY_ROW, (value,), value.type)


def _join_only_row(outer: OuterRows, groups: DomainGroups, value: Expr) -> tuple[Node, Expr]:
    node, (found,) = join_group_results(outer.node, groups, (only_row(value),))
    return node, found


def _has_unique_keys(groups: DomainGroups) -> bool:
    key = row_key(groups.node)
    return key is not None and set(key) <= {k.ordinal for k in groups.keys if isinstance(k, Col)}


def _reduce_to_single_row(node: Node) -> Node:
    """Reduce a subquery to its single row, or NULL; more rows are an error."""
    if _has_one_row(node):
        return node
    (value,) = bound_columns(node)
    return Aggregate(node, (), (only_row(value),))


def _has_one_row(node: Node) -> bool:
    if isinstance(node, Project):
        return _has_one_row(node.input)
    return isinstance(node, Aggregate) and not node.keys
