"""Pins processes and their threads to cores: the source to one half, its readers to the other."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.fixtures.processes import children


def threads(pid: int) -> list[int]:
    """Return the threads of a process; none if it has ended."""
    try:
        return [int(task.name) for task in Path(f"/proc/{pid}/task").iterdir()]
    except OSError:
        return []


def keep_on(cores: set[int], pids: Iterable[int]) -> None:
    """Pin all current threads of the processes; threads that they start inherit it."""
    for pid in pids:
        for thread in threads(pid):
            with suppress(ProcessLookupError):  # it has ended since
                os.sched_setaffinity(thread, cores)


@contextmanager
def own_core(source: int, readers: Iterable[int]) -> Iterator[set[int]]:
    """Give one half of the cores to a server and its clients, the other to the readers; yield the first half."""
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
