"""Cost models in memory: bounded, counted, and read from the history again."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from applier.plan.stream_table import StreamTable
from applier.refresh.method.cost_cache import CostCache
from applier.refresh.method.cost_model import CostModel, DifferentialCost, FullCost
from applier.refresh.method.refresh import RefreshResult, WriteTime
from applier.refresh.method.strategy import NEW_CONTENT, RefreshMethod, RefreshReason, Strategy

NOW = datetime(2026, 5, 17, tzinfo=UTC)


@dataclass
class _Table:
    id: int


@dataclass
class _Refresh:
    table: StreamTable
    strategy: Strategy
    changes: int = 3_000
    source_rows: int = 50_000


def table(pgt_id: int) -> StreamTable:
    return cast(StreamTable, _Table(pgt_id))


def result(
    of: StreamTable, method: RefreshMethod, reason: RefreshReason = RefreshReason.MODE, write_ms: float | None = 20.0
) -> RefreshResult:
    refresh = cast(Any, _Refresh(of, Strategy(method, reason)))
    return RefreshResult(refresh, None, NOW, 100.0, WriteTime(write_ms))


def test_the_least_recently_used_is_forgotten() -> None:
    loaded: list[int] = []

    def load(pgt_id: int) -> CostModel:
        loaded.append(pgt_id)
        return CostModel()

    capacity = 2
    cache = CostCache(load, lambda: capacity)
    one, two, three = table(1), table(2), table(3)
    for asked in (one, two, one, three, one, two):
        cache.find(asked)
    assert loaded == [1, 2, 3, 2]
    assert cache.counters == {"cost_cache_entries": 2, "cost_cache_hits": 2, "cost_cache_misses": 4}
    # A new plan of the same stream table has other costs.
    again = table(2)
    cache.find(again)
    assert loaded[-1] == 2 and cache.misses == 5
    # A smaller capacity is kept at the next use, also of a model that is there, and what was dropped is forgotten.
    capacity = 1
    cache.find(again)
    assert cache.counters == {"cost_cache_entries": 1, "cost_cache_hits": 3, "cost_cache_misses": 5}
    cache.forget(2)
    assert cache.counters["cost_cache_entries"] == 0


def test_what_is_committed_is_learnt_by_the_method_that_was_executed() -> None:
    cache, one = CostCache(lambda _: CostModel(), lambda: 2), table(1)
    cache.learn(result(one, RefreshMethod.FULL))
    model = cache.find(one)
    assert not model.fulls, "what is not in memory is read from the history"
    cache.learn(result(one, RefreshMethod.FULL))
    cache.learn(result(one, RefreshMethod.FULL, RefreshReason.REPAIR))
    cache.learn(result(one, RefreshMethod.IN_POSTGRES))
    cache.learn(result(one, RefreshMethod.DIFFERENTIAL))
    cache.learn(result(one, RefreshMethod.DIFFERENTIAL, write_ms=None))
    assert list(model.fulls) == [FullCost(120.0, 50_000)]
    assert list(model.differentials) == [DifferentialCost(NOW, 3_000, 100.0, 20.0)]
    # Of an earlier plan.
    cache.learn(result(table(1), RefreshMethod.DIFFERENTIAL))
    assert cache.find(one) is model and len(model.differentials) == 1


@pytest.mark.parametrize("reason", sorted(NEW_CONTENT, key=str))
def test_what_was_measured_before_all_rows_were_new_says_nothing(reason: RefreshReason) -> None:
    one = table(1)
    cache = CostCache(lambda _: CostModel.of([DifferentialCost(NOW, 9, 9, 9)], [FullCost(9, 9)]), lambda: 2)
    cache.find(one)
    cache.learn(result(one, RefreshMethod.FULL, reason))
    assert cache.find(one) == CostModel.of([], [FullCost(120.0, 50_000)])
