"""How much longer than predicted ticks take, by what they took."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest

from applier.refresh.timing.tick_load import LEAST_MS, MOST, TickLoad

NOON = datetime(2026, 5, 17, 12, 0, tzinfo=UTC)


def after(predicted_ms: Sequence[float | None], took_ms: float | None, *, ticks: int = 50, workers: int = 2) -> float:
    """Return the factor after some ticks; None where no rows became visible."""
    load = TickLoad()
    for _ in range(ticks):
        load.begin(predicted_ms, workers, NOON)
        if took_ms is not None:
            load.note_visible(NOON + timedelta(milliseconds=took_ms / 2))
            load.note_visible(NOON + timedelta(milliseconds=took_ms))
    return load.factor


@pytest.mark.parametrize(
    ("predicted_ms", "took_ms", "factor"),
    [
        ([400.0, 400.0], 1_200.0, 3.0),
        # The longest one cannot be shared.
        ([900.0, 100.0], 1_800.0, 2.0),
        ([400.0, 400.0], 200.0, 1.0),
        ([400.0, 400.0], 60_000.0, MOST),
        # What says nothing: small ticks, unknown refreshes, ticks without any, rows that are not there.
        ([LEAST_MS / 2], 1_000.0, 1.0),
        ([400.0, None], 9_000.0, 1.0),
        ([], 1_000.0, 1.0),
        ([400.0], None, 1.0),
    ],
)
def test_the_factor_approaches_what_ticks_take(
    predicted_ms: Sequence[float | None], took_ms: float | None, factor: float
) -> None:
    assert after(predicted_ms, took_ms) == pytest.approx(factor, rel=0.01)
    assert TickLoad(factor).work_per_ms(6) == pytest.approx(6 / factor)


def test_one_odd_tick_does_not_decide() -> None:
    assert after([400.0, 400.0], 60_000.0, ticks=2) < MOST / 2
