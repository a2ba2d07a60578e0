"""Backoff: an interval is stretched while refreshes do not fit into it, and goes back by itself."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from applier.refresh.timing.pace import LONGEST_STRETCH, STRETCHES_ABOVE, Pace, pace_after


def run(*took_ms: float, stretches: bool = True) -> list[Pace]:
    pace, seen = Pace(), []
    for took in took_ms:
        pace = pace_after(pace, took, 1_000, stretches=stretches)
        seen.append(pace)
    return seen


def test_an_interval_is_stretched_above_95_percent_and_goes_back() -> None:
    assert [pace.stretch for pace in run(950, 951, 1_000, 1_901, 1_000, 949, 100)] == [1, 2, 2, 4, 2, 1, 1]


def test_three_refreshes_above_80_percent_fall_behind() -> None:
    assert [pace.is_behind for pace in run(900, 900, 900, 800, 900)] == [False, False, True, False, False]


def test_a_stretched_interval_does_not_hide_that_the_schedule_is_missed() -> None:
    seen = run(1_200, 1_200, 1_200, 700)
    assert [(pace.stretch, pace.is_behind) for pace in seen] == [(2, False), (2, False), (2, True), (1, False)]


def test_the_setting_and_schedules_without_an_interval() -> None:
    assert {pace.stretch for pace in run(*[5_000] * 9, stretches=False)} == {1}
    assert run(*[5_000] * 3, stretches=False)[-1].is_behind
    assert pace_after(Pace(8, 3), 5_000, 0, stretches=True) == Pace()


@given(st.floats(0, 50_000), st.lists(st.floats(0, 100_000), max_size=20))
def test_it_settles_where_the_refresh_fits_and_one_step_less_would_not(took: float, before: list[float]) -> None:
    *_, pace = run(*before, *[took] * 20)
    assert took <= STRETCHES_ABOVE * 1_000 * pace.stretch or pace.stretch == LONGEST_STRETCH
    assert pace.stretch == 1 or took > STRETCHES_ABOVE * 1_000 * pace.stretch / 2
