"""What the refreshes of ticks were predicted to take, and what the ticks took, in; how much work fits into a tick, out.

A refresh takes longer beside others: they share the cores with each other, with what is computed beside the ticks and
with the other programs of the machine. Nobody can compute that beforehand, so it is measured. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

LEAST_MS = 100.0
"""Ticks that are predicted to be shorter say little: what a tick costs by itself is a large part of them."""

WEIGHT_OF_LAST = 0.3
"""What the last tick counts; the others before it make up the rest."""

MOST = 8.0
"""One tick in which the machine stood still must not keep the next ones empty."""


@dataclass
class TickLoad:
    """How many times longer than predicted the ticks are."""

    factor: float = 1.0
    _predicted_ms: float = 0.0
    _began: datetime | None = None
    _visible: datetime | None = None

    def work_per_ms(self, workers: int) -> float:
        """Return how many milliseconds of refreshes, as they are predicted, fit into a millisecond of a tick."""
        return workers / self.factor

    def begin(self, predicted_ms: Sequence[float | None], workers: int, now: datetime) -> None:
        """Note a tick that begins, with what its refreshes will take; None for one of which nothing is known."""
        self._learn()
        known = [ms for ms in predicted_ms if ms is not None]
        is_known = bool(known) and len(known) == len(predicted_ms)
        self._predicted_ms = max(*known, sum(known) / workers) if is_known else 0.0
        self._began, self._visible = now, None

    def note_visible(self, now: datetime) -> None:
        """Note that rows of the tick are visible now; the last ones end it."""
        self._visible = now

    def _learn(self) -> None:
        if self._began is None or self._visible is None or self._predicted_ms < LEAST_MS:
            return
        took = (self._visible - self._began) / timedelta(milliseconds=1) / self._predicted_ms
        self.factor = max(1.0, self.factor + WEIGHT_OF_LAST * (min(took, MOST) - self.factor))
