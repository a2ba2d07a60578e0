"""What changes between two looks, and what lasts, becomes alerts."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime

from applier.catalog.beats import WatchedTable
from applier.runtime.stream_table_watch import AlertThresholds, StreamTableWatch, buffer_alert
from shared_schema.alerts import START_GRACE_S, AlertEvent, AlertKind

ACTIVE = WatchedTable(1, "public", "watched", "ACTIVE", 1.0, False)


LATER = 1_000.0
"""Long after the start."""


def started() -> StreamTableWatch:
    """Return a watch whose first look was at a time 0 and saw nothing."""
    watch = StreamTableWatch({})
    assert watch.look([], (), 0.0) == []
    return watch


def events(watch: StreamTableWatch, read: WatchedTable, now: float = LATER) -> list[AlertEvent]:
    return [alert.event for alert in watch.look([read], (), now)]


def test_each_change_is_seen_once_and_what_lasts_each_time() -> None:
    watch = started()
    assert events(watch, replace(ACTIVE, status="SUSPENDED")) == []
    assert events(watch, ACTIVE) == [AlertEvent.RESUMED]
    assert events(watch, ACTIVE) == []
    pending = replace(ACTIVE, reinit_requested_at=datetime(2026, 1, 1, tzinfo=UTC))
    assert events(watch, pending) == [AlertEvent.REINITIALIZE_NEEDED]
    assert events(watch, pending) == []
    stale = replace(ACTIVE, is_stale=True, staleness_s=90.0)
    assert events(watch, stale) == events(watch, stale) == [AlertEvent.STALE_DATA]


def test_a_suspension_that_is_over_before_the_look_is_not_missed() -> None:
    watch = started()
    assert events(watch, ACTIVE) == []
    assert [alert.event for alert in watch.look([ACTIVE], {1}, LATER)] == [AlertEvent.RESUMED]
    assert [alert.event for alert in watch.look([replace(ACTIVE, status="SUSPENDED")], {1}, LATER)] == []


ODD = replace(
    ACTIVE,
    is_frozen=True,
    reinit_requested_at=datetime(2026, 1, 1, tzinfo=UTC),
    slow_refresh_id=7,
    slow_refresh_ms=9000,
)
CHANGES = [AlertEvent.FROZEN_TIER_SKIP, AlertEvent.REINITIALIZE_NEEDED, AlertEvent.SLOW_REFRESH]


def test_the_first_look_ever_tells_nothing_of_what_was_before() -> None:
    watch = StreamTableWatch(None)
    assert events(watch, ODD) == events(watch, ODD) == events(watch, ACTIVE) == []
    assert events(watch, ODD) == CHANGES[:2], "its slow refresh is known"


def test_a_start_tells_what_changed_since_the_last_look_and_nothing_else() -> None:
    watch = started()
    assert events(watch, ODD) == CHANGES
    stored = json.loads(json.dumps(watch.to_store()))
    assert events(StreamTableWatch(stored), ODD) == []
    assert events(StreamTableWatch({}), ODD) == CHANGES
    assert events(StreamTableWatch(stored), replace(ODD, slow_refresh_id=8)) == [AlertEvent.SLOW_REFRESH]
    assert events(watch, replace(ACTIVE, status="PAUSED", slow_refresh_id=6)) == []
    stored = json.loads(json.dumps(watch.to_store()))
    assert stored == {"1": {"status": "PAUSED", "slow_refresh_id": 7}}
    assert events(StreamTableWatch(stored), ACTIVE) == [AlertEvent.RESUMED]
    assert events(watch, replace(ACTIVE, pgt_id=2)) == [] == [*watch.to_store()]


def test_what_is_wrong_at_a_start_is_told_if_it_lasts() -> None:
    wrong = replace(ACTIVE, is_stale=True, staleness_s=90.0, fuse_blown_s=900.0)
    watch = StreamTableWatch({})
    assert events(watch, wrong, 0.0) == events(watch, wrong, START_GRACE_S - 0.1) == []
    assert events(watch, wrong, START_GRACE_S) == [AlertEvent.FUSE_BLOWN_REMINDER, AlertEvent.STALE_DATA]


def test_becoming_frozen_is_told_each_time_and_lasting_so_is_not() -> None:
    watch, frozen = started(), replace(ACTIVE, is_frozen=True)
    assert events(watch, ACTIVE) == []
    for _ in range(2):
        assert events(watch, frozen) == [AlertEvent.FROZEN_TIER_SKIP]
        assert events(watch, frozen) == events(watch, ACTIVE) == []
    assert AlertEvent.FROZEN_TIER_SKIP.kind is AlertKind.CHANGE


def test_a_blown_fuse_is_mentioned_again_after_five_minutes() -> None:
    watch = started()
    for seconds, expected in (
        (0.0, []),
        (299.9, []),
        (300.0, [AlertEvent.FUSE_BLOWN_REMINDER]),
        (900.0, [AlertEvent.FUSE_BLOWN_REMINDER]),
    ):
        assert events(watch, replace(ACTIVE, status="SUSPENDED", fuse_blown_s=seconds)) == expected
    assert AlertEvent.FUSE_BLOWN_REMINDER.kind is AlertKind.CONDITION
    assert events(watch, ACTIVE) == [AlertEvent.RESUMED]


def test_each_slow_refresh_is_told_once() -> None:
    watch = started()
    for number, expected in ((None, 0), (5, 1), (5, 0), (7, 1), (None, 0), (7, 0)):
        found = watch.look([replace(ACTIVE, slow_refresh_id=number, slow_refresh_ms=9000)], (), LATER)
        assert [alert.event for alert in found] == [AlertEvent.SLOW_REFRESH] * expected
        assert all(alert.fields["refresh_id"] == number and alert.fields["took_ms"] == 9000 for alert in found)


def test_rows_in_memory_are_reported_above_the_threshold() -> None:
    assert buffer_alert(10, AlertThresholds(buffered_rows=10)) is None
    found = buffer_alert(11, AlertThresholds(buffered_rows=10))
    assert found is not None and found.event is AlertEvent.BUFFER_GROWTH_WARNING
