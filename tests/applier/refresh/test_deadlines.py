"""Which refreshes go into a tick: by deadline and cost, hot ones first under pressure, and nobody starves."""

from __future__ import annotations

import time
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from applier.refresh.timing.deadlines import (
    CYCLES_AT_MOST,
    Candidate,
    choose,
    slack_of_tiers,
    tick_budget_ms,
    will_break,
)
from applier.refresh.timing.tiers import USABLE, Tier

HOT, WARM, COLD = Tier.HOT, Tier.WARM, Tier.COLD


def test_all_of_them_where_they_fit_by_their_deadlines() -> None:
    due = [Candidate(1, HOT, 9.0, 50), Candidate(2, HOT, 3.0, 50), Candidate(3, HOT, -1.0, 50)]
    assert choose(due, 150) == [3, 2, 1]


def test_under_pressure_hot_ones_go_first_and_small_ones_fill_the_rest() -> None:
    due = [
        Candidate(1, COLD, -5.0, 80),
        Candidate(2, HOT, 4.0, 60),
        Candidate(3, WARM, 0.0, 60),
        Candidate(4, COLD, 1, 30),
    ]
    assert choose(due, 100) == [2, 4]


def test_of_those_beside_the_ticks_colder_ones_wait_for_a_place_and_hot_ones_do_not() -> None:
    due = [
        Candidate(1, COLD, -9.0, 0, waited=9, runs_beside=True),
        Candidate(2, HOT, 4.0, 0, runs_beside=True),
        Candidate(3, COLD, 0.0, 0, runs_beside=True),
        Candidate(4, COLD, 9.0, 50),
    ]
    assert choose(due, 100, 1) == [1, 2, 4]
    assert choose(due, 100, 0) == [2, 4]
    assert choose(due, 100, 3) == [1, 2, 3, 4]


def test_what_has_waited_goes_even_when_requests_fill_every_tick() -> None:
    due = [
        Candidate(1, HOT, 0.0, 90, is_requested=True),
        Candidate(2, COLD, 0.0, 95, waited=5),
        Candidate(3, HOT, 0, 9),
    ]
    assert choose(due, 100) == [1, 2]


def test_what_is_refreshed_as_often_goes_with_what_it_reads() -> None:
    """Otherwise a chain whose parts are always due would fall apart under pressure."""
    due = [
        Candidate(1, HOT, 0.0, 60),
        Candidate(2, HOT, 5.0, 60, reads=frozenset({1})),
        Candidate(3, COLD, 0.0, 60, reads=frozenset({1})),
        Candidate(4, HOT, 1.0, 30),
    ]
    assert choose(due, 60) == [1, 2]


def test_a_request_is_never_put_off() -> None:
    due = [Candidate(1, HOT, 0.0, 90), Candidate(2, COLD, 60.0, 500, is_requested=True), Candidate(3, HOT, 1.0, 90)]
    assert choose(due, 100) == [2, 1]


def test_what_is_read_goes_with_its_reader() -> None:
    due = [
        Candidate(1, COLD, 9.0, 60),
        Candidate(2, COLD, 9.0, 10, reads=frozenset({1, 7})),
        Candidate(3, HOT, 0.0, 10, reads=frozenset({2})),
        Candidate(4, HOT, 0.0, 60),
    ]
    assert choose(due, 100) == [1, 2, 3]


def test_it_takes_little_time_for_many_that_read_each_other() -> None:
    due = [
        Candidate(i, HOT, 0.0, 1, reads=frozenset(range(max(0, i - 12), i)) if i % 25 else frozenset())
        for i in range(500)
    ]
    before = time.process_time()
    assert len(choose(due, 100_000)) == 500
    assert time.process_time() - before < 0.25


candidates = st.lists(
    st.builds(
        Candidate,
        table_id=st.just(0),
        tier=st.sampled_from([HOT, WARM, COLD]),
        start_in_s=st.floats(-100, 100),
        cost_ms=st.floats(0, 5_000),
        reads=st.frozensets(st.integers(0, 11), max_size=2),
        runs_beside=st.booleans(),
    ),
    min_size=1,
    max_size=12,
).map(lambda found: [replace(candidate, table_id=place) for place, candidate in enumerate(found)])


@given(candidates, st.floats(1, 4_000), st.sampled_from([0.0, 100.0, 9_000.0]), st.data())
def test_nobody_starves(due: list[Candidate], capacity_ms: float, slack_ms: float, data: st.DataObject) -> None:
    """Everything is due again at once, with any deadlines: each one is still refreshed within a bounded time.

    One place beside the ticks is enough, as long as whoever has it leaves it. And so it is where hotter ones that are
    not due leave no slack for a part of the ticks, or for all of them.
    """
    waiting = {candidate.table_id: candidate for candidate in due}
    bound = CYCLES_AT_MOST + len(due)
    for _ in range(2 * bound):
        chosen = choose(list(waiting.values()), capacity_ms, 1, {WARM: slack_ms, COLD: slack_ms / 2})
        assert len(set(chosen)) == len(chosen)
        for table_id, candidate in waiting.items():
            moved = replace(candidate, start_in_s=data.draw(st.sampled_from([-50.0, 0.0, 50.0])))
            waiting[table_id] = replace(moved, waited=0 if table_id in chosen else candidate.waited + 1)
            assert waiting[table_id].waited <= bound


@given(candidates, st.floats(1, 4_000))
def test_nobody_goes_before_what_it_reads(due: list[Candidate], capacity_ms: float) -> None:
    below = {candidate.table_id: frozenset(r for r in candidate.reads if r < candidate.table_id) for candidate in due}
    chosen = choose([replace(candidate, reads=below[candidate.table_id]) for candidate in due], capacity_ms)
    if len(chosen) < len(due):
        for place, table_id in enumerate(chosen):
            assert below[table_id] <= set(chosen[:place])


def test_colder_ones_begin_only_where_they_end_before_a_hotter_one_must_start() -> None:
    slack = slack_of_tiers([(HOT, 0.5), (HOT, 0.2), (WARM, 0.1), (COLD, -3.0)])
    assert slack == {WARM: 0.2, COLD: 0.1}
    due = [Candidate(1, HOT, 0.2, 300), Candidate(2, WARM, 0.1, 150), Candidate(3, WARM, 2.0, 150)]
    assert choose(due, 1_000, slack_ms={WARM: 200, COLD: 100}) == [1, 2]
    # Nothing hot is due yet: it will be, before the others have ended.
    assert choose(due[1:], 1_000, slack_ms={WARM: 100}) == []
    assert choose([replace(due[2], waited=CYCLES_AT_MOST), due[1]], 1_000, slack_ms={WARM: 100}) == [3]
    assert slack_of_tiers([(HOT, -1.0)]) == {WARM: 0.0, COLD: 0.0}


def test_a_tick_is_short_where_an_sla_is() -> None:
    assert [tick_budget_ms(slas) for slas in ([], [60_000], [60_000, 5_000], [100])] == [2_000, 2_000, 1_000, 250]


def test_a_breach_is_predicted_before_it_happens_and_never_for_a_refresh_in_time() -> None:
    assert will_break(30_000, 20_000, 7_001)
    assert not will_break(30_000, 20_000, 7_000)
    assert will_break(30_000, 31_000, 0)
    assert not will_break(30_000, 30_000 * USABLE, 0)
