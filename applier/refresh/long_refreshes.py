"""Refreshes that take long go on beside the ticks, so that nobody else waits for them."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from applier.refresh.refresh import Refresh, RefreshResult
from applier.refresh.strategy import RefreshMethod


@dataclass
class LongRefreshes:
    """At most one per stream table; `wake` is called whenever one ends."""

    workers: ThreadPoolExecutor
    wake: Callable[[], None]
    _running: dict[int, tuple[Refresh, Future[RefreshResult]]] = field(default_factory=dict)

    def begin(self, refresh: Refresh, run: Callable[[Refresh], RefreshResult]) -> None:
        """Start it."""
        future = self.workers.submit(run, refresh)
        self._running[refresh.table.id] = refresh, future
        future.add_done_callback(lambda _: self.wake())

    def busy(self, table_id: int) -> bool:
        """Whether the stream table's refresh is under way or waits to be written."""
        return table_id in self._running

    @property
    def any_left(self) -> bool:
        """Whether one is under way or waits to be written."""
        return bool(self._running)

    @property
    def any_done(self) -> bool:
        """Whether one waits to be written."""
        return any(future.done() for _, future in list(self._running.values()))

    @property
    def reading_traces(self) -> bool:
        """Whether one reads what a checkpoint would move."""
        return any(
            refresh.strategy.method is not RefreshMethod.IN_POSTGRES for refresh, _ in list(self._running.values())
        )

    def finished(self) -> list[RefreshResult]:
        """Those that ended since this was last asked; a failure that is none of the stream table's is raised."""
        ended = [(table_id, future) for table_id, (_, future) in self._running.items() if future.done()]
        for table_id, _ in ended:
            del self._running[table_id]
        return [future.result() for _, future in ended]
