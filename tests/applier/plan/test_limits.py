"""The limits of a query's form: what is too large or takes too long to plan is refused while it is planned."""

from __future__ import annotations

import pytest

from applier.errors import QueryTooLarge
from applier.plan.limits import PlanBudget, PlanLimits
from applier.plan.nodes import Scan, UnionAll
from shared_schema.table_schema import TableId

SCAN = Scan(TableId("public", "t"), 1, (), (), None)


def test_nodes_are_counted_as_they_are_read() -> None:
    budget = PlanBudget(PlanLimits(max_plan_nodes=7))
    twice = UnionAll((SCAN, SCAN))
    budget.check(UnionAll((twice, twice)))
    with pytest.raises(QueryTooLarge, match="more than 7 nodes"):
        budget.check(UnionAll((twice, twice, SCAN)))
    # A part that is used twice at each of a hundred levels has more nodes than can be counted.
    node: UnionAll = twice
    for _ in range(100):
        node = UnionAll((node, node))
    with pytest.raises(QueryTooLarge, match="max_plan_nodes"):
        budget.check(node)


def test_planning_ends_in_time() -> None:
    now = [0.0]
    budget = PlanBudget(PlanLimits(max_planning_s=5), lambda: now[0])
    budget.check(SCAN)
    now[0] = 5.1
    for check in (budget.check_time, lambda: budget.check(SCAN), lambda: budget.check_text("")):
        with pytest.raises(QueryTooLarge, match="more than 5 s to plan"):
            check()


def test_texts_have_a_length() -> None:
    budget = PlanBudget(PlanLimits(max_plan_text=10))
    budget.check_text("x" * 10)
    with pytest.raises(QueryTooLarge, match="more than 10 characters"):
        budget.check_text("x" * 11)
