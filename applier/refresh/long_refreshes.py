"""Long refreshes in, their results some ticks later out: they run in the background, so that no other table waits."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field

from applier.refresh.refresh import Refresh, RefreshResult, RefreshRows
from applier.refresh.strategy import RefreshMethod
from applier.sinks.lease import Lease


@dataclass(frozen=True)
class _Running:
    refresh: Refresh
    future: Future[RefreshResult]
    rows: Lease[RefreshRows] | None
    """The lease that goes over to the result when the refresh runs."""


@dataclass
class LongRefreshes:
    """At most one per stream table; `wake` is called whenever one finishes."""

    workers: ThreadPoolExecutor
    wake: Callable[[], None]
    _running: dict[int, _Running] = field(default_factory=dict)

    def start(self, refresh: Refresh, run: Callable[[], RefreshResult], rows: Lease[RefreshRows] | None = None) -> None:
        """Start to compute a refresh on a worker thread; `run` takes over the lease on rows that it waits for."""
        future = self.workers.submit(run)
        self._running[refresh.table.id] = _Running(refresh, future, rows)
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
        return any(running.future.done() for running in list(self._running.values()))

    @property
    def is_reading_traces(self) -> bool:
        """Whether a refresh reads the traces, which a checkpoint would move."""
        return any(
            running.refresh.strategy.method is not RefreshMethod.IN_POSTGRES for running in list(self._running.values())
        )

    def take_finished(self) -> list[RefreshResult]:
        """Remove and return the finished refreshes; raise a failure that is not the stream table's own."""
        finished = [table_id for table_id, running in self._running.items() if running.future.done()]
        with ExitStack() as on_failure:
            results = [on_failure.enter_context(self._running.pop(i).future.result()) for i in finished]
            on_failure.pop_all()
        return results

    def stop(self) -> None:
        """Wait for the running refreshes; their rows are not written: the next start computes them again."""
        self.workers.shutdown(cancel_futures=True)
        for running in self._running.values():
            try:
                if running.future.exception() is None:
                    running.future.result().close()
            except CancelledError:
                if running.rows is not None:
                    running.rows.close()
        self._running.clear()
