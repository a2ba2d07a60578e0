"""The source's clock by the beats that arrive: slow ones do not matter, and a clock that jumps is followed."""

from __future__ import annotations

from applier.ingest.source_clock import KEPT_BEATS, SourceClock


def test_the_fastest_of_the_last_beats_counts() -> None:
    clock = SourceClock()
    assert clock.now_us(5.0) is None
    # The source's clock is 100 s ahead of ours; the beats travel 30 ms, 2 ms and 400 ms.
    for at, delay in ((1.0, 0.03), (2.0, 0.002), (3.0, 0.4)):
        clock.hear(int((100 + at) * 1e6), at + delay)
    assert abs((clock.now_us(10.0) or 0) - 109.998e6) < 10


def test_a_clock_that_is_set_forward_or_back_is_followed_at_once() -> None:
    clock = SourceClock()
    clock.hear(100_000_000, 1.0)
    clock.hear(3_701_000_000, 2.0)
    assert clock.now_us(2.0) == 3_701_000_000
    clock.hear(102_000_000, 3.0)
    assert clock.now_us(3.0) == 102_000_000


def test_a_drift_is_followed() -> None:
    clock = SourceClock()
    for second in range(2 * KEPT_BEATS):
        clock.hear(int(second * 0.99 * 1e6), float(second))
    last = 2 * KEPT_BEATS - 1
    assert abs((clock.now_us(float(last)) or 0) / 1e6 - last * 0.99) < 0.01 * KEPT_BEATS
