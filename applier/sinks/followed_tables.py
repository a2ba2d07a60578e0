"""Which stream tables a sink follows: their queued deltas begin where the sink ends; those of others are not queued."""

from __future__ import annotations

import threading
from collections.abc import Iterable


class FollowedTables:
    """The stream tables that each sink follows; any thread may call it. `lock` is that of `Downstream`, which adds to
    the queues under it."""

    def __init__(self, sinks: Iterable[str], lock: threading.Condition) -> None:
        self._lock = lock
        self._followed: dict[str, set[int]] = {sink: set() for sink in sinks}
        self._behind: dict[str, set[int]] = {sink: set() for sink in sinks}
        """The stream tables that a sink should follow and cannot yet."""
        self._left_out: set[int] = set()
        """The stream tables whose rows no sink receives."""

    def follow(self, table_id: int, sinks: Iterable[str] | None = None) -> None:
        """Follow a stream table with these sinks, or with all: the next delta begins where they end."""
        with self._lock:
            for sink in self._followed if sinks is None else sinks:
                self._followed[sink].add(table_id)
                self._behind[sink].discard(table_id)

    def fall_behind(self, table_id: int, sink: str) -> None:
        """Follow a stream table with this sink no longer, or not yet: it lacks rows."""
        with self._lock:
            self._followed[sink].discard(table_id)
            self._behind[sink].add(table_id)

    def leave_out(self, table_id: int) -> None:
        """Expect no deltas of a stream table: no sink receives its rows."""
        with self._lock:
            self._left_out.add(table_id)

    def is_followed(self, table_id: int, sink: str) -> bool:
        """Whether this sink follows the stream table."""
        with self._lock:
            return table_id in self._followed[sink]

    def is_left_out(self, table_id: int) -> bool:
        """Whether no sink receives the rows of a stream table."""
        with self._lock:
            return table_id in self._left_out

    def has_behind(self, sink: str) -> bool:
        """Whether the sink lacks rows that are not queued."""
        with self._lock:
            return bool(self._behind[sink])

    def unfollowed_sinks(self, table_id: int) -> list[str]:
        """Return the sinks that may lack more than what is queued."""
        with self._lock:
            if table_id in self._left_out:
                return []
            return [sink for sink, followed in self._followed.items() if table_id not in followed]

    def forget(self, table_id: int) -> None:
        """Follow a stream table with no sink until it is followed again."""
        with self._lock:
            for tables in (*self._followed.values(), *self._behind.values(), self._left_out):
                tables.discard(table_id)
