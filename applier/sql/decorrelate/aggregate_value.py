"""An aggregate without GROUP BY, per outer row -> an aggregate per group, joined to the outer rows. Pure.

(SELECT count(*) FROM b WHERE b.x = a.x)  ->  a LEFT JOIN (SELECT x, count(*) FROM b GROUP BY x), NULL is 0
"""

from __future__ import annotations

from applier.plan.expr import Col, Expr
from applier.plan.nodes import Node
from applier.sql.bound.columns import CallCol
from applier.sql.bound.nodes import DependentJoin, Select
from applier.sql.decorrelate.correlated_groups import group_correlated
from applier.sql.decorrelate.domain_groups import join_group_results
from applier.sql.decorrelate.grouping import resolve_calls
from applier.sql.decorrelate.inner_rows import uncorrelated_rows
from applier.sql.decorrelate.lowered import resolve_columns
from applier.sql.decorrelate.scope import Decorrelator, OuterRows
from applier.sql.decorrelate.single_value import VALUES
from applier.sql.refusal import Reason, Refused


def join_aggregate(decorrelator: Decorrelator, outer: OuterRows, dependent: DependentJoin) -> tuple[Node, Expr] | None:
    """Join an aggregate of a subquery that reads its outer query only in conditions of WHERE."""
    select = dependent.inner
    if dependent.kind not in VALUES or not isinstance(select, Select) or not dependent.correlation.only_in_where:
        return None
    group = select.group
    if group is None or group.keys or group.having is not None:
        return None
    if select.has_windows or select.set_functions or select.set_keys:
        return None
    if group.dependent:
        construct = "a column of an outer query together with an aggregate"
        raise Refused(Reason.CONSTRUCT, construct, hint="join the subquery in FROM")
    inner = uncorrelated_rows(decorrelator, select)
    groups = group_correlated(outer, inner, dependent)
    (target,) = select.targets

    def resolve(expr: Expr) -> Expr:
        return inner.resolve([expr], outer.scope, groups.width)[0]

    calls = resolve_calls(group.calls, groups.node, resolve, groups.keys)
    distinct = tuple(dict.fromkeys(calls))
    node, found = join_group_results(outer.node, groups, distinct)

    def column(reference: Col) -> Expr:
        of = select.columns[reference.ordinal]
        if isinstance(of, CallCol):
            return found[distinct.index(calls[of.number])]
        return inner.rows.scope.column(reference.ordinal)

    return node, resolve_columns(target, column)
