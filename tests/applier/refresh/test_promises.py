"""SLAs, tiers and backoff together: what is due, what goes into a tick, and what is stored and alerted."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from applier.catalog.stream_tables import StreamTableRow
from applier.plan.stream_table import PostgresQuery, StreamTable
from applier.refresh.method.refresh import Refresh, RefreshResult, WriteTime
from applier.refresh.method.refresh_planner import is_long_refresh
from applier.refresh.method.strategy import RefreshMethod, RefreshReason, Strategy
from applier.refresh.promises import MIN_RECENT, Promises, PromiseSettings
from applier.refresh.scheduler import Scheduler
from applier.refresh.timing.schedule import Continuous, Cron, Every, Timed
from shared_schema.alerts import AlertEvent
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


def refresh(of: StreamTableRow, predicted_ms: float | None = None) -> Refresh:
    table = StreamTable(of.pgt_id, of.table, of.pgt_relid, (), PostgresQuery("", frozenset(), True, ""))
    strategy = Strategy(RefreshMethod.DIFFERENTIAL, RefreshReason.MODE)
    return Refresh(of, table, LsnRange(Lsn(1), Lsn(2)), strategy, 1, 1, NOON, predicted_ms=predicted_ms)


def s(seconds: float) -> timedelta:
    return timedelta(seconds=seconds)


def finish(
    promises: Promises, of: StreamTableRow, *, age_s: float, took_s: float = 0.1, schedule: Timed = TEN_S
) -> StreamTableRow:
    """Let a refresh of rows of that age end at NOON; return the stream table as it is stored afterwards."""
    seen = replace(of, fresh_until=NOON - s(age_s))
    result = RefreshResult(refresh(seen), None, NOON - s(took_s), took_s * 900, WriteTime(took_s * 100))
    stored = promises.note_success(result, schedule, NOON)
    if stored is None:
        return of
    return replace(
        of,
        tier=stored.tier if stored.tier is not None and stored.for_ms == of.sla_ms else of.tier,
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
def test_a_tier_that_a_person_chose_stays_and_so_does_one_without_an_sla(fixed: dict[str, Any]) -> None:
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
    assert not promises.is_due(stored, hour, NOON + s(23))
    assert promises.is_due(stored, hour, NOON + s(24))
    finish(promises, stored, age_s=20, took_s=4, schedule=hour)
    assert promises.is_due(stored, hour, NOON + s(20))


def test_tiers_multiply_the_interval_unless_they_are_switched_off() -> None:
    on, off = Promises(), Promises(lambda: PromiseSettings(tiered_scheduling=False))
    for tier, seconds in {"hot": 10, "warm": 20, "cold": 100}.items():
        assert on.next_refresh(row(tier=tier), Every(15.0), NOON) == NOON + s(seconds * 1.5)
        assert off.next_refresh(row(tier=tier), TEN_S, NOON) == NOON + s(10)
    assert not off.is_due(row(tier="frozen"), TEN_S, NOON + s(1000))


def alerts_to(seen: list[tuple[AlertEvent, dict[str, int | float | str]]]) -> Callable[..., bool]:
    def send(event: AlertEvent, **about: int | float | str) -> bool:
        seen.append((event, about))
        return True

    return send


def test_falling_behind_is_told_once_and_the_interval_is_stretched_and_goes_back() -> None:
    seen: list[tuple[AlertEvent, dict[str, int | float | str]]] = []
    promises, stored = Promises(alert=alerts_to(seen)), row()
    for _ in range(4):
        stored = finish(promises, stored, age_s=1, took_s=9)
    assert seen == [(AlertEvent.SCHEDULER_FALLING_BEHIND, {"pgt_id": 1, "took_ms": 9_000, "interval_ms": 10_000})]
    stored = finish(promises, stored, age_s=1, took_s=12)
    assert stored.interval_stretch == 2
    assert promises.next_refresh(stored, TEN_S, NOON) == NOON + s(20)
    stored = finish(promises, stored, age_s=1, took_s=3)
    assert stored.interval_stretch == 1
    # A refresh that somebody asked for says nothing about the schedule, and every tick is no interval.
    assert finish(promises, replace(stored, refresh_requested=True), age_s=1, took_s=60).interval_stretch == 1
    assert finish(promises, stored, age_s=1, took_s=60, schedule=Continuous()).interval_stretch == 1


def test_a_breach_is_told_before_it_happens_and_once() -> None:
    seen: list[tuple[AlertEvent, dict[str, int | float | str]]] = []
    promises = Promises(alert=alerts_to(seen))
    due = row(sla_ms=30_000, fresh_until=NOON)
    rows = [due, row(2, fresh_until=NOON), row(3, sla_ms=1_000, fresh_until=NOON, tier="frozen")]
    for seconds in (14, 16, 20):
        promises.watch(rows, [refresh(due, 12_000.0)], NOON + s(seconds))
    about = {"pgt_id": 1, "sla_ms": 30_000, "age_ms": 16_000, "predicted_ms": 12_000}
    assert seen == [(AlertEvent.PREDICTED_SLA_BREACH, about)]
    finish(promises, due, age_s=29)
    promises.watch(rows, [refresh(due, 12_000.0)], NOON + s(20))
    assert len(seen) == 1
    finish(promises, due, age_s=5)
    # Nothing refreshes it: the consumer is away, a gate is closed, or its refresh takes too long.
    promises.watch(rows, [], NOON + s(26))
    assert len(seen) == 1
    promises.watch(rows, [], NOON + s(28))
    assert len(seen) == 2


def test_what_is_late_at_a_start_is_told_if_it_stays_late() -> None:
    seen: list[tuple[AlertEvent, dict[str, int | float | str]]] = []
    promises, late = Promises(alert=alerts_to(seen)), [row(i, sla_ms=30_000, fresh_until=NOON) for i in (1, 2)]
    for seconds in (3_600, 3_610, 3_629):
        promises.watch(late, [], NOON + s(seconds))
    assert seen == []
    finish(promises, late[0], age_s=5)
    for seconds in (3_630, 3_631):
        promises.watch([row(1, sla_ms=30_000, fresh_until=NOON + s(3_629)), late[1]], [], NOON + s(seconds))
    assert [about["pgt_id"] for _, about in seen] == [2]
    # It was in time since then: what comes is new.
    promises.watch([row(1, sla_ms=30_000, fresh_until=NOON + s(3_629))], [], NOON + s(3_660))
    assert [about["pgt_id"] for _, about in seen] == [2, 1]


def test_a_refresh_in_time_is_no_reason_for_an_alert() -> None:
    seen: list[tuple[AlertEvent, dict[str, int | float | str]]] = []
    promises, stored = Promises(alert=alerts_to(seen)), row(sla_ms=30_000, tier="cold", fresh_until=NOON)
    for _ in range(MIN_RECENT):
        finish(promises, stored, age_s=20, took_s=4)
    start = promises.next_refresh(stored, Every(3600.0), NOON)
    assert start == NOON + s(20)
    promises.watch([stored], [refresh(stored)], start + s(1))
    assert seen == []


def test_a_slow_one_runs_beside_the_ticks_unless_it_is_the_only_one() -> None:
    promises = Promises()
    both: dict[int, Timed] = dict.fromkeys((1, 2), TEN_S)
    for _ in range(MIN_RECENT):
        assert [r.runs_beside for r in promises.choose([refresh(row(1)), refresh(row(2))], both, NOON)] == [False] * 2
        finish(promises, row(1), age_s=1, took_s=3)
    chosen = promises.choose([refresh(row(1)), refresh(row(2))], both, NOON)
    assert {r.table.id: is_long_refresh(r) for r in chosen} == {1: True, 2: False}
    # The other one may be due before it has ended.
    assert [r.runs_beside for r in promises.choose([refresh(row(1))], both, NOON)] == [True]
    assert [r.runs_beside for r in promises.choose([refresh(row(1))], {1: TEN_S}, NOON)] == [False]


def test_who_waits_for_others_of_its_tick_is_not_slow() -> None:
    promises, waiting = Promises(), row()
    for _ in range(MIN_RECENT):
        result = RefreshResult(refresh(row(1, fresh_until=NOON)), None, NOON - s(30), 40.0, WriteTime(10.0))
        assert promises.note_success(result, TEN_S, NOON) is None
    assert promises.predicted_ms(refresh(waiting)) == 50
    assert promises.next_refresh(waiting, TEN_S, NOON) == NOON + s(10)


def test_colder_ones_beside_the_ticks_leave_a_place_for_hot_ones() -> None:
    promises = Promises(lambda: PromiseSettings(workers=3))
    schedules: dict[int, Timed] = dict.fromkeys(range(1, 6), TEN_S)
    rows = [row(i, tier="cold") for i in range(1, 5)]
    due = [refresh(of, 9_000.0) for of in rows]
    assert [r.table.id for r in promises.choose(due, schedules, NOON)] == [1, 2]
    # Those are running.
    hot = refresh(row(5), 9_000.0)
    promises.watch([*rows, row(5)], [*due[2:], hot], NOON)
    assert [r.table.id for r in promises.choose([*due[2:], hot], schedules, NOON)] == [5]
    finish(promises, rows[0], age_s=1)
    finish(promises, row(5), age_s=1)
    assert [r.table.id for r in promises.choose(due[2:], schedules, NOON)] == [3]


def test_slow_hot_ones_take_no_place_of_the_colder_ones() -> None:
    promises = Promises(lambda: PromiseSettings(workers=4))
    hot, cold = [row(i) for i in range(1, 6)], row(9, tier="cold")
    schedules: dict[int, Timed] = dict.fromkeys((*range(1, 6), 9), TEN_S)
    slow = [refresh(of, 9_000.0) for of in hot]
    assert len(promises.choose(slow, schedules, NOON)) == 5
    promises.watch([*hot, cold], [refresh(cold, 9_000.0)], NOON)
    assert [r.table.id for r in promises.choose([refresh(cold, 9_000.0)], schedules, NOON)] == [9]


def test_colder_ones_beside_the_ticks_leave_a_core_to_hot_ones() -> None:
    assert [PromiseSettings(workers=4, cores=n).places for n in (1, 2, 3, 16)] == [1, 1, 2, 3]


def test_many_of_which_nothing_is_known_do_not_fill_one_tick() -> None:
    promises = Promises(lambda: PromiseSettings(workers=1))
    for _ in range(MIN_RECENT):
        finish(promises, row(1), age_s=1, took_s=0.9)
    unknown = [refresh(row(i)) for i in range(2, 9)]
    schedules: dict[int, Timed] = dict.fromkeys(range(1, 12), TEN_S)
    assert len(promises.choose([refresh(row(1)), *unknown], schedules, NOON)) == 2
    # The first one of a colder stream table may take far longer, and nobody waits for it.
    colder = [refresh(row(i, tier="cold")) for i in range(9, 12)]
    assert [r.table.id for r in promises.choose([refresh(row(1), 100.0), *colder], schedules, NOON)] == [1]
    assert [r.table.id for r in promises.choose(colder, schedules, NOON)] == [9]


def test_less_goes_into_a_tick_where_ticks_take_longer_than_predicted() -> None:
    promises = Promises(lambda: PromiseSettings(workers=2))
    due = [refresh(row(i), 500.0) for i in range(1, 12)]
    schedules: dict[int, Timed] = dict.fromkeys(range(1, 12), TEN_S)

    def tick(at_s: int, factor: float) -> int:
        began = NOON + s(at_s)
        chosen = promises.choose(due, schedules, began)
        visible = began + s(len(chosen) * 0.25 * factor)
        for one in chosen:
            promises.note_success(RefreshResult(one, None, began, 500.0, WriteTime(0.0)), TEN_S, visible)
        return len(chosen)

    assert tick(0, 1.0) == 8
    assert [tick(at_s, 2.0) for at_s in range(10, 200, 10)][-1] == 4
    assert [tick(at_s, 0.9) for at_s in range(200, 500, 10)][-1] == 8


def test_colder_ones_wait_where_a_hot_one_must_start_soon_but_not_for_one_that_is_held() -> None:
    promises = Promises(lambda: PromiseSettings(workers=1))
    hot, warm = row(1, sla_ms=5_000.0), row(2, tier="warm", sla_ms=30_000.0)
    schedules: dict[int, Timed] = {1: Every(60.0), 2: Every(5.0)}
    for at_s, chosen in ((3.0, [2]), (3.8, []), (4.5, [2])):
        promises.watch([hot, warm], [refresh(warm, 500.0)], NOON + s(at_s))
        assert [r.table.id for r in promises.choose([refresh(warm, 500.0)], schedules, NOON + s(at_s))] == chosen
    # It is due now, late, and alone.
    both = [refresh(hot, 500.0), refresh(warm, 400.0)]
    promises.watch([hot, warm], both, NOON + s(4.5))
    assert [r.table.id for r in promises.choose(both, schedules, NOON + s(4.5))] == [1]


def test_a_refresh_that_failed_leaves_its_place() -> None:
    scheduler = Scheduler(lambda: 3, Promises(lambda: PromiseSettings(workers=2)))
    first, second = row(1, tier="cold"), row(2, tier="cold")
    assert scheduler.load([first, second]) == []
    due = [refresh(of, 9_000.0) for of in (first, second)]
    assert [r.table.id for r in scheduler.choose(due, NOON, all_of_them=False)] == [1]
    assert scheduler.choose(due[1:], NOON, all_of_them=False) == []
    scheduler.note_failure(1, NOON)
    assert [r.table.id for r in scheduler.choose(due[1:], NOON, all_of_them=False)] == [2]


def test_what_was_slow_before_a_restart_delays_nobody_after_it() -> None:
    promises = Promises()
    promises.recall([(1, "DIFFERENTIAL", 9_000.0)] * MIN_RECENT + [(2, "NO_DATA", 9_000.0), (2, "SKIP", 9_000.0)])
    chosen = promises.choose([refresh(row(1)), refresh(row(2))], dict.fromkeys((1, 2), TEN_S), NOON)
    assert {r.table.id: r.runs_beside for r in chosen} == {1: True, 2: False}


def test_the_sla_wins_over_the_rest_after_a_query_of_postgresql() -> None:
    scheduler = Scheduler(lambda: 3)
    stored = row(sla_ms=30_000)
    assert scheduler.load([stored]) == []
    scheduler.pause_after_query(1, NOON, 15_000)
    assert not scheduler.is_due(stored, NOON + s(23), by_postgres=True)
    assert scheduler.is_due(stored, NOON + s(24), by_postgres=True)
    assert not scheduler.is_due(replace(stored, sla_ms=None), NOON + s(59), by_postgres=True)


def test_a_refresh_without_changes_says_nothing_about_the_pace() -> None:
    promises, stored = Promises(), finish(Promises(), row(), age_s=1, took_s=12)
    nothing = replace(refresh(stored), strategy=Strategy(RefreshMethod.NO_DATA, RefreshReason.UNCHANGED))
    assert promises.note_success(RefreshResult(nothing, None, NOON, 0.1, WriteTime(0.1)), TEN_S, NOON) is None
    assert promises.next_refresh(stored, TEN_S, NOON) == NOON + s(20)


def test_what_was_counted_for_another_sla_does_not_count() -> None:
    promises, stored = Promises(), row(sla_ms=30_000, tier="warm")
    for version in (1, 1, 2, 2):
        assert finish(promises, replace(stored, pace_version=version), age_s=45).tier == "warm"


def test_another_schedule_is_not_stretched_for_what_the_earlier_one_was() -> None:
    promises = Promises()
    stored = finish(promises, row(), age_s=1, took_s=12)
    assert promises.next_refresh(stored, Every(3600.0), NOON) == NOON + s(7200)
    # As it is read after alter_stream_table.
    altered = replace(stored, pace_version=1, interval_stretch=1.0)
    assert promises.next_refresh(altered, Every(3600.0), NOON) == NOON + s(3600)


def test_what_refreshes_took_before_all_rows_were_new_predicts_nothing() -> None:
    promises, stored = Promises(), row()
    for _ in range(MIN_RECENT):
        finish(promises, stored, age_s=1, took_s=9)
    assert promises.predicted_ms(refresh(stored)) == 9_000
    whole = replace(refresh(stored), strategy=Strategy(RefreshMethod.FULL, RefreshReason.REINITIALIZE))
    promises.note_success(RefreshResult(whole, None, NOON, 50.0, WriteTime(5.0)), TEN_S, NOON)
    assert promises.predicted_ms(refresh(stored)) is None


def test_steps_follow_each_other_whatever_the_schedule_says() -> None:
    promises, lagging = Promises(), row(tier="cold")
    soon = NOON + s(1)
    assert not promises.is_due(lagging, TEN_S, soon)
    promises.choose([replace(refresh(lagging), is_step=True)], {1: TEN_S}, NOON)
    assert promises.has_deferred
    assert promises.is_due(lagging, TEN_S, soon)
    assert finish(promises, lagging, age_s=1, took_s=90) == lagging
    promises.choose([refresh(lagging)], {1: TEN_S}, soon)
    assert not promises.has_deferred
    assert not promises.is_due(lagging, TEN_S, soon)


def test_a_restart_keeps_the_stretch() -> None:
    stored = row()
    stored = finish(Promises(), stored, age_s=1, took_s=12)
    assert Promises().next_refresh(stored, TEN_S, NOON) == NOON + s(20)


def test_one_table_costs_microseconds() -> None:
    promises = Promises()
    rows = [row(i, sla_ms=30_000, fresh_until=NOON, reads=[i - 1] if i % 5 else []) for i in range(1, 401)]
    schedules: dict[int, Timed] = {of.pgt_id: Cron("*/5 * * * *") if of.pgt_id % 2 else TEN_S for of in rows}
    due = [refresh(of, 10.0) for of in rows]
    before = time.process_time()
    promises.watch(rows, due, NOON)
    assert len(promises.choose(due, schedules, NOON)) == 400
    assert (time.process_time() - before) / 400 < 200e-6


def test_what_does_not_fit_waits_for_the_next_tick_and_a_drain_takes_all() -> None:
    promises = Promises(lambda: PromiseSettings(workers=1))
    due = [refresh(of, 1_500.0) for of in (row(1, tier="cold"), row(2), row(3, sla_ms=3_000))]
    schedules: dict[int, Timed] = dict.fromkeys((1, 2, 3), TEN_S)
    assert [r.table.id for r in promises.choose(due, schedules, NOON)] == [3]
    assert promises.has_deferred
    assert len(promises.choose(due, schedules, NOON, all_of_them=True)) == 3
    assert not promises.has_deferred


def test_a_short_sla_makes_short_ticks() -> None:
    promises = Promises(lambda: PromiseSettings(workers=1))
    due = [refresh(of, 700.0) for of in (row(1), row(2))]
    schedules: dict[int, Timed] = dict.fromkeys((1, 2, 3), TEN_S)
    assert len(promises.choose(due, schedules, NOON)) == 2
    promises.watch([row(1), row(2), row(3, sla_ms=4_000, fresh_until=NOON)], due, NOON)
    assert len(promises.choose(due, schedules, NOON)) == 1
    slow = promises.choose([refresh(row(1), 900.0)], schedules, NOON)
    assert [one.runs_beside for one in slow] == [True]
