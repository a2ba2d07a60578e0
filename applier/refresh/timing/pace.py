"""How long a refresh took and the interval of its stream table in; a longer interval, and whether it falls behind, out.

Pure: no clock. A schedule of every tick has no interval that a refresh could miss, so it has no pace either.
"""

from __future__ import annotations

from dataclasses import dataclass

STRETCHES_ABOVE = 0.95
"""A refresh that takes more of its interval leaves no time for anything else."""

BEHIND_ABOVE = 0.8
BEHIND_AFTER = 3
"""It falls behind after so many refreshes in a row that took more than this share of the interval."""

LONGEST_STRETCH = 64.0
"""An interval is stretched at most so often."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How a stream table keeps up with its interval."""

    stretch: float = 1.0
    """What the interval is multiplied with."""
    late: int = 0
    """Refreshes in a row that took most of the interval."""

    @property
    def is_behind(self) -> bool:
        """Whether the refreshes take so long that the schedule is about to be missed."""
        return self.late >= BEHIND_AFTER


def pace_after(pace: Pace, took_ms: float, interval_ms: float, *, stretches: bool) -> Pace:
    """Return the pace after a refresh; `interval_ms` is the interval without the stretch.

    It falls behind the interval that somebody asked for: a stretched one is no reason to keep silent.
    The stretch goes back one step as soon as the refresh fits into the shorter interval, so it settles by itself.
    """
    if interval_ms <= 0:
        return Pace()
    late = pace.late + 1 if took_ms > BEHIND_ABOVE * interval_ms else 0
    if not stretches:
        return Pace(1.0, late)
    if took_ms > STRETCHES_ABOVE * interval_ms * pace.stretch:
        return Pace(min(pace.stretch * 2, LONGEST_STRETCH), late)
    if pace.stretch > 1.0 and took_ms <= STRETCHES_ABOVE * interval_ms * pace.stretch / 2:
        return Pace(pace.stretch / 2, late)
    return Pace(pace.stretch, late)
