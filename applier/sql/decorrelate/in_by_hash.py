"""x IN (subquery) as a value -> counts of the rows that are equal to x. Pure."""

from __future__ import annotations

from dataclasses import replace

from applier.functions.aggregates.aggregates import COUNT_CALL
from applier.plan.expr import BOOL, BoolOp, Case, Const, Expr, IsNull, Logic, nullable
from applier.plan.nodes import Node, fields
from applier.sql.bound.conditions import split_conjunction
from applier.sql.bound.nodes import DependentJoin, DependentKind
from applier.sql.decorrelate.domain_groups import DomainGroups, greater_than, join_group_results
from applier.sql.decorrelate.exists import needs_domain, truth_rows
from applier.sql.decorrelate.inner_rows import resolve_test
from applier.sql.decorrelate.key_pairs import split_condition
from applier.sql.decorrelate.scope import Decorrelator, OuterRows


def join_in_by_hash(decorrelator: Decorrelator, outer: OuterRows, dependent: DependentJoin) -> tuple[Node, Expr] | None:
    """Join x IN (…) by the hash of x, where all correlated conditions are equalities."""
    if dependent.kind is not DependentKind.ANY or dependent.test is None or needs_domain(dependent):
        return None
    inner, width = truth_rows(decorrelator, dependent), len(fields(outer.base))
    pairs, residual = split_condition(inner.conditions(outer.scope, width), width)
    results = inner.results(outer.scope, width)
    parts = split_conjunction(dependent.test)
    compared, rest = split_condition([resolve_test(part, outer.scope, results) for part in parts], width)
    if residual is not None or rest is not None or len(compared) != 1:
        return None
    (ours, theirs), rows = compared[0], inner.node
    outer_values, keys = tuple(value for value, _ in pairs), tuple(key for _, key in pairs)
    node, (equal,) = join_group_results(
        outer.node, DomainGroups(rows, (*keys, theirs), (*outer_values, ours), 0), (COUNT_CALL,)
    )
    branches: list[tuple[Expr, Expr]] = [(greater_than(equal), Const(True, BOOL))]
    if nullable(ours) or nullable(theirs):
        calls = (COUNT_CALL, replace(COUNT_CALL, filter=IsNull(theirs, False, BOOL)))
        node, (any_, nulls) = join_group_results(node, DomainGroups(rows, keys, outer_values, 0), calls)
        compared_null = BoolOp(Logic.AND, (IsNull(ours, False, BOOL), greater_than(any_)), BOOL)
        branches.append((BoolOp(Logic.OR, (compared_null, greater_than(nulls)), BOOL), Const(None, BOOL)))
    return node, Case(tuple(branches), Const(False, BOOL), BOOL)
