"""Leases on rows: rows that have to be deleted at the end exist as long as one lease on them is open.

A reader opens its own lease and closes it when it has read: `with delta.lease() as rows`. A holder that outlives a
block, such as the queue of a sink, keeps the `Lease` and closes it. Nobody closes the lease of another holder, so none
is closed twice; `metrics.OPEN_LEASES` shows one that is never closed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Generic, TypeVar

from applier import metrics

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


def _nothing() -> None:
    """The end of rows that Python itself frees."""


class Lease(Generic[T_co]):
    """The right to read a value until `close`. It has one holder: closing it twice raises."""

    __slots__ = ("_end", "_is_open", "_value")

    def __init__(self, value: T_co, end: Callable[[], None] = _nothing) -> None:
        self._value = value
        self._end = end
        self._is_open = True
        metrics.OPEN_LEASES.inc()

    @property
    def value(self) -> T_co:
        """What may be read."""
        if not self._is_open:
            raise AssertionError("the lease is closed")
        return self._value

    def close(self) -> None:
        """End the lease; the rows are deleted when it was the last one."""
        if not self._is_open:
            raise AssertionError("the lease was closed before")
        self._is_open = False
        metrics.OPEN_LEASES.dec()
        self._end()

    def __enter__(self) -> T_co:
        return self.value

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class LeaseCount:
    """Counts the open leases on some rows; `delete` runs once, when the last one is closed."""

    def __init__(self, delete: Callable[[], None]) -> None:
        self._delete = delete
        self._open = 0
        self._deleted = False
        self._lock = threading.Lock()

    def open(self, value: T) -> Lease[T]:
        """Open a lease; raise when the rows are already deleted."""
        with self._lock:
            if self._deleted:
                raise AssertionError("the rows are already deleted")
            self._open += 1
        return Lease(value, self._end_one)

    def _end_one(self) -> None:
        with self._lock:
            self._open -= 1
            is_last = self._deleted = not self._open
        if is_last:
            self._delete()
