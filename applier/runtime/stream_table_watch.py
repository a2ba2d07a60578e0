"""The stream tables as stored, look after look, in; the alerts about what is wrong or was changed, out. No IO.

Whatever changes a stream table (a function of SQL, a tick, another thread), it is seen here within a second.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from applier.catalog.beats import WatchedTable
from applier.catalog.stream_tables import Status
from shared_schema.alerts import Alert, AlertEvent
from shared_schema.slot_lag import SlotLagThresholds

OUT_OF_SERVICE = frozenset({Status.SUSPENDED.value, Status.PAUSED.value})


@dataclass(frozen=True, slots=True)
class AlertThresholds:
    """From when on growth is reported."""

    buffered_rows: int = 1_000_000
    slot_lag: SlotLagThresholds = field(default_factory=SlotLagThresholds)


@dataclass
class StreamTableWatch:
    """Remembers the last look, to see what changed since."""

    _seen: dict[int, tuple[str, datetime | None]] = field(default_factory=dict)
    """Status and pending request of each stream table."""

    def look(self, watched: Sequence[WatchedTable], suspended: Container[int] = ()) -> list[Alert]:
        """Return the alerts of this look. Those that last are in every look: sending limits them.

        `suspended` were suspended since the last look, which may be over by now.
        """
        before, self._seen = self._seen, {read.pgt_id: (read.status, read.reinit_requested_at) for read in watched}
        found: list[Alert] = []
        for read in watched:
            status, request = before.get(read.pgt_id, ("", None))
            was = Status.SUSPENDED.value if read.pgt_id in suspended else status
            found += _alerts(read, (was, request))
        return found


def _alerts(read: WatchedTable, before: tuple[str, datetime | None]) -> Iterator[Alert]:
    name: dict[str, int | float | str] = {"pgt_id": read.pgt_id, "stream_table": str(read.table)}
    status, request = before
    if status in OUT_OF_SERVICE and read.status not in OUT_OF_SERVICE:
        yield Alert(AlertEvent.RESUMED, name | {"was": status, "detail": "it is refreshed again"})
    if read.reinit_requested_at not in (None, request):
        about = {"reason": read.reinit_reason, "detail": read.reinit_detail}
        yield Alert(AlertEvent.REINITIALIZE_NEEDED, name | about)
    if read.is_stale and read.staleness_s is not None:
        detail = f"it lacks source commits of the last {read.staleness_s:.0f} s and is behind its schedule"
        yield Alert(AlertEvent.STALE_DATA, name | {"staleness_s": round(read.staleness_s, 1), "detail": detail})


def buffer_alert(rows: int, thresholds: AlertThresholds) -> Alert | None:
    """Return the alert about the change rows that are held in memory; None if they are few enough."""
    if rows <= thresholds.buffered_rows:
        return None
    detail = f"{rows} change rows are held for stream tables that are not refreshed, or since no checkpoint succeeded"
    return Alert(AlertEvent.BUFFER_GROWTH_WARNING, {"rows": rows, "detail": detail})
