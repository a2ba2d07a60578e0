"""A schedule, a tier and an SLA in; when the next refresh is due, and which tier comes next, out. Pure: no clock.

hot     the schedule's interval
warm    twice as long
cold    ten times as long
frozen  never by schedule

A schedule of every tick has no interval: above 1x it counts as CONTINUOUS_S. A stream table with an SLA is also due
when its deadline would pass otherwise, whatever its tier.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import Enum
from typing import assert_never

from applier.refresh.timing.schedule import CONTINUOUS_S, Continuous, Cron, Every, Timed, next_due, period_s

CYCLES = 3
"""Refreshes in a row with the same finding before a tier changes: one slow refresh moves nothing."""

OVERFULFILS = 2.0
"""A stream table whose rows are fresher than its SLA by more than this may be refreshed less often."""

USABLE = 0.8
"""The share of an SLA after which new rows are to be visible; the rest is for the way from a commit to the applier."""

HOT_SLA_MS = 5_000
WARM_SLA_MS = 30_000
"""The longest SLAs that begin as hot and as warm."""


class Tier(Enum):
    """The values of pgt_stream_tables.refresh_tier, the most frequent first."""

    HOT = "hot"
    WARM = "warm"
    COLD = "cold"
    FROZEN = "frozen"


_BY_FREQUENCY = (Tier.HOT, Tier.WARM, Tier.COLD)
"""The tiers that an SLA may lead to: none is frozen without a person."""


@dataclass(frozen=True, slots=True)
class Pressure:
    """How often in a row the SLA was broken, and how often it was over-fulfilled. At most one of them is not 0."""

    broken: int = 0
    overfulfilled: int = 0


@dataclass(frozen=True, slots=True)
class SlaSample:
    """One refresh of a stream table with an SLA, as it was measured."""

    sla_ms: float
    age_ms: float
    """How old the rows were that it replaced, at the moment when the new ones were visible."""
    took_ms: float
    schedule: Timed


def tier_of_sla(sla_ms: float) -> Tier:
    """Return the tier in which a stream table with this SLA begins."""
    if sla_ms <= HOT_SLA_MS:
        return Tier.HOT
    return Tier.WARM if sla_ms <= WARM_SLA_MS else Tier.COLD


def factor_of(tier: Tier) -> float:
    """Return how many intervals of the schedule lie between two refreshes; infinite for never."""
    match tier:
        case Tier.HOT:
            return 1.0
        case Tier.WARM:
            return 2.0
        case Tier.COLD:
            return 10.0
        case Tier.FROZEN:
            return float("inf")
        case _:
            assert_never(tier)


def stretched_s(schedule: Timed, factor: float) -> float:
    """Return the seconds between two refreshes of a schedule that is stretched; 0 for every tick."""
    if isinstance(schedule, Continuous):
        return 0.0 if factor <= 1.0 else CONTINUOUS_S * factor
    return period_s(schedule) * factor


def next_in_tier(schedule: Timed, last: datetime | None, factor: float) -> datetime | None:
    """Return the first time after `last` at which a stretched schedule is due; None for every tick."""
    if last is None or factor <= 1.0:
        return next_due(schedule, last)
    match schedule:
        case Continuous() | Every():
            return next_due(Every(stretched_s(schedule, factor)), last)
        case Cron():
            due = last
            for _ in range(round(factor)):
                due = next_due(schedule, due) or due
            return due
        case _:
            assert_never(schedule)


def latest_start(last: datetime, sla_ms: float, predicted_ms: float) -> datetime:
    """Return when a refresh must start at the latest, so that the rows of `last` are replaced well within the SLA.

    At least half of the SLA lies between two starts. A refresh that takes longer than that cannot keep the SLA by
    starting all the time: half of the SLA lies between its end and the next start then.
    """
    if predicted_ms > sla_ms / 2:
        return last + timedelta(milliseconds=predicted_ms + sla_ms / 2)
    return last + timedelta(milliseconds=max(sla_ms * USABLE - predicted_ms, sla_ms / 2))


def reassign(tier: Tier, pressure: Pressure, cycle: SlaSample) -> tuple[Tier, Pressure]:
    """Return the tier after a refresh: one step hotter or colder after CYCLES refreshes in a row that say so.

    Colder only where the longer interval keeps the SLA, so that a stream table does not move to and fro. One that is
    frozen stays so.
    """
    if tier is Tier.FROZEN:
        return tier, Pressure()
    place = _BY_FREQUENCY.index(tier)
    if cycle.age_ms > cycle.sla_ms:
        broken = Pressure(broken=pressure.broken + 1)
        return (_BY_FREQUENCY[max(place - 1, 0)], Pressure()) if broken.broken >= CYCLES else (tier, broken)
    if cycle.age_ms * OVERFULFILS >= cycle.sla_ms or place + 1 == len(_BY_FREQUENCY):
        return tier, Pressure()
    colder = _BY_FREQUENCY[place + 1]
    if stretched_s(cycle.schedule, factor_of(colder)) * 1000 + cycle.took_ms > cycle.sla_ms:
        return tier, Pressure()
    fulfilled = replace(pressure, broken=0, overfulfilled=pressure.overfulfilled + 1)
    return (colder, Pressure()) if fulfilled.overfulfilled >= CYCLES else (tier, fulfilled)
