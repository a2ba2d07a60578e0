"""Measures how much this process grows in a block: the driver, without executors and Spark's own JVM."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def growth() -> Iterator[list[float]]:
    """Yield a list that receives the largest growth of this process in megabytes."""

    def resident() -> float:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6

    before, most, stop = resident(), [0.0], threading.Event()

    def watch() -> None:
        while not stop.wait(0.01):
            most[0] = max(most[0], resident() - before)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield most
    finally:
        stop.set()
        watcher.join()
