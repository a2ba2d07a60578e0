"""A recursion maintained from its last fixpoint has the same deltas as deriving everything at both ends."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from applier.operators.stateful_nodes import stateful_nodes
from applier.operators.support.partitions import group_equal_rows
from applier.plan.expr import Const
from applier.plan.nodes import Field, Filter, Node, Recursion, UnionAll
from applier.plan.recursion import is_delete_rederivable
from applier.state import delete_rederive
from applier.zset import ZSet
from shared_schema.lsn import Lsn, LsnRange
from tests.applier.operators.plans import INT, less, scan
from tests.applier.operators.test_recursion import EITHER, REACHABLE, STEP, X
from tests.applier.state.test_store import MaintainedTable

pytestmark = pytest.mark.usefixtures("interpreted")

FROM_ZERO = replace(REACHABLE, base=Filter(scan("a"), less(X, Const(1, INT))))
BESIDE = Recursion(1, scan("b"), UnionAll((STEP, Filter(STEP, less(X, Const(3, INT))))), distinct=True)

EDGES = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=8)
DOWNWARDS = EDGES.map(lambda edges: [(min(edge), max(edge)) for edge in edges if edge[0] != edge[1]])
Graph = list[tuple[int, int]]


@pytest.fixture
def never_rederive_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forbid deriving everything again: the result would also be correct, and the test would prove nothing."""

    def forbidden(*_: object) -> ZSet:
        raise AssertionError("derived again")

    monkeypatch.setattr(delete_rederive, "delta_recursion", forbidden)


def _maintain(spark: SparkSession, node: Node, graphs: list[Graph]) -> None:
    contents = [{"a": Counter(graph), "b": Counter(graph[:2])} for graph in graphs]
    maintained = MaintainedTable(spark, node)
    maintained.fill(contents[0], 1)
    for i in range(1, len(contents)):
        maintained.go(contents[i - 1], contents[i], LsnRange(Lsn(i), Lsn(i + 1)))


@pytest.mark.usefixtures("never_rederive_all")
@settings(max_examples=int(os.environ.get("RECURSIONS", "2")), deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data(), distinct=st.booleans())
def test_random_graphs(spark: SparkSession, data: st.DataObject, distinct: bool) -> None:
    """With cycles if a row counts once; without cycles if it counts once per derivation."""
    node = replace(data.draw(st.sampled_from([REACHABLE, FROM_ZERO, BESIDE])), distinct=distinct)
    edges = EDGES if distinct else DOWNWARDS
    _maintain(spark, node, data.draw(st.lists(edges, min_size=3, max_size=3)))


CASES = {
    "a cycle that only derives itself goes": [[(0, 1), (1, 2), (2, 1)], [(1, 2), (2, 1)]],
    "another derivation comes for the one that is lost": [[(0, 1), (1, 2)], [(0, 3), (3, 2), (2, 1), (1, 2)]],
    "two that would derive each other": [[(0, 1), (1, 2), (2, 3)], [(0, 4), (1, 2), (2, 3), (3, 1)]],
    "everything goes and comes back": [[(0, 1), (1, 2)], [], [(0, 1), (1, 2)]],
}


@pytest.mark.usefixtures("never_rederive_all")
@pytest.mark.parametrize("graphs", [pytest.param(graphs, id=name) for name, graphs in CASES.items()])
def test_surprising_changes(spark: SparkSession, graphs: list[Graph]) -> None:
    _maintain(spark, FROM_ZERO, graphs)


def test_a_lost_derivation_is_seen_despite_a_new_one(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """A deliberately wrong rule: as if a row with as many derivations as before had lost none."""

    def netted(columns: Sequence[Field], rows: str, sums: str) -> str:
        return group_equal_rows(columns, rows, sums.replace("sum(if(__w < 0, __w, 0L))", "least(sum(__w), 0L)"))

    monkeypatch.setattr(delete_rederive, "group_equal_rows", netted)
    with pytest.raises(AssertionError):
        _maintain(spark, FROM_ZERO, [[(0, 1), (1, 2), (2, 3)], [(0, 4), (1, 2), (2, 3), (3, 1)]])


def test_a_deep_change_is_derived_again(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delete_rederive, "MAX_REDERIVE_ROUNDS", 1)
    _maintain(spark, REACHABLE, [[(0, 1), (1, 2), (2, 3)], [(0, 1), (1, 2), (2, 3), (3, 4)], [(1, 2), (2, 3), (3, 4)]])


def test_a_step_that_creates_rows_from_nothing_is_not_maintained(spark: SparkSession) -> None:
    assert is_delete_rederivable(REACHABLE) and stateful_nodes(REACHABLE) == [REACHABLE]
    assert not is_delete_rederivable(EITHER) and not stateful_nodes(EITHER)
    _maintain(spark, EITHER, [[(0, 1), (1, 2)], [(1, 2), (2, 3)]])
