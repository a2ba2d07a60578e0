"""Threads that compute or write refreshes side by side; their number is a setting that may change at run time."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


class WorkerPool:
    """A pool of as many threads as `size` returns at present. One thread at a time may call it.

    With another size it gets new threads. The old ones finish what they have, and nobody waits for them meanwhile.
    """

    def __init__(self, size: Callable[[], int], name: str, prepare: Callable[[], None] = lambda: None) -> None:
        self._size = size
        self._name = name
        self._prepare = prepare
        """Called on each new thread."""
        self._threads = 0
        self._pools: list[ThreadPoolExecutor] = []
        """The last one takes what is submitted."""

    def submit(self, run: Callable[[], T]) -> Future[T]:
        """Run something on a thread of the pool."""
        if self._threads != (size := self._size()):
            for old in self._pools:
                old.shutdown(wait=False)
            self._pools.append(ThreadPoolExecutor(size, self._name, self._prepare))
            self._threads = size
        return self._pools[-1].submit(run)

    def close(self, *, cancel: bool = False) -> None:
        """Wait for all threads and end them; what has not begun is done before, unless it is to be cancelled."""
        for pool in self._pools:
            pool.shutdown(cancel_futures=cancel)
