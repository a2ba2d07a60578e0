"""The rows of a subquery and its conditions on the outer query -> its rows in one group per outer value. Pure.

Where all conditions are equalities, the group keys are the subquery's own columns. Otherwise they are the distinct
outer values (the domain), each joined with the subquery's rows that satisfy the conditions.
"""

from __future__ import annotations

from applier.plan.expr import Expr
from applier.plan.nodes import fields
from applier.sql.bound.conditions import can_push_down
from applier.sql.bound.nodes import DependentJoin
from applier.sql.decorrelate.domain_groups import DomainGroups, group_by_outer_values
from applier.sql.decorrelate.inner_rows import InnerResult, InnerRows
from applier.sql.decorrelate.key_pairs import split_condition
from applier.sql.decorrelate.scope import OuterRows
from applier.sql.refusal import Reason, Refused


def group_correlated(
    outer: OuterRows, inner: InnerRows | InnerResult, dependent: DependentJoin, test: Expr | None = None
) -> DomainGroups:
    """Group the rows of a subquery by the outer values of its conditions, and by those of the test.

    The test is over the outer rows before other dependent joins, joined with the rows of the subquery.
    """
    width = len(fields(outer.base))
    conditions = inner.conditions(outer.scope, width)
    if not all(can_push_down(c) for c in conditions):
        construct = "a subquery whose condition on the outer query may raise an error"
        raise Refused(Reason.CONSTRUCT, construct, hint="join the subquery in FROM", token=dependent.at)
    equi, residual = split_condition(conditions, width)
    if residual is None and test is None:
        keys = tuple(theirs for _, theirs in equi)
        return DomainGroups(inner.node, keys, tuple(ours for ours, _ in equi), 0)
    expressions = [*conditions, *(() if test is None else (test,))]
    return group_by_outer_values(outer.base, inner.node, conditions, expressions)
