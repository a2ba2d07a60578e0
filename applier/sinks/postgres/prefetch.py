"""One step ahead: the next thing is made on another thread while the caller uses this one."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def prefetch(things: Iterator[T]) -> Iterator[T]:
    """The same things in the same order; at most one is waiting. An error is raised where its thing was due."""
    with ThreadPoolExecutor(1, thread_name_prefix="prefetch") as worker:
        following = worker.submit(next, things, None)
        while (thing := following.result()) is not None:
            following = worker.submit(next, things, None)
            yield thing
