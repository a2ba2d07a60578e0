"""What changes between two looks, and what lasts, becomes alerts."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from applier.catalog.beats import WatchedTable
from applier.runtime.stream_table_watch import AlertThresholds, StreamTableWatch, buffer_alert
from shared_schema.alerts import AlertEvent

ACTIVE = WatchedTable(1, "public", "watched", "ACTIVE", 1.0, False)


def events(watch: StreamTableWatch, read: WatchedTable) -> list[AlertEvent]:
    return [alert.event for alert in watch.look([read])]


def test_each_change_is_seen_once_and_what_lasts_each_time() -> None:
    watch = StreamTableWatch()
    assert events(watch, replace(ACTIVE, status="SUSPENDED")) == []
    assert events(watch, ACTIVE) == [AlertEvent.RESUMED]
    assert events(watch, ACTIVE) == []
    pending = replace(ACTIVE, reinit_requested_at=datetime(2026, 1, 1, tzinfo=UTC))
    assert events(watch, pending) == [AlertEvent.REINITIALIZE_NEEDED]
    assert events(watch, pending) == []
    stale = replace(ACTIVE, is_stale=True, staleness_s=90.0)
    assert events(watch, stale) == events(watch, stale) == [AlertEvent.STALE_DATA]


def test_a_suspension_that_is_over_before_the_look_is_not_missed() -> None:
    watch = StreamTableWatch()
    assert events(watch, ACTIVE) == []
    assert [alert.event for alert in watch.look([ACTIVE], {1})] == [AlertEvent.RESUMED]
    assert [alert.event for alert in watch.look([replace(ACTIVE, status="SUSPENDED")], {1})] == []


def test_a_start_tells_nothing_of_what_was_before() -> None:
    assert events(StreamTableWatch(), ACTIVE) == []


def test_becoming_frozen_is_told_each_time_and_lasting_so_is_not() -> None:
    watch, frozen = StreamTableWatch(), replace(ACTIVE, is_frozen=True)
    assert events(watch, ACTIVE) == []
    for _ in range(2):
        assert events(watch, frozen) == [AlertEvent.FROZEN_TIER_SKIP]
        assert events(watch, frozen) == events(watch, ACTIVE) == []
    assert AlertEvent.FROZEN_TIER_SKIP.is_change_of_state


def test_a_blown_fuse_is_mentioned_again_after_five_minutes() -> None:
    watch = StreamTableWatch()
    for seconds, expected in (
        (0.0, []),
        (299.9, []),
        (300.0, [AlertEvent.FUSE_BLOWN_REMINDER]),
        (900.0, [AlertEvent.FUSE_BLOWN_REMINDER]),
    ):
        assert events(watch, replace(ACTIVE, status="SUSPENDED", fuse_blown_s=seconds)) == expected
    assert not AlertEvent.FUSE_BLOWN_REMINDER.is_change_of_state
    assert events(watch, ACTIVE) == [AlertEvent.RESUMED]


def test_each_slow_refresh_is_told_once() -> None:
    watch = StreamTableWatch()
    for number, expected in ((None, 0), (5, 1), (5, 0), (7, 1), (None, 0)):
        found = watch.look([replace(ACTIVE, slow_refresh_id=number, slow_refresh_ms=9000)])
        assert [alert.event for alert in found] == [AlertEvent.SLOW_REFRESH] * expected
        assert all(alert.fields["refresh_id"] == number and alert.fields["took_ms"] == 9000 for alert in found)


def test_rows_in_memory_are_reported_above_the_threshold() -> None:
    assert buffer_alert(10, AlertThresholds(buffered_rows=10)) is None
    found = buffer_alert(11, AlertThresholds(buffered_rows=10))
    assert found is not None and found.event is AlertEvent.BUFFER_GROWTH_WARNING
