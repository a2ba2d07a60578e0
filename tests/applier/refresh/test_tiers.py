"""Tiers: what an SLA begins with, how it is re-assigned, and when a stretched schedule is due."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from applier.refresh.timing.schedule import Continuous, Cron, Every
from applier.refresh.timing.tiers import (
    CYCLES,
    Pressure,
    SlaSample,
    Tier,
    factor_of,
    latest_start,
    next_in_tier,
    reassign,
    tier_of_sla,
)

NOON = datetime(2026, 5, 17, 12, 0, tzinfo=UTC)
TEN_S = Every(10.0)


def cycle(age_s: float, *, sla_s: float = 30.0, took_s: float = 1.0) -> SlaSample:
    return SlaSample(sla_s * 1000, age_s * 1000, took_s * 1000, TEN_S)


@pytest.mark.parametrize(
    ("sla_s", "tier"), [(0.1, Tier.HOT), (5, Tier.HOT), (5.001, Tier.WARM), (30, Tier.WARM), (31, Tier.COLD)]
)
def test_the_tier_that_an_sla_begins_with(sla_s: float, tier: Tier) -> None:
    assert tier_of_sla(sla_s * 1000) is tier


def test_an_injected_delay_promotes_within_three_cycles_and_its_end_brings_it_back() -> None:
    tier, pressure = tier_of_sla(30_000), Pressure()
    seen = []
    for age_s in (22, 45, 50, 48, 12, 11, 12, 22, 22):
        tier, pressure = reassign(tier, pressure, cycle(age_s))
        seen.append(tier)
    warm, hot = Tier.WARM, Tier.HOT
    assert seen == [warm, warm, warm, hot, hot, hot, warm, warm, warm]


def test_one_finding_in_between_begins_the_count_again() -> None:
    tier, pressure = Tier.WARM, Pressure()
    for age_s in (45, 45, 20, 45, 45):
        tier, pressure = reassign(tier, pressure, cycle(age_s))
    assert (tier, pressure) == (Tier.WARM, Pressure(broken=2))


def test_not_colder_where_the_longer_interval_would_break_the_sla() -> None:
    tier, pressure = Tier.WARM, Pressure()
    for _ in range(10):  # cold would be every 100 s
        tier, pressure = reassign(tier, pressure, cycle(1))
    assert tier is Tier.WARM


@given(
    st.sampled_from(Tier),
    st.lists(st.floats(0, 200), max_size=40),
    st.floats(0.1, 100),
)
def test_a_tier_moves_one_step_at_a_time_and_never_to_or_from_frozen(
    tier: Tier, ages: list[float], sla_s: float
) -> None:
    tiers, pressure, since_move = list(Tier), Pressure(), 0
    for age in ages:
        new, pressure = reassign(tier, pressure, cycle(age, sla_s=sla_s))
        since_move += 1
        assert abs(tiers.index(new) - tiers.index(tier)) <= 1
        assert (new is Tier.FROZEN) == (tier is Tier.FROZEN)
        if new is not tier:
            assert since_move >= CYCLES
            since_move = 0
        tier = new


def test_when_a_stretched_schedule_is_due() -> None:
    cold = factor_of(Tier.COLD)
    assert next_in_tier(Continuous(), NOON, 1.0) is None
    assert next_in_tier(Continuous(), NOON, cold) == NOON + timedelta(seconds=10)
    assert next_in_tier(Every(60.0), NOON, 2.0) == NOON + timedelta(minutes=2)
    assert next_in_tier(Cron("0 * * * *"), NOON, 2.0) == NOON + timedelta(hours=2)
    assert next_in_tier(Every(60.0), None, cold) is None


def test_the_latest_start_leaves_time_for_the_refresh_and_half_of_the_sla_for_the_others() -> None:
    assert latest_start(NOON, 30_000, 4_000) == NOON + timedelta(seconds=20)
    assert latest_start(NOON, 30_000, 15_000) == NOON + timedelta(seconds=15)


def test_half_of_the_sla_lies_after_the_end_of_a_refresh_that_cannot_keep_it() -> None:
    assert latest_start(NOON, 30_000, 90_000) == NOON + timedelta(seconds=90 + 15)
