"""Which refreshes go into a tick: by deadline and cost, hot ones first under pressure, and nobody starves."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from applier.refresh.deadlines import CYCLES_AT_MOST, Candidate, choose, will_break
from applier.refresh.tiers import Tier

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


def test_a_request_is_never_put_off() -> None:
    due = [Candidate(1, HOT, 0.0, 90), Candidate(2, COLD, 60.0, 500, is_requested=True)]
    assert choose(due, 100) == [2]


def test_what_is_read_goes_with_its_reader() -> None:
    due = [
        Candidate(1, COLD, 9.0, 60),
        Candidate(2, COLD, 9.0, 10, reads=frozenset({1, 7})),
        Candidate(3, HOT, 0.0, 10, reads=frozenset({2})),
        Candidate(4, HOT, 0.0, 60),
    ]
    assert choose(due, 100) == [1, 2, 3]


candidates = st.lists(
    st.builds(
        Candidate,
        table_id=st.just(0),
        tier=st.sampled_from([HOT, WARM, COLD]),
        start_in_s=st.floats(-100, 100),
        cost_ms=st.floats(0, 5_000),
        reads=st.frozensets(st.integers(0, 11), max_size=2),
    ),
    min_size=1,
    max_size=12,
).map(lambda found: [replace(candidate, table_id=place) for place, candidate in enumerate(found)])


@given(candidates, st.floats(1, 4_000), st.data())
def test_nobody_starves(due: list[Candidate], capacity_ms: float, data: st.DataObject) -> None:
    """Everything is due again at once, with any deadlines: each one is still refreshed within a bounded time."""
    waiting = {candidate.table_id: candidate for candidate in due}
    bound = CYCLES_AT_MOST + len(due)
    for _ in range(2 * bound):
        chosen = choose(list(waiting.values()), capacity_ms)
        assert chosen and len(set(chosen)) == len(chosen)
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


def test_a_breach_is_predicted_before_it_happens_not_after() -> None:
    assert will_break(30_000, 20_000, 11_000)
    assert not will_break(30_000, 20_000, 10_000)
    assert not will_break(30_000, 31_000, 1)
