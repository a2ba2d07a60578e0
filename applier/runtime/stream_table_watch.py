"""The stream tables as stored, look after look, in; the alerts about what is wrong or was changed, out. No IO.

Whatever changes a stream table (a function of SQL, a tick, another thread), it is seen here within a second.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from applier.catalog.beats import WatchedTable
from applier.catalog.stream_tables import Status
from shared_schema.alerts import START_GRACE_S, Alert, AlertEvent
from shared_schema.slot_lag import SlotLagThresholds

OUT_OF_SERVICE = frozenset({Status.SUSPENDED.value, Status.PAUSED.value})

FUSE_REMINDER_S = 300.0
"""When a blown fuse is mentioned again for the first time; then whenever the cooldown of alerts is over."""

BACKPRESSURE_AFTER_S = 30.0
"""For how long the reader of the topics waits for a tick before it is reported: under load it often waits a little."""


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
    slow_refresh_id: int = 0
    """The newest refresh that was reported as slow."""

    @staticmethod
    def at(read: WatchedTable, before: _Look) -> _Look:
        """Return a new look; `before` is the last one."""
        slow_refresh_id = max(read.slow_refresh_id or 0, before.slow_refresh_id)
        return _Look(read.status, read.reinit_requested_at, read.is_frozen, slow_refresh_id)


class StreamTableWatch:
    """Remembers the last look, to see what changed since.

    `stored` is what `to_store` returned after the last look of an earlier process. Without it the first look is only a
    beginning: it reports no change.
    """

    def __init__(self, stored: Mapping[str, Any] | None) -> None:
        self._seen = None if stored is None else {int(pgt_id): _to_look(fields) for pgt_id, fields in stored.items()}
        self._began: float | None = None

    def look(self, watched: Sequence[WatchedTable], suspended: Container[int], now: float) -> list[Alert]:
        """Return the alerts of this look. Those that last are in every look: sending limits them.

        `suspended` were suspended since the last look, which may be over by now; `now` is of a monotonic clock.
        """
        seen = self._seen or {}
        looked = {read.pgt_id: _Look.at(read, seen.get(read.pgt_id, _Look())) for read in watched}
        before, self._seen = looked if self._seen is None else seen, looked
        self._began = now if self._began is None else self._began
        found: list[Alert] = []
        for read in watched:
            last = before.get(read.pgt_id, _Look())
            found += _changes(read, replace(last, status=Status.SUSPENDED.value) if read.pgt_id in suspended else last)
            if now - self._began >= START_GRACE_S:
                found += _conditions(read)
        return found

    def to_store(self) -> dict[str, Any]:
        """Return the last look as JSON, without stream tables of which it says nothing unusual."""
        seen = {pgt_id: _fields(look) for pgt_id, look in (self._seen or {}).items()}
        return {str(pgt_id): fields for pgt_id, fields in seen.items() if fields}


def _fields(look: _Look) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "status": look.status if look.status in OUT_OF_SERVICE else None,
        "request": look.request and look.request.isoformat(),
        "is_frozen": look.is_frozen or None,
        "slow_refresh_id": look.slow_refresh_id or None,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _to_look(fields: Mapping[str, Any]) -> _Look:
    request = fields.get("request")
    return _Look(
        fields.get("status", ""),
        request and datetime.fromisoformat(request),
        fields.get("is_frozen", False),
        fields.get("slow_refresh_id", 0),
    )


def _name(read: WatchedTable) -> dict[str, int | float | str]:
    return {"pgt_id": read.pgt_id, "stream_table": str(read.table)}


def _changes(read: WatchedTable, before: _Look) -> Iterator[Alert]:
    """Yield what is another thing than at the last look."""
    name = _name(read)
    if before.status in OUT_OF_SERVICE and read.status not in OUT_OF_SERVICE:
        yield Alert(AlertEvent.RESUMED, name | {"was": before.status, "detail": "it is refreshed again"})
    if read.is_frozen and not before.is_frozen:
        detail = "its tier is frozen: no schedule refreshes it, only refresh_stream_table and wait_for"
        yield Alert(AlertEvent.FROZEN_TIER_SKIP, name | {"detail": detail})
    if read.reinit_requested_at not in (None, before.request):
        about = {"reason": read.reinit_reason, "detail": read.reinit_detail}
        yield Alert(AlertEvent.REINITIALIZE_NEEDED, name | about)
    if read.slow_refresh_id is not None and read.slow_refresh_id > before.slow_refresh_id:
        detail = (
            f"a refresh took {read.slow_refresh_ms} ms, over four times as long as others: see pgtrickle.df_anomaly"
        )
        figures = {"refresh_id": read.slow_refresh_id, "took_ms": read.slow_refresh_ms or 0}
        yield Alert(AlertEvent.SLOW_REFRESH, name | figures | {"detail": detail})


def _conditions(read: WatchedTable) -> Iterator[Alert]:
    """Yield what is wrong for as long as it lasts."""
    name = _name(read)
    if read.fuse_blown_s is not None and read.fuse_blown_s >= FUSE_REMINDER_S:
        detail = f"its fuse has been blown for {read.fuse_blown_s:.0f} s: pgtrickle.reset_fuse decides what follows"
        yield Alert(AlertEvent.FUSE_BLOWN_REMINDER, name | {"blown_s": round(read.fuse_blown_s), "detail": detail})
    if read.is_stale and read.staleness_s is not None:
        detail = f"it lacks source commits of the last {read.staleness_s:.0f} s and is behind its schedule"
        yield Alert(AlertEvent.STALE_DATA, name | {"staleness_s": round(read.staleness_s, 1), "detail": detail})


def buffer_alert(rows: int, thresholds: AlertThresholds) -> Alert | None:
    """Return the alert about the change rows that are held in memory; None if they are few enough."""
    if rows <= thresholds.buffered_rows:
        return None
    detail = f"{rows} change rows are held for stream tables that are not refreshed, or since no checkpoint succeeded"
    return Alert(AlertEvent.BUFFER_GROWTH_WARNING, {"rows": rows, "detail": detail})


def backpressure_alert(waits_s: float) -> Alert | None:
    """Return the alert about a reader that waits for room; None while the ticks keep up."""
    if waits_s < BACKPRESSURE_AFTER_S:
        return None
    detail = f"no tick has taken changes for {waits_s:.0f} s and no room is left: later ones wait in the broker"
    return Alert(AlertEvent.CHANGE_BUFFER_BACKPRESSURE, {"waits_s": round(waits_s), "detail": detail})
