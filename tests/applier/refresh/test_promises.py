"""SLAs, tiers and backoff together: what is due, what goes into a tick, and what is stored and alerted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from applier.catalog.stream_tables import StreamTableRow
from applier.plan.stream_table import PostgresQuery, StreamTable
from applier.refresh.promises import MIN_RECENT, Promises, PromiseSettings
from applier.refresh.refresh import Refresh, RefreshResult
from applier.refresh.refresh_planner import is_long_refresh
from applier.refresh.schedule import Continuous, Every, Timed
from applier.refresh.scheduler import Scheduler
from applier.refresh.strategy import RefreshMethod, RefreshReason, Strategy
from shared_schema.lsn import Lsn, LsnRange

NOON = datetime(2026, 5, 17, 12, 0, tzinfo=UTC)
TEN_S = Every(10.0)

STORED = StreamTableRow(
    pgt_id=1, pgt_relid=1, pgt_schema="public", pgt_name="t", original_query="", defining_query="", created_at=NOON,
    status="ACTIVE", schedule="10s", refresh_mode="AUTO", full_policy="allow", append_only=False,
    auto_threshold=None, frontier="0/1", refreshed_at=NOON, refresh_requested=False, reads=[],
    reads_uncaptured=False,
)  # fmt: skip


def row(pgt_id: int = 1, **more: Any) -> StreamTableRow:
    return replace(STORED, pgt_id=pgt_id, pgt_relid=pgt_id, **more)


def refresh(of: StreamTableRow) -> Refresh:
    table = StreamTable(of.pgt_id, of.table, of.pgt_relid, (), PostgresQuery("", frozenset(), True, ""))
    strategy = Strategy(RefreshMethod.DIFFERENTIAL, RefreshReason.MODE)
    return Refresh(of, table, LsnRange(Lsn(1), Lsn(2)), strategy, 1, 1, NOON)


def s(seconds: float) -> timedelta:
    return timedelta(seconds=seconds)


def finish(
    promises: Promises, of: StreamTableRow, *, age_s: float, took_s: float = 0.1, schedule: Timed = TEN_S
) -> StreamTableRow:
    """Let a refresh of rows of that age end at NOON; return the stream table as it is stored afterwards."""
    seen = replace(of, complete_until=NOON - s(age_s))
    stored = promises.note_success(RefreshResult(refresh(seen), None, NOON - s(took_s), 1.0), schedule, NOON)
    if stored is None:
        return of
    counts = stored.for_ms == of.sla_ms and stored.tier is not None
    return replace(
        of,
        tier=stored.tier if counts else of.tier,
        assigned_tier=stored.tier,
        assigned_for_ms=stored.for_ms,
        interval_stretch=stored.interval_stretch,
    )


def test_an_sla_of_30_s_with_a_delay_is_promoted_within_three_cycles_and_goes_back() -> None:
    promises, stored = Promises(), row(sla_ms=30_000, tier="warm")
    assert promises.next_refresh(stored, TEN_S, NOON) == NOON + s(20)
    tiers = []
    for age_s in (45, 45, 45, 12, 12, 12):
        stored = finish(promises, stored, age_s=age_s)
        tiers.append(stored.tier)
        if stored.tier == "hot":
            assert promises.next_refresh(stored, TEN_S, NOON) == NOON + s(10)
    assert tiers == ["warm", "warm", "hot", "hot", "hot", "warm"]


@pytest.mark.parametrize("fixed", [{"tier_by_hand": True}, {"sla_ms": None}])
def test_a_tier_that_a_person_chose_stays_and_so_does_one_without_an_sla(fixed: dict[str, object]) -> None:
    promises, stored = Promises(), replace(row(sla_ms=30_000, tier="warm"), **fixed)
    for _ in range(6):
        stored = finish(promises, stored, age_s=100)
    assert stored.tier == "warm"


def test_a_frozen_one_is_refreshed_on_request_and_when_it_is_empty_and_never_by_schedule() -> None:
    scheduler = Scheduler(lambda: 3)
    frozen, year = row(tier="frozen", sla_ms=1_000), NOON + timedelta(days=365)
    assert scheduler.load([frozen]) == []
    assert not scheduler.is_due(frozen, year, by_postgres=False)
    assert not scheduler.is_due(frozen, year, by_postgres=True)
    assert scheduler.next_refresh(frozen, NOON) is None
    assert scheduler.is_due(replace(frozen, refresh_requested=True), NOON, by_postgres=False)
    assert scheduler.is_due(replace(frozen, refreshed_at=None, frontier=None), NOON, by_postgres=False)


def test_an_sla_is_kept_whatever_the_schedule_says() -> None:
    promises, stored = Promises(), row(sla_ms=30_000, tier="warm")
    hour = Every(3600.0)
    assert not promises.is_due(stored, hour, NOON + s(29))
    assert promises.is_due(stored, hour, NOON + s(30))
    finish(promises, stored, age_s=20, took_s=4, schedule=hour)
    assert promises.is_due(stored, hour, NOON + s(26))


def test_tiers_multiply_the_interval_unless_they_are_switched_off() -> None:
    on, off = Promises(), Promises(lambda: PromiseSettings(tiered_scheduling=False))
    for tier, seconds in {"hot": 10, "warm": 20, "cold": 100}.items():
        assert on.next_refresh(row(tier=tier), Every(15.0), NOON) == NOON + s(seconds * 1.5)
        assert off.next_refresh(row(tier=tier), TEN_S, NOON) == NOON + s(10)
    assert not off.is_due(row(tier="frozen"), TEN_S, NOON + s(1000))


def alerts_to(seen: list[tuple[str, dict[str, int | str]]]) -> Callable[..., None]:
    return lambda event, **about: seen.append((event, about))


def test_falling_behind_is_told_once_and_the_interval_is_stretched_and_goes_back() -> None:
    seen: list[tuple[str, dict[str, int | str]]] = []
    promises, stored = Promises(alert=alerts_to(seen)), row()
    for _ in range(4):
        stored = finish(promises, stored, age_s=1, took_s=9)
    assert seen == [("scheduler_falling_behind", {"pgt_id": 1, "took_ms": 9_000, "interval_ms": 10_000})]
    stored = finish(promises, stored, age_s=1, took_s=12)
    assert stored.interval_stretch == 2
    assert promises.next_refresh(stored, TEN_S, NOON) == NOON + s(20)
    stored = finish(promises, stored, age_s=1, took_s=3)
    assert stored.interval_stretch == 1
    # A refresh that somebody asked for says nothing about the schedule, and every tick is no interval.
    assert finish(promises, replace(stored, refresh_requested=True), age_s=1, took_s=60).interval_stretch == 1
    assert finish(promises, stored, age_s=1, took_s=60, schedule=Continuous()).interval_stretch == 1


def test_a_breach_is_told_before_it_happens_and_once() -> None:
    seen: list[tuple[str, dict[str, int | str]]] = []
    promises = Promises(alert=alerts_to(seen), predict_ms=lambda _: 12_000.0)
    due = row(sla_ms=30_000, complete_until=NOON)
    for seconds in (17, 19, 20):
        promises.choose([refresh(due)], {}, NOON + s(seconds))
    about = {"pgt_id": 1, "sla_ms": 30_000, "age_ms": 19_000, "predicted_ms": 12_000}
    assert seen == [("predicted_sla_breach", about)]
    finish(promises, due, age_s=5)
    promises.choose([refresh(due)], {}, NOON + s(19))
    assert len(seen) == 2


def test_a_slow_one_runs_beside_the_ticks_when_others_are_due() -> None:
    promises = Promises()
    for _ in range(MIN_RECENT):
        assert [r.runs_beside for r in promises.choose([refresh(row(1)), refresh(row(2))], {}, NOON)] == [False] * 2
        finish(promises, row(1), age_s=1, took_s=3)
    both = promises.choose([refresh(row(1)), refresh(row(2))], {}, NOON)
    assert {r.table.id: is_long_refresh(r) for r in both} == {1: True, 2: False}
    assert [r.runs_beside for r in promises.choose([refresh(row(1))], {}, NOON)] == [False]


def test_what_does_not_fit_waits_for_the_next_tick_and_a_drain_takes_all() -> None:
    promises = Promises(lambda: PromiseSettings(workers=1), predict_ms=lambda _: 1_500.0)
    due = [refresh(row(1, tier="cold")), refresh(row(2)), refresh(row(3, sla_ms=3_000))]
    schedules: dict[int, Timed] = dict.fromkeys((1, 2, 3), TEN_S)
    assert [r.table.id for r in promises.choose(due, schedules, NOON)] == [3]
    assert promises.has_deferred
    assert len(promises.choose(due, schedules, NOON, all_of_them=True)) == 3
    assert not promises.has_deferred
