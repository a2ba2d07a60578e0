"""Beats of the consumer in; the present time by the clock of the sources' server out. Pure.

The clock of the applier's machine may be wrong and is not used. A beat holds the source's clock when it was made; it
arrives a little later. Of the last beats the fastest one tells best how the two clocks differ.
"""

from __future__ import annotations

from collections import deque

KEPT_BEATS = 30
"""Half a minute: long enough for one fast beat, short enough for clocks that drift."""

JUMP_US = 1_000_000
"""A beat that seems to have travelled this much longer than others means that the source's clock was set back."""


class SourceClock:
    """The source's clock, as the difference to the monotonic clock of this process."""

    def __init__(self) -> None:
        self._offsets: deque[int] = deque(maxlen=KEPT_BEATS)

    def hear(self, clock_us: int, at: float) -> None:
        """Add a beat: the source's clock in it, and when it arrived, in seconds of the monotonic clock."""
        offset = clock_us - int(at * 1_000_000)
        if self._offsets and offset < max(self._offsets) - JUMP_US:
            self._offsets.clear()
        self._offsets.append(offset)

    def now_us(self, at: float) -> int | None:
        """Return the source's clock at this moment of the monotonic clock; None before the first beat."""
        offsets = list(self._offsets)
        return max(offsets) + int(at * 1_000_000) if offsets else None
