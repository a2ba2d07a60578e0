"""How busy the machine was with work that is not ours, from /proc: CPU time of all minus that of our process tree.

Time the hypervisor took away counts as others'. Children that ended are in the accounts of whoever waited for them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.fixtures.processes import TICKS_PER_S, processes

CPUS = os.cpu_count() or 1

_IDLE = (3, 4)
"""Columns idle and iowait of /proc/stat; guest time (8, 9) is in user time already."""


@dataclass(frozen=True, slots=True)
class Reading:
    """CPU seconds since some fixed moment, at one moment."""

    at: float
    all_s: float
    ours_s: float


@dataclass(slots=True)
class BusyMeter:
    """Measures between two calls; `roots` are the processes whose trees are ours."""

    roots: Sequence[int] = field(default_factory=lambda: (os.getpid(),))
    proc: Path = Path("/proc")

    def read(self) -> Reading:
        """Now."""
        columns = [int(n) for n in (self.proc / "stat").read_text().split("\n", 1)[0].split()[1:9]]
        busy = sum(n for i, n in enumerate(columns) if i not in _IDLE)
        return Reading(time.monotonic(), busy / TICKS_PER_S, self._ours())

    def others_s(self, before: Reading, after: Reading) -> float:
        """CPU seconds that others used in between."""
        return max(0.0, (after.all_s - before.all_s) - (after.ours_s - before.ours_s))

    def others_share(self, before: Reading, after: Reading) -> float:
        """The same as a share of the whole machine."""
        wall = after.at - before.at
        return self.others_s(before, after) / (wall * CPUS) if wall > 0 else 0.0

    def load(self) -> float:
        """The load average of the last minute, ours included: for the reader, not for decisions."""
        return float((self.proc / "loadavg").read_text().split()[0])

    def _ours(self) -> float:
        all_ = {process.pid: process for process in processes(self.proc)}
        parents = {pid: process.parent for pid, process in all_.items()}
        return sum(p.own_s + p.waited_for_s for pid, p in all_.items() if self._is_ours(pid, parents))

    def _is_ours(self, pid: int, parent_of: dict[int, int]) -> bool:
        while pid:
            if pid in self.roots:
                return True
            pid = parent_of.get(pid, 0)
        return False
