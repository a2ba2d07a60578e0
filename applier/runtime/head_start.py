"""Tasks of a start that need no Spark in; their results out, while the JVM boots on the main thread.

The first error wins, wherever it is raised: the other tasks are told to stop, and no thread is left behind.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

from applier.runtime.start_stages import StartStages

T = TypeVar("T")

MOST_THREADS = 8
"""More than there are tasks: one may wait for another."""


class HeadStart:
    """Runs tasks side by side; `stopping` is set when one fails, or when the start does."""

    def __init__(self, stopping: threading.Event, stages: StartStages) -> None:
        self._stopping = stopping
        self._stages = stages
        self._pool = ThreadPoolExecutor(MOST_THREADS, "start")
        self._lock = threading.Lock()
        self._first: BaseException | None = None
        self._tasks: list[Future[Any]] = []

    def run(self, stage: str, task: Callable[[], T], after: Future[Any] | None = None) -> Future[T]:
        """Run a task on a thread of its own, as this stage of the start; `after` another one, if that succeeds."""

        def measured() -> T:
            with self.first_error():
                if after is not None:
                    after.result()
                with self._stages.stage(stage):
                    return task()

        done = self._pool.submit(measured)
        self._tasks.append(done)
        return done

    @contextmanager
    def first_error(self) -> Iterator[None]:
        """If the block fails after a task did, raise that task's error; else remember this one as the first."""
        try:
            yield
        except BaseException as error:
            with self._lock:
                self._first = first = self._first or error
            self._stopping.set()
            if first is error:
                raise
            raise first from error

    def finish(self) -> None:
        """Wait for all tasks; raise the first error."""
        with self.first_error():
            for task in self._tasks:
                task.result()
        self.close()

    def close(self) -> None:
        """Wait until no thread is left; what has not begun is not done."""
        self._pool.shutdown(cancel_futures=True)
