"""The stream tables as stored, look after look, in; the alerts about what is wrong or was changed, out. No IO.

Whatever changes a stream table (a function of SQL, a tick, another thread), it is seen here within a second.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from applier.catalog.beats import WatchedTable
from applier.catalog.stream_tables import Status
from shared_schema.alerts import Alert, AlertEvent
from shared_schema.slot_lag import SlotLagThresholds

OUT_OF_SERVICE = frozenset({Status.SUSPENDED.value, Status.PAUSED.value})

FUSE_REMINDER_S = 300.0
"""When a blown fuse is mentioned again for the first time; then whenever the cooldown of alerts is over."""


@dataclass(frozen=True, slots=True)
class AlertThresholds:
    """From when on growth is reported."""

    buffered_rows: int = 1_000_000
    slot_lag: SlotLagThresholds = field(default_factory=SlotLagThresholds)


@dataclass(frozen=True, slots=True)
class _Look:
    """What a look saw of one stream table."""

    status: str = ""
    request: datetime | None = None
    """When it was requested to compute everything once more, if that was pending."""
    is_frozen: bool = False
    slow_refresh_id: int | None = None


@dataclass
class StreamTableWatch:
    """Remembers the last look, to see what changed since."""

    _seen: dict[int, _Look] = field(default_factory=dict)

    def look(self, watched: Sequence[WatchedTable], suspended: Container[int] = ()) -> list[Alert]:
        """Return the alerts of this look. Those that last are in every look: sending limits them.

        `suspended` were suspended since the last look, which may be over by now.
        """
        before = self._seen
        self._seen = {
            read.pgt_id: _Look(read.status, read.reinit_requested_at, read.is_frozen, read.slow_refresh_id)
            for read in watched
        }
        found: list[Alert] = []
        for read in watched:
            last = before.get(read.pgt_id, _Look())
            found += _alerts(read, replace(last, status=Status.SUSPENDED.value) if read.pgt_id in suspended else last)
        return found


def _alerts(read: WatchedTable, before: _Look) -> Iterator[Alert]:
    name: dict[str, int | float | str] = {"pgt_id": read.pgt_id, "stream_table": str(read.table)}
    if before.status in OUT_OF_SERVICE and read.status not in OUT_OF_SERVICE:
        yield Alert(AlertEvent.RESUMED, name | {"was": before.status, "detail": "it is refreshed again"})
    if read.is_frozen and not before.is_frozen:
        detail = "its tier is frozen: no schedule refreshes it, only refresh_stream_table and wait_for"
        yield Alert(AlertEvent.FROZEN_TIER_SKIP, name | {"detail": detail})
    if read.fuse_blown_s is not None and read.fuse_blown_s >= FUSE_REMINDER_S:
        detail = f"its fuse has been blown for {read.fuse_blown_s:.0f} s: pgtrickle.reset_fuse decides what follows"
        yield Alert(AlertEvent.FUSE_BLOWN_REMINDER, name | {"blown_s": round(read.fuse_blown_s), "detail": detail})
    if read.reinit_requested_at not in (None, before.request):
        about = {"reason": read.reinit_reason, "detail": read.reinit_detail}
        yield Alert(AlertEvent.REINITIALIZE_NEEDED, name | about)
    if read.slow_refresh_id not in (None, before.slow_refresh_id):
        detail = (
            f"a refresh took {read.slow_refresh_ms} ms, over four times as long as others: see pgtrickle.df_anomaly"
        )
        figures = {"refresh_id": read.slow_refresh_id or 0, "took_ms": read.slow_refresh_ms or 0}
        yield Alert(AlertEvent.SLOW_REFRESH, name | figures | {"detail": detail})
    if read.is_stale and read.staleness_s is not None:
        detail = f"it lacks source commits of the last {read.staleness_s:.0f} s and is behind its schedule"
        yield Alert(AlertEvent.STALE_DATA, name | {"staleness_s": round(read.staleness_s, 1), "detail": detail})


def buffer_alert(rows: int, thresholds: AlertThresholds) -> Alert | None:
    """Return the alert about the change rows that are held in memory; None if they are few enough."""
    if rows <= thresholds.buffered_rows:
        return None
    detail = f"{rows} change rows are held for stream tables that are not refreshed, or since no checkpoint succeeded"
    return Alert(AlertEvent.BUFFER_GROWTH_WARNING, {"rows": rows, "detail": detail})
