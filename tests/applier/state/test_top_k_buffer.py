"""The top-k buffer of a LIMIT: always the same result as from the whole input, which is rarely read."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from applier.operators.incrementalize import snapshot
from applier.operators.support.inputs import Inputs, Side
from applier.plan.expr import Col, SortKey
from applier.plan.nodes import Aggregate, Node, TopK
from applier.state import store as states_module
from applier.state import top_k_buffer
from applier.zset import ZSet
from shared_schema.lsn import Lsn, LsnRange
from tests.applier.operators.plans import BIG, INT, Bag, bags, scan
from tests.applier.state.test_store import COUNT_SUM, MaintainedTable

pytestmark = pytest.mark.usefixtures("interpreted")

X, Y = Col(0, INT), Col(1, INT)
ASC_X, DESC_Y = SortKey(X, False, False), SortKey(Y, True, True)
FIRST: Node = TopK(scan("a"), (), (ASC_X, DESC_Y), 2, 0, False)
THIRD: Node = TopK(scan("a"), (), (DESC_Y, ASC_X), 1, 2, False)
TIED: Node = TopK(scan("a"), (), (ASC_X,), 1, 0, True)
GROUPS: Node = TopK(Aggregate(scan("a"), (X,), COUNT_SUM), (), (SortKey(Col(1, BIG), True, False), ASC_X), 2, 0, False)


def _maintain(spark: SparkSession, node: Node, rows: list[Bag]) -> None:
    contents = [{"a": one, "b": Bag()} for one in rows]
    maintained = MaintainedTable(spark, node)
    maintained.fill(contents[0], 1)
    for i in range(1, len(contents)):
        maintained.go(contents[i - 1], contents[i], LsnRange(Lsn(i), Lsn(i + 1)))


@settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    node=st.sampled_from([FIRST, THIRD, TIED, GROUPS]),
    rows=st.lists(bags, min_size=5, max_size=5),
    spare=st.integers(0, 3),
)
def test_rows_come_and_go(spark: SparkSession, node: Node, rows: list[Bag], spare: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(top_k_buffer, "SPARE", spare)
        _maintain(spark, node, rows)


LINE: list[Bag] = [Counter((i, i) for i in range(start, 30)) for start in range(6)]
"""The first row is deleted repeatedly."""


def test_the_input_is_read_when_what_is_spare_is_used_up(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(top_k_buffer, "SPARE", 3)
    read: list[Side] = []

    def seen(node: Node, side: Side, inputs: Inputs) -> ZSet:
        read.append(side)
        return snapshot(node, side, inputs)

    monkeypatch.setattr(states_module, "snapshot", seen)
    _maintain(spark, FIRST, LINE)
    assert read == [Side.AFTER, Side.BEFORE]


def test_rows_after_the_border_are_not_mistaken_for_the_next(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A deliberately wrong rule: as if the buffer still reached as far as before."""
    monkeypatch.setattr(top_k_buffer, "SPARE", 3)
    monkeypatch.setattr(top_k_buffer, "count_leaving", lambda _: 0)
    with pytest.raises(AssertionError):
        _maintain(spark, FIRST, LINE)


def test_rows_far_after_the_border_are_dropped(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(top_k_buffer, "SPARE", 1)
    rows: list[Bag] = [Counter((i, i) for i in range(end)) for end in (2, 30, 60)]
    _maintain(spark, FIRST, [*rows, Counter([(50, 1)])])
