"""Progress records in; for each frontier the times of the sources' server that belong to it, out. Pure.

All times are commit times and moments by the source's clock, in microseconds since 1970. A frontier between two records
has the times of the earlier one, so an answer may be older than the truth but never newer.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from dataclasses import dataclass, replace

from shared_schema.lsn import Lsn
from shared_schema.progress import Progress

KEPT_STEPS = 4096
"""Some minutes of constant load. Then every second of the older half is merged with the step after it."""


@dataclass(frozen=True, slots=True)
class SourceTime:
    """What the rows at a frontier include."""

    last_commit_us: int | None = None
    """Commit time of the last source commit before the frontier."""
    complete_until_us: int | None = None
    """Every source commit that was durable before this moment is before the frontier."""


@dataclass(frozen=True, slots=True)
class _Step:
    """The frontier moved here, and the first source commit that this included."""

    frontier: Lsn
    time: SourceTime
    first_commit_us: int | None


class SourceTimes:
    """Several threads use it: the inbox adds, the sinks ask."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._steps: list[_Step] = []

    def add(self, progress: Progress) -> None:
        """Add a record whose frontier is reached. What it does not say stays as it was."""
        with self._lock:
            before = self._steps[-1] if self._steps else None
            if before is not None and progress.frontier <= before.frontier:
                return
            known = before.time if before is not None else SourceTime()
            last, until_us = progress.last_commit, progress.complete_until_us
            time = SourceTime(
                # While a table is copied, the last commit that was written may be beyond the frontier.
                last.commit_ts_us if last is not None and last.lsn < progress.frontier else known.last_commit_us,
                known.complete_until_us if until_us is None else until_us,
            )
            self._steps.append(_Step(progress.frontier, time, progress.first_commit_us))
            if len(self._steps) > KEPT_STEPS:
                self._merge_older()

    def at(self, frontier: Lsn) -> SourceTime:
        """Return the times of a frontier; those of the last record before it, where it is between two."""
        with self._lock:
            place = self._place(frontier)
            return self._steps[place - 1].time if place else SourceTime()

    def first_commit_after(self, frontier: Lsn) -> int | None:
        """Return the commit time of the first source commit at or after a frontier; None if it is not known.

        It may be that of an earlier commit, where steps were merged.
        """
        with self._lock:
            place = self._place(frontier)
            if not place:
                return None
            later = (step.first_commit_us for step in self._steps[place:])
            return next((first_us for first_us in later if first_us is not None), None)

    def _place(self, frontier: Lsn) -> int:
        return bisect_right(self._steps, frontier, key=lambda step: step.frontier)

    def _merge_older(self) -> None:
        half = len(self._steps) // 2
        merged = [
            second if first.first_commit_us is None else replace(second, first_commit_us=first.first_commit_us)
            for first, second in zip(self._steps[0:half:2], self._steps[1:half:2], strict=False)
        ]
        self._steps = merged + self._steps[2 * len(merged) :]
