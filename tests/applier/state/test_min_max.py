"""Stored minima and maxima: always equal to those over all values, which are rarely read."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from applier.operators.stateful_nodes import stateful_nodes
from applier.operators.support.inputs import Inputs
from applier.plan.expr import AggregateCall, Col, Const
from applier.plan.nodes import Aggregate, Filter, Node
from applier.state.min_max import MinMaxState
from shared_schema.lsn import Lsn, LsnRange
from tests.applier.operators.plans import BIG, INT, Bag, Row, bags, less, scan
from tests.applier.state.test_store import MaintainedTable

pytestmark = pytest.mark.usefixtures("interpreted")

X, Y = Col(0, INT), Col(1, INT)
LEAST, LARGEST = AggregateCall("min(int4)", (Y,), INT), AggregateCall("max(int4)", (Y,), INT)
SUM = AggregateCall("sum(int4)", (Y,), BIG)
FILTERED = AggregateCall("max(int4)", (Y,), INT, filter=less(X, Y))
BY_X: Node = Aggregate(scan("a"), (X,), (LEAST, SUM, LARGEST))
OF_ALL: Node = Aggregate(Filter(scan("a"), less(X, Const(2, INT))), (), (LARGEST, FILTERED))


def _maintain(spark: SparkSession, node: Node, rows: list[Bag]) -> MaintainedTable:
    maintained = MaintainedTable(spark, node)
    maintained.fill({"a": rows[0], "b": Bag()}, 1)
    for i in range(1, len(rows)):
        maintained.go({"a": rows[i - 1], "b": Bag()}, {"a": rows[i], "b": Bag()}, LsnRange(Lsn(i), Lsn(i + 1)))
    return maintained


@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
@given(node=st.sampled_from([BY_X, OF_ALL]), rows=st.lists(bags, min_size=4, max_size=4))
def test_values_come_and_go(spark: SparkSession, node: Node, rows: list[Bag]) -> None:
    assert stateful_nodes(node) == [node]
    _maintain(spark, node, rows)


HILL: list[list[Row]] = [[(1, 1), (1, 5), (2, 3)], [(1, 1), (1, 5), (1, 7)], [(1, 2), (1, 5), (1, 7)], [(1, 4)], []]
"""A larger value is inserted and a group deleted; then the minimum is deleted; the maximum too; everything."""


def test_a_group_is_read_only_when_its_extreme_leaves(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    whole = MinMaxState._read_groups

    def seen(self: MinMaxState, keys: list[Row], inputs: Inputs) -> dict[Row, Row]:
        read.append(len(keys))
        return whole(self, keys, inputs)

    monkeypatch.setattr(MinMaxState, "_read_groups", seen)
    _maintain(spark, BY_X, [Counter(rows) for rows in (HILL[0], [*HILL[0], (1, 7), (2, 0), (1, 3)], HILL[0][:2])])
    # Only in the last LSN range: the maximum of group 1 is deleted. Group 2 is deleted completely.
    assert read == [1]


def test_everything_goes(spark: SparkSession) -> None:
    _maintain(spark, BY_X, [Counter(rows) for rows in HILL])


def test_an_extreme_that_leaves_is_noticed(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """A deliberately wrong rule: as if no value were deleted."""
    whole = MinMaxState._apply_delta
    monkeypatch.setattr(
        MinMaxState, "_apply_delta", lambda self, old, leaves, comes: whole(self, old, (None,) * len(leaves), comes)
    )
    with pytest.raises(AssertionError):
        _maintain(spark, BY_X, [Counter(rows) for rows in HILL])
