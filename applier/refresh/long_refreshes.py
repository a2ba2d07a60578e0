"""Long refreshes in, their results some ticks later out: they run in the background, so that no other table waits."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from applier.refresh.refresh import Refresh, RefreshResult
from applier.refresh.strategy import RefreshMethod


@dataclass
class LongRefreshes:
    """At most one per stream table; `wake` is called whenever one finishes."""

    workers: ThreadPoolExecutor
    wake: Callable[[], None]
    _running: dict[int, tuple[Refresh, Future[RefreshResult]]] = field(default_factory=dict)

    def start(self, refresh: Refresh, run: Callable[[Refresh], RefreshResult]) -> None:
        """Start to compute a refresh on a worker thread."""
        future = self.workers.submit(run, refresh)
        self._running[refresh.table.id] = refresh, future
        future.add_done_callback(lambda _: self.wake())

    def is_running(self, table_id: int) -> bool:
        """Whether a refresh of the stream table is running or waits to be written."""
        return table_id in self._running

    @property
    def has_any(self) -> bool:
        """Whether a refresh is running or waits to be written."""
        return bool(self._running)

    @property
    def has_finished(self) -> bool:
        """Whether a refresh waits to be written."""
        return any(future.done() for _, future in list(self._running.values()))

    @property
    def is_reading_traces(self) -> bool:
        """Whether a refresh reads the traces, which a checkpoint would move."""
        return any(
            refresh.strategy.method is not RefreshMethod.IN_POSTGRES for refresh, _ in list(self._running.values())
        )

    def take_finished(self) -> list[RefreshResult]:
        """Remove and return the finished refreshes; raise a failure that is not the stream table's own."""
        finished = [(table_id, future) for table_id, (_, future) in self._running.items() if future.done()]
        for table_id, _ in finished:
            del self._running[table_id]
        return [future.result() for _, future in finished]
