"""The stages of a start in; how long each took out, as one line of the log and as a metric, once the applier is ready.

Some stages run side by side, so their times do not add up to the time until it is ready.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from applier import metrics

log = logging.getLogger(__name__)

READY_STAGE = "ready"
"""The label of the whole: from the start of the process until the first tick is done."""


class StartStages:
    """The times of one start. Any thread may note a stage of its own."""

    def __init__(self) -> None:
        age_s = _process_age_s()
        self._began = time.monotonic() - age_s
        self._taken: dict[str, float] = {"imports": age_s}
        self._is_ready = False

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Measure a stage; one that fails is not noted."""
        began = time.monotonic()
        yield
        self._taken[name] = time.monotonic() - began

    def note_ready(self) -> None:
        """Note that a tick is done; only the first one counts."""
        if self._is_ready:
            return
        self._is_ready = True
        after = time.monotonic() - self._began
        for name, taken in {**self._taken, READY_STAGE: after}.items():
            metrics.START_SECONDS.labels(name).set(taken)
        stages = {f"{name}_ms": round(taken * 1000) for name, taken in self._taken.items()}
        log.info("ready", extra={"after_s": round(after, 2), **stages})


def _process_age_s() -> float:
    """Return the seconds since this process was started; 0 where the system does not say."""
    try:
        # The name of the program is in parentheses and may contain spaces.
        started_ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        hertz = os.sysconf("SC_CLK_TCK")
        return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - started_ticks / hertz)
    except (OSError, ValueError, IndexError, AttributeError):
        return 0.0
