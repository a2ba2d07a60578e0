"""ANY and ALL as values -> counts of the rows of each group that decide them. Pure."""

from __future__ import annotations

from applier.plan.expr import Col, Expr, renumber
from applier.plan.nodes import Node, fields
from applier.sql.bound.columns import ResultCol
from applier.sql.bound.nodes import DependentJoin, DependentKind
from applier.sql.decorrelate.correlated_groups import group_correlated
from applier.sql.decorrelate.domain_groups import join_any_or_all
from applier.sql.decorrelate.exists import needs_domain, truth_rows
from applier.sql.decorrelate.inner_rows import resolve_test
from applier.sql.decorrelate.lowered import resolve_columns
from applier.sql.decorrelate.scope import Decorrelator, OuterRows


def join_any_or_all_of_rows(
    decorrelator: Decorrelator, outer: OuterRows, dependent: DependentJoin
) -> tuple[Node, Expr] | None:
    """Join ANY or ALL of a subquery that reads its outer query only in conditions of WHERE, or not at all."""
    if dependent.kind not in (DependentKind.ANY, DependentKind.ALL) or dependent.test is None:
        return None
    if needs_domain(dependent):
        return None
    inner, width = truth_rows(decorrelator, dependent), len(fields(outer.base))
    whole = resolve_test(dependent.test, outer.scope, inner.results(outer.scope, width))
    groups = group_correlated(outer, inner, dependent, whole)
    results = inner.results(outer.scope, groups.width)
    places = {c.ordinal: i for i, c in enumerate(groups.outer_values) if isinstance(c, Col)}

    def column(reference: Col) -> Expr:
        found = outer.scope.select.columns[reference.ordinal]
        if isinstance(found, ResultCol):
            return results[found.number]
        return renumber(outer.scope.column(reference.ordinal), places.__getitem__)

    test = resolve_columns(dependent.test, column)
    return join_any_or_all(outer.node, groups, test, every=dependent.kind is DependentKind.ALL)
