"""Readings of the source's clock in; up to which moment the topics hold every source commit, out. Pure.

A reading is the end of the durable log and the clock of the server before that: whatever was durable at that moment
is in the log before that end. So once the topics hold everything before the end, they are complete until that moment.
A commit says the same about its own position and time: what was durable before its time is in the log before it.

Readings and commits are compared by their positions, never by their times. After the server's clock was set back, the
next reading counts all the same.
"""

from __future__ import annotations

import threading
from collections import deque

from shared_schema.beats import Completeness
from shared_schema.lsn import Lsn
from shared_schema.progress import LastCommit

KEPT_READINGS = 600
"""Ten minutes. After a longer time behind the server the oldest are forgotten, which only makes the answer older."""


class LogClock:
    """One thread reads the clock, another one publishes; a lock makes each step whole."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._readings: deque[tuple[Lsn, int]] = deque(maxlen=KEPT_READINGS)
        """Those whose position is not reached yet."""
        self._at = Lsn(0)
        self._until_us: int | None = None
        """The topics hold every commit before this moment, by a reading or commit at `_at`."""
        self._frontier: Lsn | None = None
        """The frontier of the last rows."""
        self._beaten: Lsn | None = None
        """The same at the last beat."""
        self._first_us: int | None = None
        """The first commit time since the last beat."""
        self._earlier: Completeness | None = None

    def read(self, end: Lsn, clock_us: int) -> None:
        """Add a reading: the end of the durable log, and the server's clock just before."""
        with self._lock:
            if self._readings and self._readings[-1][0] == end:
                # Nothing became durable in between, so both moments belong to this position.
                self._readings.pop()
            self._readings.append((end, clock_us))

    def resume(self, frontier: Lsn) -> None:
        """Begin a session: an earlier one has published everything before `frontier`."""
        with self._lock:
            self._frontier = max(self._frontier or frontier, frontier)

    def reach(self, position: Lsn) -> None:
        """Everything before this position is on the topics, whether it has rows or not."""
        with self._lock:
            self._reach(position)

    def until_at(self, frontier: Lsn, last: LastCommit | None) -> int | None:
        """Return the moment up to which a transaction of the sink with this frontier will be complete."""
        with self._lock:
            found = max(self._known_before(frontier, last), key=lambda known: known[0], default=None)
            return found[1] if found is not None else self._until_us

    def publish(self, frontier: Lsn, last: LastCommit | None, first_us: int, *, has_rows: bool) -> None:
        """That transaction is committed; `first_us` is its first commit time, 0 if it has none."""
        with self._lock:
            if has_rows:
                if self._first_us is None:
                    self._first_us = first_us or self._until_us
                self._frontier = frontier
            if last is not None and self._at <= last.lsn < frontier:
                self._at, self._until_us = last.lsn, last.commit_ts_us
            self._reach(frontier)

    def beat(self) -> tuple[Completeness | None, Completeness | None]:
        """Return what is known now, and the same for the last other frontier that an earlier beat has named."""
        with self._lock:
            if self._beaten != self._frontier:
                if self._beaten is not None and self._first_us is not None:
                    self._earlier = Completeness(self._beaten, self._first_us)
                self._beaten = self._frontier
            self._first_us = None
            if self._frontier is None or self._until_us is None:
                return None, None
            return Completeness(self._frontier, self._until_us), self._earlier

    def _known_before(self, frontier: Lsn, last: LastCommit | None) -> list[tuple[Lsn, int]]:
        commit = [(last.lsn, last.commit_ts_us)] if last is not None and self._at <= last.lsn < frontier else []
        return [*commit, *((at, us) for at, us in self._readings if self._at <= at <= frontier)]

    def _reach(self, position: Lsn) -> None:
        while self._readings and self._readings[0][0] <= position:
            at, clock_us = self._readings.popleft()
            if at >= self._at:
                self._at, self._until_us = at, clock_us
