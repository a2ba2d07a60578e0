"""What earlier refreshes say about the next one, and when they say nothing."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from applier.refresh.method.cost_model import (
    SAMPLES_OF_SIZE,
    CostModel,
    DifferentialCost,
    FullCost,
    PredictionLimits,
    fit_line,
)
from applier.refresh.method.strategy import (
    FullPolicy,
    RefreshInputs,
    RefreshMethod,
    RefreshMode,
    RefreshReason,
    Strategy,
    choose_strategy,
)

NOW = datetime(2026, 5, 17, 12, tzinfo=UTC)
LIMITS = PredictionLimits()
SOURCE_ROWS = 1_000_000


def cost(changes: int, compute_ms: float, write_ms: float = 10.0, age_s: float = 60.0) -> DifferentialCost:
    return DifferentialCost(NOW - timedelta(seconds=age_s), changes, compute_ms, write_ms)


def choose(model: CostModel, changes: int, source_rows: int = SOURCE_ROWS) -> Strategy:
    """Choose as the planner does."""
    return choose_strategy(
        RefreshInputs(
            RefreshMode.AUTO,
            FullPolicy.ALLOW,
            has_plan=True,
            is_deterministic=True,
            is_filled=True,
            partial=False,
            has_history=True,
            changes=changes,
            source_rows=source_rows,
            threshold=0.15,
            prediction=model.predict(changes, source_rows, NOW, LIMITS),
            prediction_ratio=LIMITS.ratio,
        )
    )


LINEAR = [cost(n, 100 + n * 0.1, 5 + n * 0.01) for n in range(2_000, 22_000, 2_000)]
FULLS = [FullCost(2_000, SOURCE_ROWS)]


def test_a_spike_is_refreshed_in_full_before_it_costs() -> None:
    model = CostModel.of(LINEAR, FULLS)
    # 105 ms and 0.11 ms per row: 3 000 ms are reached at 26 318 rows.
    assert choose(model, 26_000).reason is RefreshReason.INCREMENTAL
    spike = choose(model, 60_000)
    assert (spike.method, spike.reason) == (RefreshMethod.FULL, RefreshReason.PREDICTED_COST)
    assert spike.detail.startswith("60000 changes: about 6705 ms by 10 refreshes, a full one about 2000 ms")
    # Afterwards small ones are differential as before.
    assert choose(model, 2_000).reason is RefreshReason.INCREMENTAL


costs = st.builds(cost, st.integers(1, 10**6), st.floats(0, 1e7), st.floats(0, 1e7), st.floats(0, 3_599))
fulls = st.lists(st.builds(FullCost, st.floats(0, 1e6), st.integers(0, 10**7)), max_size=5)


@given(st.lists(costs, max_size=4), fulls, st.integers(1_001, 10**6))
def test_fewer_than_five_samples_leave_the_fixed_threshold(
    samples: list[DifferentialCost], full: list[FullCost], changes: int
) -> None:
    assert choose(CostModel.of(samples, full), changes) == choose(CostModel(), changes)


@given(st.lists(costs, max_size=40), fulls, st.integers(1, 1_000))
def test_few_rows_never_switch(samples: list[DifferentialCost], full: list[FullCost], changes: int) -> None:
    assert choose(CostModel.of(samples, full), changes).method is RefreshMethod.DIFFERENTIAL


@given(st.lists(costs, min_size=5, max_size=40), fulls.filter(bool), st.integers(1_001, 150_000))
def test_the_border_between_the_methods_is_one_number(
    samples: list[DifferentialCost], full: list[FullCost], changes: int
) -> None:
    """A decision holds for more rows too, as far as anything is predicted: no size between has another method."""
    model = CostModel.of(samples, full)
    more = int(changes * 1.5)
    if choose(model, changes).method is RefreshMethod.FULL and model.predict(more, SOURCE_ROWS, NOW, LIMITS):
        assert choose(model, more).method is RefreshMethod.FULL


def test_without_a_slope_there_is_no_prediction() -> None:
    assert CostModel.of([cost(5_000, 9_000 + n) for n in range(20)], FULLS).predict(5_000, 10, NOW, LIMITS) is None
    falling = [cost(n, 9_000 - n / 10) for n in range(2_000, 22_000, 1_000)]
    assert CostModel.of(falling, FULLS).predict(20_000, 10, NOW, LIMITS) is None
    noise = random.Random(4)
    chance = [cost(5_000 + n, noise.uniform(5_000, 50_000), noise.uniform(0, 100)) for n in range(40)]
    assert CostModel.of(chance, FULLS).predict(20_000, 10, NOW, LIMITS) is None


def test_a_phase_that_does_not_grow_counts_as_constant() -> None:
    found = CostModel.of([replace(one, write_ms=40.0) for one in LINEAR], FULLS).predict(10_000, 10, NOW, LIMITS)
    assert found is not None and found.differential_ms == pytest.approx(100 + 1_000 + 40)


def test_only_the_window_counts_and_only_near_sizes() -> None:
    model = CostModel.of(LINEAR, FULLS)
    assert model.predict(20_000, SOURCE_ROWS, NOW, LIMITS) is not None
    assert model.predict(20_000, SOURCE_ROWS, NOW + timedelta(minutes=60), LIMITS) is None
    assert model.predict(20_000, SOURCE_ROWS, NOW, replace(LIMITS, min_samples=11)) is None
    assert model.predict(72_001, SOURCE_ROWS, NOW, LIMITS) is None, "four times the second largest sample"
    assert CostModel.of(LINEAR, []).predict(20_000, SOURCE_ROWS, NOW, LIMITS) is None


def test_a_full_refresh_is_estimated_again_when_the_data_grew() -> None:
    model = CostModel.of(LINEAR, FULLS)
    assert choose(model, 60_000).method is RefreshMethod.FULL
    assert choose(model, 60_000, 3 * SOURCE_ROWS).method is RefreshMethod.DIFFERENTIAL
    shrunk = model.predict(60_000, 10, NOW, LIMITS)
    assert shrunk is not None and shrunk.full_ms == 2_000
    # The initial fill of an empty stream table says nothing about the rows of now.
    empty = CostModel.of(LINEAR, [FullCost(0.24, 0)])
    assert choose(empty, 60_000).method is RefreshMethod.DIFFERENTIAL
    # One odd full refresh among several decides nothing.
    odd = CostModel.of(LINEAR, [FullCost(0.24, SOURCE_ROWS), *([FullCost(20_000, SOURCE_ROWS)] * 2)])
    assert choose(odd, 60_000).method is RefreshMethod.DIFFERENTIAL


@settings(max_examples=15)
@given(st.randoms(use_true_random=False))
def test_a_sawtooth_does_not_flap(chance: random.Random) -> None:
    """The load rises and falls, times vary by a fifth, and a differential refresh is never dearer: nothing switches."""
    model = CostModel.of([], FULLS)
    for step in range(120):
        changes = 1_500 + 1_500 * (step % 10)
        assert choose(model, changes).method is RefreshMethod.DIFFERENTIAL
        model.add(cost(changes, (100 + changes * 0.1) * chance.uniform(0.8, 1.2), chance.uniform(5, 15)))


@settings(max_examples=15)
@given(st.randoms(use_true_random=False), st.integers(20, 60))
def test_a_burst_changes_no_later_decision(chance: random.Random, burst_at: int) -> None:
    """One refresh that the machine paused is cut: neither its size nor any other one switches because of it."""
    model = CostModel.of([], FULLS)
    for step in range(90):
        changes = 1_500 + 1_500 * (step % 10)
        assert choose(model, changes).method is RefreshMethod.DIFFERENTIAL
        took = 200_000.0 if step == burst_at else (100 + changes * 0.1) * chance.uniform(0.8, 1.2)
        model.add(cost(changes, took))


def test_a_costly_load_stays_full_while_full_times_vary() -> None:
    chance, model = random.Random(1), CostModel.of(LINEAR, FULLS)
    methods = set()
    for _ in range(50):
        chosen = choose(model, 60_000)
        methods.add(chosen.method)
        model.fulls.append(FullCost(2_000 * chance.uniform(0.5, 2.0), SOURCE_ROWS))
    assert methods == {RefreshMethod.FULL}


@settings(max_examples=15)
@given(st.integers())
def test_few_large_ones_decide_among_many_small_ones_and_a_single_spike_does_not(seed: int) -> None:
    """Times of large refreshes vary by more than all of a small one; one of which the machine paused is cut."""
    chance = random.Random(seed)
    large = [cost(n, (50 + n * 0.1) * chance.uniform(0.75, 1.25)) for n in (20_000, 25_000, 32_000, 40_000)]
    small = [cost(chance.randint(10, 900), chance.uniform(49, 51), chance.uniform(9, 11)) for _ in range(600)]
    # 3 000 ms are reached at about 30 000 rows.
    model = CostModel.of([*large, *small], FULLS)
    assert [choose(model, n).reason.name for n in (10_000, 60_000)] == ["INCREMENTAL", "PREDICTED_COST"]
    # Also where one of the large ones was paused.
    model.add(cost(31_000, 200_000))
    assert [choose(model, n).reason.name for n in (10_000, 60_000)] == ["INCREMENTAL", "PREDICTED_COST"]
    usual = [cost(n, (50 + n * 0.01) * chance.uniform(0.75, 1.25)) for n in (20_000, 25_000, 32_000, 40_000)]
    spike = cost(chance.choice([15, 700, 15_000, 30_000, 45_000]), 60_000)
    spoilt = CostModel.of([*usual, *small[:100], spike, *small[100:]], FULLS)
    assert [choose(spoilt, n).method for n in (10_000, 60_000)] == [RefreshMethod.DIFFERENTIAL] * 2


def test_small_ones_do_not_displace_large_ones_and_of_a_size_the_newest_count() -> None:
    model = CostModel.of(LINEAR, FULLS)
    for n in range(2 * SAMPLES_OF_SIZE):
        model.add(cost(40 + n % 20, n))
    assert model.differentials[: len(LINEAR)] == LINEAR
    assert [one.compute_ms for one in model.differentials[len(LINEAR) :]] == [
        *range(SAMPLES_OF_SIZE, 2 * SAMPLES_OF_SIZE)
    ]


def test_outliers_are_cut_and_the_rest_is_exact() -> None:
    rows = [*range(1_000, 21_000, 1_000)]
    took = [50 + n * 0.2 + (n // 1_000 % 3) for n in rows]
    plain, spoilt = fit_line(rows, took), fit_line([*rows, 10_500], [*took, 90_000.0])
    assert plain is not None and spoilt is not None
    assert spoilt.slope == pytest.approx(plain.slope) and spoilt.intercept == pytest.approx(plain.intercept)
    assert fit_line([], []) is None and fit_line([5, 5], [1.0, 2.0]) is None
