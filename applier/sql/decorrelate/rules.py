"""A dependent join -> joins: the first rule that applies. Pure.

The result of a subquery is joined to the outer rows as a column. The rules before the last two read only rows of the
inner query itself: its rows are grouped by the values that correlate it with its outer query, with one result per
group. Where there is no group, the column has the result of an empty subquery: NULL for a value (0 for a count), false
for EXISTS and ANY, true for ALL. The last two evaluate any inner query over the domain.
"""

from __future__ import annotations

from collections.abc import Callable

from applier.plan.expr import Coalesce, Const, Expr
from applier.plan.nodes import Node
from applier.sql.bound.nodes import DependentJoin, DependentKind
from applier.sql.decorrelate.aggregate_value import join_aggregate
from applier.sql.decorrelate.any_or_all import join_any_or_all_of_rows
from applier.sql.decorrelate.exists import join_exists
from applier.sql.decorrelate.in_by_hash import join_in_by_hash
from applier.sql.decorrelate.scope import Decorrelator, OuterRows
from applier.sql.decorrelate.single_value import join_first_row, join_single_value, join_uncorrelated_value
from applier.sql.decorrelate.truth_over_domain import join_truth_over_domain
from applier.sql.decorrelate.value_over_domain import join_row_test, join_value_over_domain

Rule = Callable[[Decorrelator, OuterRows, DependentJoin], tuple[Node, Expr] | None]
"""Joins the result of a dependent join to its outer rows; None where the rule does not apply."""

RULES: tuple[Rule, ...] = (
    join_uncorrelated_value,
    join_aggregate,
    join_single_value,
    join_first_row,
    join_exists,
    join_in_by_hash,
    join_any_or_all_of_rows,
    join_row_test,
    join_value_over_domain,
    join_truth_over_domain,
)


def join_result(decorrelator: Decorrelator, outer: OuterRows, dependent: DependentJoin) -> tuple[Node, Expr]:
    """Join the result of a dependent join to its outer rows; return the joined node and the result over it."""
    node, result = next(found for rule in RULES if (found := rule(decorrelator, outer, dependent)) is not None)
    if dependent.kind is DependentKind.ARRAY:
        # Without rows the aggregate is NULL; the array is empty.
        result = Coalesce((result, Const("{}", result.type)), result.type)
    return node, result
