"""When a stream table is due: schedule texts, fixed intervals, cron, and the needs of its readers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from applier.catalog.stream_tables import StreamTableRow
from applier.refresh.scheduler import Scheduler
from applier.refresh.timing.schedule import (
    BadSchedule,
    Calculated,
    Continuous,
    Cron,
    Every,
    Schedule,
    Timed,
    is_due,
    next_due,
    parse_schedule,
    period_s,
    resolve_calculated,
)

NOON = datetime(2026, 5, 17, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("1s", Continuous()),
        ("250ms", Continuous()),
        ("continuous", Continuous()),
        ("1s500ms", Every(1.5)),
        ("1h30m", Every(5400.0)),
        ("2d", Every(172800.0)),
        ("calculated", Calculated()),
        ("*/5 * * * *", Cron("*/5 * * * *")),
        ("@daily", Cron("0 0 * * *")),
        ("15 3 * * MON", Cron("15 3 * * MON")),
    ],
)
def test_what_a_text_means(text: str, meaning: object) -> None:
    assert parse_schedule(text) == meaning


@pytest.mark.parametrize("text", ["", "5", "5 m", "m5", "* * *", "61 * * * *", "@never", "0 0 31 2 *", "; DROP TABLE"])
def test_what_is_not_understood(text: str) -> None:
    with pytest.raises(BadSchedule):
        parse_schedule(text)


moments = st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))
timed = st.one_of(
    st.integers(2, 100_000).map(lambda s: Every(float(s))),
    st.sampled_from(["*/7 * * * *", "0 3 * * 1", "5 4 1 * *"]).map(Cron),
)


@given(timed, moments)
def test_a_moment_comes_after_the_last_refresh_and_within_a_period(schedule: Timed, last: datetime) -> None:
    due = next_due(schedule, last)
    assert due is not None and last < due
    assert not is_due(schedule, last, due - timedelta(microseconds=1)) or due - timedelta(microseconds=1) <= last
    assert is_due(schedule, last, due)
    if isinstance(schedule, Every):
        assert due - last <= timedelta(seconds=schedule.seconds)


@given(st.integers(2, 10_000), moments, moments)
def test_equal_schedules_share_their_moments(seconds: int, one: datetime, other: datetime) -> None:
    schedule = Every(float(seconds))
    moments = {next_due(schedule, one), next_due(schedule, other)}
    assert all(m is not None and m.timestamp() % seconds == 0 for m in moments)


def test_continuous_is_always_due_and_so_is_what_was_never_refreshed() -> None:
    assert is_due(Continuous(), NOON, NOON)
    assert is_due(Every(3600.0), None, NOON)
    assert not is_due(Cron("0 13 * * *"), NOON, NOON + timedelta(minutes=59))


def test_a_clock_set_back_delays_no_refresh() -> None:
    for schedule in (Every(3600.0), Cron("0 13 * * *")):
        assert is_due(schedule, NOON, NOON - timedelta(hours=20))
    scheduler = Scheduler(max_consecutive_errors=lambda: 3)
    row = StreamTableRow(
        pgt_id=1, pgt_relid=1, pgt_schema="public", pgt_name="t", original_query="", defining_query="", created_at=NOON,
        status="ACTIVE", schedule="1h", refresh_mode="AUTO", full_policy="allow", append_only=False,
        auto_threshold=None, frontier=None, refreshed_at=None, refresh_requested=False, reads=[],
        reads_uncaptured=False,
    )  # fmt: skip
    scheduler.note_failure(1, NOON)
    assert not scheduler.is_due(row, NOON, by_postgres=False)
    assert scheduler.is_due(row, NOON - timedelta(hours=20), by_postgres=False)
    scheduler.note_success(1)
    scheduler.pause_after_query(1, NOON, took_ms=1000)
    assert not scheduler.is_due(row, NOON, by_postgres=True)
    assert scheduler.is_due(row, NOON - timedelta(hours=20), by_postgres=True)


def test_calculated_is_as_fast_as_the_fastest_reader_through_any_number_of_them() -> None:
    schedules: dict[int, Schedule] = {
        1: Calculated(),
        2: Calculated(),
        3: Every(60.0),
        4: Cron("*/30 * * * * "),
        5: Calculated(),
        6: Every(5.0),
    }
    resolved = resolve_calculated(schedules, {1: {2, 4}, 2: {3}, 6: {5}})
    assert resolved[1] == resolved[2] == Every(60.0)
    assert resolved[5] == Continuous()
    assert resolved[6] == Every(5.0)
    assert period_s(resolved[4]) == 1800


def test_a_ring_of_calculated_ones_ends() -> None:
    assert resolve_calculated({1: Calculated(), 2: Calculated()}, {1: {2}, 2: {1}}) == {
        1: Continuous(),
        2: Continuous(),
    }
