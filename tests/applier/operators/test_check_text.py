"""The texts of a plan are written before it is used: too long ones are refused, or are computed in small steps only."""

from __future__ import annotations

import pytest

from applier.errors import QueryTooLarge
from applier.operators.check_text import check_text
from applier.plan.expr import Col, ValueType
from applier.plan.limits import PlanBudget, PlanLimits
from applier.plan.nodes import Field, Join, Node, OuterJoin, Scan, fields
from applier.zset import MAX_TEXT, ZSet
from shared_schema.pg_types import PgType
from shared_schema.table_schema import TableId

INT = ValueType.of_column(PgType(23, -1, "int4", "integer"))
SCAN = Scan(TableId("public", "t"), 1, ("id",), (Field(INT, False),), (0,))


def chain(joins: int, *, outer: bool) -> Node:
    node: Node = SCAN
    for _ in range(joins):
        pair = ((Col(len(fields(node)) - 1, INT, True), Col(0, INT, False)),)
        node = OuterJoin(node, SCAN, pair, None, full=True) if outer else Join(node, SCAN, pair, None)
    return node


def test_a_chain_of_outer_joins() -> None:
    assert check_text(chain(1, outer=True), PlanBudget(PlanLimits()))
    # A large delta is too long, everything else is short enough.
    assert not check_text(chain(4, outer=True), PlanBudget(PlanLimits()))
    for joins in (8, 30):
        with pytest.raises(QueryTooLarge, match="is a text of more than"):
            check_text(chain(joins, outer=True), PlanBudget(PlanLimits()))


def test_a_chain_of_inner_joins_grows_slowly() -> None:
    assert check_text(chain(12, outer=False), PlanBudget(PlanLimits()))
    with pytest.raises(QueryTooLarge, match="to plan"):
        check_text(chain(150, outer=False), PlanBudget(PlanLimits(max_planning_s=0.2)))


def test_no_text_grows_without_end() -> None:
    zset = ZSet.of_view("v" * 1_000_000, 1)
    with pytest.raises(QueryTooLarge, match=f"more than {MAX_TEXT} characters"):
        for _ in range(10):
            zset = zset.plus(zset)
