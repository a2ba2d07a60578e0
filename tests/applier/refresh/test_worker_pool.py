"""A pool follows its setting: more threads, or fewer, without waiting for what the old ones do."""

from __future__ import annotations

import threading
from concurrent.futures import CancelledError

import pytest

from applier.refresh.computing.worker_pool import WorkerPool

LIMIT_S = 10


def test_another_size_counts_from_the_next_submission_on() -> None:
    size, prepared, release = [1], [], threading.Event()
    pool = WorkerPool(lambda: size[0], "work", lambda: prepared.append(threading.current_thread().name))
    busy = pool.submit(lambda: release.wait(LIMIT_S))
    size[0] = 2
    # Two at the same time, though the thread of the old size is not done.
    meet = threading.Barrier(2, timeout=LIMIT_S)
    for future in [pool.submit(meet.wait), pool.submit(meet.wait)]:
        future.result(LIMIT_S)
    assert not busy.done()
    assert prepared == ["work_0", "work_0", "work_1"]
    release.set()
    assert busy.result(LIMIT_S)
    pool.close()


def test_closing_cancels_what_has_not_begun() -> None:
    started, release = threading.Event(), threading.Event()

    def work() -> None:
        started.set()
        release.wait(LIMIT_S)

    pool = WorkerPool(lambda: 1, "work")
    begun, waiting = pool.submit(work), pool.submit(work)
    assert started.wait(LIMIT_S)
    threading.Timer(0.05, release.set).start()
    pool.close(cancel=True)
    assert begun.done()
    with pytest.raises(CancelledError):
        waiting.result()
