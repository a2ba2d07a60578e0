"""Long refreshes in, their results some ticks later out: they run in the background, so that no other table waits."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from applier.refresh.computing.worker_pool import WorkerPool
from applier.refresh.method.refresh import Refresh, RefreshResult, RefreshRows
from applier.refresh.method.strategy import RefreshMethod
from applier.sinks.lease import Lease
from applier.unexpected import to_trickle_error


@dataclass(frozen=True)
class _Running:
    refresh: Refresh
    future: Future[RefreshResult]
    rows: Lease[RefreshRows] | None
    """The lease that goes over to the result when the refresh runs."""

    @property
    def finished(self) -> Refresh:
        """The refresh with the LSN range of its result, which PostgreSQL chooses where it runs the query."""
        if self.future.exception() is not None:
            return self.refresh
        return replace(self.refresh, lsn_range=self.future.result().lsn_range)


@dataclass
class LongRefreshes:
    """At most one per stream table; `wake` is called whenever one finishes."""

    workers: WorkerPool
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

    def find_finished(self) -> list[Refresh]:
        """Return the refreshes that wait to be written."""
        return [running.finished for running in self._running.values() if running.future.done()]

    def take_finished(self, refreshes: Iterable[Refresh]) -> list[RefreshResult]:
        """Remove finished refreshes and return their results; one that raised is a result too: the error."""
        return [_take_result(self._running.pop(refresh.table.id)) for refresh in refreshes]

    def stop(self) -> None:
        """Wait for the running refreshes; their rows are not written: the next start computes them again."""
        self.workers.close(cancel=True)
        for running in self._running.values():
            try:
                if running.future.exception() is None:
                    running.future.result().close()
            except CancelledError:
                if running.rows is not None:
                    running.rows.close()
        self._running.clear()


def _take_result(running: _Running) -> RefreshResult:
    try:
        return running.future.result()
    except Exception as error:
        error_of_its_own = to_trickle_error(running.refresh.table, error)
        return RefreshResult(running.refresh, error_of_its_own, datetime.now(UTC), 0.0)
