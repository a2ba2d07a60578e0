"""Measures from /proc how busy the machine was with other work: all CPU time minus that of our process tree.

Time stolen by the hypervisor counts as others'. The time of children that ended is in the account of the process that
waited for them, or lost. What a child had used before the first reading is subtracted from its parent's account, which
is never below zero.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.fixtures.processes import TICKS_PER_S, Process, processes

CPUS = os.cpu_count() or 1

_IDLE = (3, 4)
"""Columns idle and iowait of /proc/stat; guest time (8, 9) is in user time already."""


@dataclass(frozen=True, slots=True)
class Reading:
    """CPU seconds since a fixed moment, read at one moment."""

    at: float
    all_s: float
    ours: Mapping[int, Process]
    """By process id."""


@dataclass(slots=True)
class BusyMeter:
    """Measures between two calls; `roots` are the processes whose trees are ours."""

    roots: Sequence[int] = field(default_factory=lambda: (os.getpid(),))
    proc: Path = Path("/proc")

    def read(self) -> Reading:
        """Read the current values."""
        columns = [int(n) for n in (self.proc / "stat").read_text().split("\n", 1)[0].split()[1:9]]
        busy = sum(n for i, n in enumerate(columns) if i not in _IDLE)
        return Reading(time.monotonic(), busy / TICKS_PER_S, self._ours())

    def others_s(self, before: Reading, after: Reading) -> float:
        """Return the CPU seconds that others used in between."""
        return max(0.0, (after.all_s - before.all_s) - self.ours_s(before, after))

    def ours_s(self, before: Reading, after: Reading) -> float:
        """Return the CPU seconds that our processes used in between."""
        known: dict[int, float] = defaultdict(float)
        for pid, gone in before.ours.items():
            if pid not in after.ours:
                known[_survivor(gone, before.ours, after.ours)] += gone.own_s + gone.waited_for_s
        used = 0.0
        for pid, now in after.ours.items():
            then = before.ours.get(pid)
            own_s, waited_for_s = (then.own_s, then.waited_for_s) if then else (0.0, 0.0)
            used += now.own_s - own_s + max(0.0, now.waited_for_s - waited_for_s - known[pid])
        return used

    def others_share(self, before: Reading, after: Reading) -> float:
        """Return the CPU time of others as a fraction of the whole machine."""
        wall = after.at - before.at
        return self.others_s(before, after) / (wall * CPUS) if wall > 0 else 0.0

    def load(self) -> float:
        """Return the load average of the last minute, ours included: for the reader, not for decisions."""
        return float((self.proc / "loadavg").read_text().split()[0])

    def _ours(self) -> dict[int, Process]:
        all_ = {process.pid: process for process in processes(self.proc)}
        return {pid: process for pid, process in all_.items() if self._is_ours(pid, all_)}

    def _is_ours(self, pid: int, all_: Mapping[int, Process]) -> bool:
        while pid:
            if pid in self.roots:
                return True
            pid = all_[pid].parent if pid in all_ else 0
        return False


def _survivor(gone: Process, before: Mapping[int, Process], after: Mapping[int, Process]) -> int:
    """Return the nearest ancestor that still runs: its account has the time, if a process waited for the child."""
    pid = gone.parent
    while pid in before and pid not in after:
        pid = before[pid].parent
    return pid
