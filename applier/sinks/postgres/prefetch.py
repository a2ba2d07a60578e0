"""An iterator in; the same items out, each prepared on another thread while the caller uses the one before."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def prefetch(items: Iterator[T]) -> Iterator[T]:
    """Yield the items in their order; at most one is prepared ahead. An error is raised in place of its item."""
    with ThreadPoolExecutor(1, thread_name_prefix="prefetch") as worker:
        upcoming = worker.submit(next, items, None)
        while (item := upcoming.result()) is not None:
            upcoming = worker.submit(next, items, None)
            yield item
