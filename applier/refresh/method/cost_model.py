"""Times of earlier refreshes of one stream table in; what a refresh with so many change rows will take, out. Pure.

A line is fitted to each phase, computing and writing: milliseconds over change rows, by least squares without outliers.
These are samples whose residual lies outside the quartiles by more than 1.5 times their distance, and that are off the
line by more than half: the times of the few large refreshes vary by more than all of a small one, and they decide.
`pgtrickle._cost_line` fits the same line in SQL. Where the samples say too little there is no prediction.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from statistics import median

SAMPLES_OF_SIZE = 50
"""The newest differential refreshes of the window that count, of each power of two of change rows. More do not make the
line better, only slower to fit; and the many small ones do not displace the few large ones."""

MAX_FULLS = 3
"""The newest full refreshes that count, by their median: a single odd one, fast or slow, changes no decision."""

IQR_FENCE = 1.5
"""Tukey's fence: a residual further out than this many interquartile distances is an outlier."""

HONEST = 0.5
"""A sample that is off the line by at most this share of it is no outlier, however close to it the others are."""

FENCE_MIN_MS = 0.001
"""The fence of samples that lie on a line: what differs less is the rounding of the arithmetic."""

MIN_R2 = 0.5
"""A line that explains less of the variance than this is noise; the phase then counts as constant."""

MAX_EXTRAPOLATION = 4
"""No prediction for more than this many times the change rows of the two largest samples."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """Estimates for the coming refresh by either method, in milliseconds, and the samples that they rest on."""

    differential_ms: float
    full_ms: float
    samples: int

    def of(self, is_full: bool) -> float:
        """Return what the one method or the other takes."""
        return self.full_ms if is_full else self.differential_ms


@dataclass(frozen=True, slots=True)
class PredictionLimits:
    """The settings of predictions."""

    window: timedelta = timedelta(minutes=60)
    ratio: float = 1.5
    """AUTO chooses FULL when the differential refresh is predicted to take more than this many times as long."""
    min_samples: int = 5


@dataclass(frozen=True, slots=True)
class DifferentialCost:
    """What one differential refresh took."""

    at: datetime
    changes: int
    compute_ms: float
    write_ms: float


@dataclass(frozen=True, slots=True)
class FullCost:
    """What one full refresh took, when its sources had so many rows."""

    took_ms: float
    source_rows: int


@dataclass(frozen=True, slots=True)
class Line:
    """milliseconds = intercept + slope * change rows, for the samples that are no outliers."""

    slope: float
    intercept: float
    r2: float

    def at(self, changes: int) -> float:
        """Return the milliseconds for so many change rows."""
        return max(0.0, self.intercept + self.slope * changes)


@dataclass
class CostModel:
    """The costs of one stream table. It is a function of what the history has, so a restart finds it again."""

    differentials: list[DifferentialCost] = field(default_factory=list)
    fulls: deque[FullCost] = field(default_factory=lambda: deque(maxlen=MAX_FULLS))

    @classmethod
    def of(cls, differentials: Iterable[DifferentialCost], fulls: Iterable[FullCost]) -> CostModel:
        """Return the model of these costs, oldest first."""
        model = cls()
        for cost in differentials:
            model.add(cost)
        model.fulls.extend(fulls)
        return model

    def add(self, cost: DifferentialCost) -> None:
        """Add a differential refresh; the oldest one of its size goes when there are too many of them."""
        size = cost.changes.bit_length()
        same = [i for i, known in enumerate(self.differentials) if known.changes.bit_length() == size]
        if len(same) >= SAMPLES_OF_SIZE:
            del self.differentials[same[0]]
        self.differentials.append(cost)

    def predict(self, changes: int, source_rows: int, now: datetime, limits: PredictionLimits) -> Prediction | None:
        """Predict both methods for a refresh; None when the samples do not allow it."""
        recent = [cost for cost in self.differentials if cost.at >= now - limits.window]
        if len(recent) < limits.min_samples or not self.fulls:
            return None
        # Two, so that no single refresh with a pause of the machine in it decides.
        if changes > MAX_EXTRAPOLATION * sorted(cost.changes for cost in recent)[-2:][0]:
            return None
        rows = [cost.changes for cost in recent]
        computing, writing = [cost.compute_ms for cost in recent], [cost.write_ms for cost in recent]
        lines = [fit_line(rows, computing), fit_line(rows, writing)]
        if not any(_is_line(line) for line in lines):
            return None
        differential_ms = sum(
            line.at(changes) if line is not None and _is_line(line) else median(took)
            for line, took in zip(lines, (computing, writing), strict=True)
        )
        return Prediction(differential_ms, self._full_ms(source_rows), len(recent))

    def _full_ms(self, source_rows: int) -> float:
        """Estimate a full refresh from the last ones, as if its time grew with the rows of the sources.

        Sources that shrank leave it as it was: what is fixed in it does not shrink.
        """
        return median(full.took_ms * max(1.0, source_rows / max(1, full.source_rows)) for full in self.fulls)


def fit_line(rows: Sequence[int], took_ms: Sequence[float]) -> Line | None:
    """Fit a line by least squares, cut the outliers by their residuals, fit again; None when the slope is undefined.

    For the first line each time is the median of it and its two neighbours by size: a single spike bends nothing.
    """
    samples = sorted(zip(rows, took_ms, strict=True))
    first = _least_squares([n for n, _ in samples], _medians_of_three([took for _, took in samples]))
    if first is None:
        return None
    residuals = [took - (first.intercept + first.slope * n) for n, took in samples]
    low, high = _quantile(residuals, 0.25), _quantile(residuals, 0.75)
    fence = IQR_FENCE * (high - low) + FENCE_MIN_MS
    kept = [
        (n, took)
        for (n, took), residual in zip(samples, residuals, strict=True)
        if low - fence <= residual <= high + fence or abs(residual) <= HONEST * first.at(n)
    ]
    return _least_squares([n for n, _ in kept], [took for _, took in kept])


def _medians_of_three(values: Sequence[float]) -> Sequence[float]:
    if len(values) < 3:
        return values
    last = len(values) - 3
    return [median(values[(begin := max(0, min(i - 1, last))) : begin + 3]) for i in range(len(values))]


def _least_squares(rows: Sequence[int], took_ms: Sequence[float]) -> Line | None:
    if not rows:
        return None
    mean_rows, mean_ms = sum(rows) / len(rows), sum(took_ms) / len(rows)
    spread = sum((n - mean_rows) ** 2 for n in rows)
    if not spread:
        return None
    together = sum((n - mean_rows) * (ms - mean_ms) for n, ms in zip(rows, took_ms, strict=True))
    spread_ms = sum((ms - mean_ms) ** 2 for ms in took_ms)
    slope = together / spread
    return Line(slope, mean_ms - slope * mean_rows, together**2 / (spread * spread_ms) if spread_ms else 1.0)


def _quantile(values: Sequence[float], fraction: float) -> float:
    """Return a quantile as `percentile_cont` does: between two values by linear interpolation."""
    ordered = sorted(values)
    place = fraction * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def _is_line(line: Line | None) -> bool:
    """Whether the time grows with the change rows, more than by chance."""
    return line is not None and line.slope > 0 and line.r2 >= MIN_R2
