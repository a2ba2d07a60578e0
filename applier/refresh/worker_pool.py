"""Threads that compute refreshes side by side; their number is a setting that may change while the applier runs."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


class WorkerPool:
    """A pool of as many threads as `size` returns at present. One thread at a time may call it."""

    def __init__(self, size: Callable[[], int], name: str) -> None:
        self._size = size
        self._name = name
        self._threads = 0
        self._pool: ThreadPoolExecutor | None = None

    def submit(self, run: Callable[[], T]) -> Future[T]:
        """Run something on a thread of the pool."""
        if self._pool is None or self._threads != self._size():
            # The threads of the old pool end when they have done what was submitted to them.
            self.close()
            self._threads = self._size()
            self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix=self._name)
        return self._pool.submit(run)

    def close(self) -> None:
        """Wait for the threads and end them."""
        if self._pool is not None:
            self._pool.shutdown()
