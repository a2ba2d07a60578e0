"""EXISTS and IN in WHERE -> semi- and anti-joins. Pure.

NOT IN is true when every comparison is false. That excludes an outer row with an equal match, every outer row if the
subquery returns a NULL, and an outer row that is NULL itself if the subquery returns any row. These are three
anti-joins, two of them only where a NULL is possible.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from applier.plan.expr import BOOL, BoolOp, Coalesce, Col, Const, Expr, IsNull, Logic, nullable
from applier.plan.nodes import Filter, Node, SemiJoin, fields
from applier.sql.bound.columns import SubqueryCol
from applier.sql.bound.conditions import can_push_down, conjunction, split_conjunction
from applier.sql.bound.nodes import DependentJoin, DependentKind, MatchJoin, Select
from applier.sql.decorrelate.domain import evaluate
from applier.sql.decorrelate.inner_rows import (
    InnerResult,
    InnerRows,
    resolve_test,
    uncorrelated_result,
    uncorrelated_rows,
)
from applier.sql.decorrelate.key_pairs import split_condition
from applier.sql.decorrelate.scope import Decorrelator, OuterRows, Rows
from applier.sql.refusal import Reason, Refused


def is_semi_join(select: Select, match: MatchJoin) -> bool:
    """Whether EXISTS or IN becomes a semi-join: the subquery reads the outer query only in its own WHERE."""
    dependent = select.subqueries[match.subquery]
    if not dependent.correlation.reads:
        return True
    row_wise = isinstance(dependent.inner, Select) and dependent.inner.is_row_wise and not dependent.limited
    return row_wise and dependent.correlation.only_in_where


def semi_join_rows(decorrelator: Decorrelator, select: Select, match: MatchJoin) -> InnerRows | InnerResult:
    """Return the rows of the subquery alone, and its conditions on the outer query."""
    dependent = select.subqueries[match.subquery]
    if dependent.correlation.reads and isinstance(dependent.inner, Select):
        return uncorrelated_rows(decorrelator, dependent.inner)
    return uncorrelated_result(decorrelator, dependent.inner)


def join_match(rows: Rows, match: MatchJoin, inner: InnerRows | InnerResult) -> Rows:
    """Keep the rows for which EXISTS or IN, or NOT of it, is true."""
    width, scope, dependent = len(fields(rows.node)), rows.scope, rows.select.subqueries[match.subquery]
    conditions = [_check_pushable(c, dependent) for c in inner.conditions(scope, width)]
    results = () if dependent.test is None else inner.results(scope, width)
    parts = split_conjunction(dependent.test)
    test = [_check_pushable(resolve_test(part, scope, results), dependent) for part in parts]
    if not match.negated or not test:
        return replace(rows, node=_join(rows.node, inner.node, [*conditions, *test], anti=match.negated))
    return replace(rows, node=_not_in(rows.node, inner.node, conditions, test))


def filter_by_exists(decorrelator: Decorrelator, outer: OuterRows, condition: Expr) -> Node | None:
    """Keep the outer rows that satisfy a correlated EXISTS or NOT EXISTS; None for any other condition."""
    match condition:
        case Col(ordinal=ordinal):
            negated = False
        case BoolOp(logic=Logic.NOT, args=(Col(ordinal=ordinal),)):
            negated = True
        case _:
            return None
    column = outer.scope.select.columns[ordinal]
    if not isinstance(column, SubqueryCol):
        return None
    dependent = outer.scope.select.subqueries[column.subquery]
    if dependent.kind is not DependentKind.EXISTS or not dependent.correlation.reads or dependent.limited:
        return None
    result = evaluate(decorrelator, outer, dependent)
    return SemiJoin(outer.node, result.node, result.join_keys, None, negated)


def _check_pushable(condition: Expr, dependent: DependentJoin) -> Expr:
    if can_push_down(condition):
        return condition
    hint = "compute the expression in a subquery in FROM"
    construct = "a subquery whose condition on the outer query may raise an error"
    raise Refused(Reason.CONSTRUCT, construct, hint=hint, token=dependent.at)


def _join(left: Node, right: Node, conditions: Sequence[Expr], *, anti: bool) -> SemiJoin:
    equi, residual = split_condition(conditions, len(fields(left)))
    return SemiJoin(left, right, equi, residual, anti)


def _not_in(left: Node, right: Node, conditions: Sequence[Expr], test: Sequence[Expr]) -> Node:
    equi, rest = split_condition(test, len(fields(left)))
    if len(equi) != 1 or rest is not None:
        # Several columns, or no equality to hash: a comparison that is not false excludes the row.
        not_false = Coalesce((conjunction(test), Const(True, BOOL)), BOOL)
        return _join(left, right, [*conditions, not_false], anti=True)
    ours, theirs = equi[0]
    node = _join(left, right, [*conditions, *test], anti=True)
    if nullable(theirs):
        node = _join(node, Filter(right, IsNull(theirs, False, BOOL)), conditions, anti=True)
    if nullable(ours):
        node = _join(node, right, [*conditions, IsNull(ours, False, BOOL)], anti=True)
    return node
