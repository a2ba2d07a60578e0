"""Which cores a process and its threads may use: the source's on one side, whoever reads from it on the other."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.fixtures.processes import children


def threads(pid: int) -> list[int]:
    """Of a process that may be gone by now."""
    try:
        return [int(task.name) for task in Path(f"/proc/{pid}/task").iterdir()]
    except OSError:
        return []


def keep_on(cores: set[int], pids: Iterable[int]) -> None:
    """All threads there are now; what they start inherits it."""
    for pid in pids:
        for thread in threads(pid):
            os.sched_setaffinity(thread, cores)


@contextmanager
def own_core(source: int, readers: Iterable[int]) -> Iterator[set[int]]:
    """Half of the cores for a server and its clients, whose half is yielded, the other for the readers."""
    everything = sorted(os.sched_getaffinity(0))
    here, there = set(everything[: len(everything) // 2]), set(everything[len(everything) // 2 :])
    groups = [(here, [source, *children(source)]), (there, list(readers))]
    for cores, pids in groups:
        keep_on(cores, pids)
    try:
        yield here
    finally:
        for _, pids in groups:
            keep_on(set(everything), pids)
