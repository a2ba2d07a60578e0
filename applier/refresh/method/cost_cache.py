"""Stream tables in; their cost models out, the least recently used ones forgotten and read from the history again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from applier.catalog.history import MeasuredRefresh
from applier.plan.stream_table import StreamTable
from applier.refresh.method.cost_model import CostModel, DifferentialCost, FullCost
from applier.refresh.method.refresh import RefreshResult
from applier.refresh.method.strategy import NEW_CONTENT, RefreshMethod, RefreshReason


@dataclass
class CostCache:
    """The cost models of at most `capacity` stream tables. A tick uses it; other threads read the counters."""

    load: Callable[[int], CostModel]
    """Reads the model of a stream table from the history."""
    capacity: Callable[[], int]
    hits: int = 0
    misses: int = 0
    _models: OrderedDict[int, tuple[StreamTable, CostModel]] = field(default_factory=OrderedDict)
    """With the plan that the model was read for: a new query has other costs."""

    def find(self, table: StreamTable) -> CostModel:
        """Return the model of a stream table, from memory or else from the history."""
        held = self._models.get(table.id)
        if held is not None and held[0] is table:
            self.hits += 1
            model = held[1]
        else:
            self.misses += 1
            model = self.load(table.id)
            self._models[table.id] = table, model
        self._models.move_to_end(table.id)
        while len(self._models) > self.capacity():
            self._models.popitem(last=False)
        return model

    def learn(self, result: RefreshResult) -> None:
        """Add a committed refresh to its model. A model that is not in memory will be read with it."""
        refresh, write_ms = result.refresh, result.write_time.ms
        strategy, held = refresh.strategy, self._models.get(refresh.table.id)
        if held is None or held[0] is not refresh.table:
            return
        if strategy.reason in NEW_CONTENT:
            held = self._models[refresh.table.id] = refresh.table, CostModel()
        model = held[1]
        if write_ms is None:
            return
        if strategy.method is RefreshMethod.DIFFERENTIAL:
            model.add(DifferentialCost(result.started, refresh.changes, result.compute_ms, write_ms))
        elif strategy.method is RefreshMethod.FULL and strategy.reason is not RefreshReason.REPAIR:
            # A repair computes the delta as well.
            model.fulls.append(FullCost(result.compute_ms + write_ms, refresh.source_rows))

    def forget(self, pgt_id: int) -> None:
        """Forget the model of a stream table that was dropped."""
        self._models.pop(pgt_id, None)

    @property
    def counters(self) -> dict[str, int]:
        """What `pgtrickle.scheduler_diagnostics()` shows."""
        return {"cost_cache_entries": len(self._models), "cost_cache_hits": self.hits, "cost_cache_misses": self.misses}


def model_of(measured: Sequence[MeasuredRefresh]) -> CostModel:
    """Return the model of the refreshes of the history, oldest first."""
    return CostModel.of(
        (DifferentialCost(one.at, int(one.rows), one.compute_ms, one.write_ms) for one in measured if not one.is_full),
        (FullCost(one.compute_ms + one.write_ms, int(one.rows)) for one in measured if one.is_full),
    )
