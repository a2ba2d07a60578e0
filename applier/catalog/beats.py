"""The applier's beat in, with what it heard of the consumer; its row in the catalog, and what SQL readers see, out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg.rows import class_row
from psycopg.types.json import Jsonb

from applier.catalog.database import Connection, Database
from applier.catalog.service import open_alert_sender
from shared_schema.alert_sender import AlertSender
from shared_schema.alerts import Alert
from shared_schema.beats import Beat, Completeness, to_datetime
from shared_schema.table_schema import TableId

SETTLED_S = 2
"""A stored moment is only replaced by one that is this much later: under load the ticks themselves store later ones."""

_WRITE = """
INSERT INTO pgtrickle.pgt_applier_beats (slot, beat_at, problem, heard_at, clock_offset,
    frontier, complete_until, earlier_frontier, earlier_complete_until, consumer_problem, counters)
VALUES (%(slot)s, clock_timestamp(), %(problem)s, clock_timestamp() - make_interval(secs => %(heard_ago_s)s::float8),
    clock_timestamp() - %(source_now)s::timestamptz, %(frontier)s::pg_lsn, %(until)s, %(earlier_frontier)s::pg_lsn,
    %(earlier_until)s, %(consumer_problem)s, %(counters)s)
ON CONFLICT (slot) DO UPDATE SET beat_at = excluded.beat_at, problem = excluded.problem, heard_at = excluded.heard_at,
    clock_offset = excluded.clock_offset, frontier = excluded.frontier, complete_until = excluded.complete_until,
    earlier_frontier = excluded.earlier_frontier, earlier_complete_until = excluded.earlier_complete_until,
    consumer_problem = excluded.consumer_problem, counters = excluded.counters
"""

_CONSUMER = """
SELECT extract(epoch FROM clock_timestamp() - c.beat_at)::float8, c.problem
FROM pgtrickle.pgt_consumer_beats c WHERE c.slot = %s
"""

_WATCHED = """
SELECT s.pgt_id, s.pgt_schema, s.pgt_name, s.status, extract(epoch FROM f.staleness)::float8 AS staleness_s,
       coalesce(pgtrickle._is_stale(s.status, i.tier, f.staleness, t.next_refresh_at), false) AND NOT h.is_held
           AS is_stale,
       CASE WHEN NOT h.is_held THEN extract(epoch FROM pgtrickle._allowed_staleness(
           s.status, i.tier, i.sla, f.staleness, t.next_refresh_at))::float8 END AS allowed_staleness_s,
       coalesce(i.tier = 'frozen', false) AS is_frozen,
       extract(epoch FROM clock_timestamp() - s.fuse_blown_at)::float8 AS fuse_blown_s,
       r.requested_at AS reinit_requested_at, coalesce(r.reason, '') AS reinit_reason,
       coalesce(r.detail, '') AS reinit_detail, a.refresh_id AS slow_refresh_id, a.took_ms AS slow_refresh_ms
FROM pgtrickle.pgt_stream_tables s
LEFT JOIN pgtrickle._freshness f USING (pgt_id)
LEFT JOIN pgtrickle.pgt_runtime t USING (pgt_id)
LEFT JOIN pgtrickle._tiers i USING (pgt_id)
LEFT JOIN pgtrickle.pgt_reinitializations r ON r.pgt_id = s.pgt_id AND r.refused_at IS NULL
LEFT JOIN pgtrickle._slow_refreshes(interval '10 min') a ON a.pgt_id = s.pgt_id
CROSS JOIN LATERAL (SELECT EXISTS (SELECT FROM pgtrickle._held_by(s.pgt_id)) AS is_held) h
"""

_LAST_LOOK = "SELECT b.last_look FROM pgtrickle.pgt_applier_beats b WHERE b.slot = %s"

_NOTE_LOOK = "UPDATE pgtrickle.pgt_applier_beats SET last_look = %s WHERE slot = %s"

_SLOT_LAG = """
SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), r.confirmed_flush_lsn)::int8
FROM pg_replication_slots r
WHERE r.slot_name = %s AND r.database = current_database() AND NOT pgtrickle._sources_elsewhere()
  AND NOT pg_is_in_recovery()
"""

_SETTLE = """
UPDATE pgtrickle.pgt_frontiers f SET complete_until = %(until)s
FROM (SELECT g.pgt_id FROM pgtrickle.pgt_frontiers g
      WHERE g.frontier >= %(frontier)s::pg_lsn AND g.frontier < %(next)s::pg_lsn
        AND (g.complete_until < %(until)s - make_interval(secs => %(settled_s)s) OR g.complete_until IS NULL)
      FOR UPDATE SKIP LOCKED) AS kept
WHERE f.pgt_id = kept.pgt_id
"""
"""A row that a tick has locked is being moved: it gets its own moment."""


@dataclass(frozen=True, slots=True)
class Heard:
    """The last beat of the consumer that arrived through the broker."""

    beat: Beat
    ago_s: float
    source_now_us: int
    """The source's clock at present."""


@dataclass(frozen=True)
class WatchedTable:
    """What alerts depend on, of one stream table."""

    pgt_id: int
    pgt_schema: str
    pgt_name: str
    status: str
    staleness_s: float | None
    is_stale: bool
    """Whether it is far behind its schedule, as `health_check()` decides it."""
    allowed_staleness_s: float | None = None
    """How stale its SLA or its schedule lets it become; None while it is frozen, paused or held."""
    is_frozen: bool = False
    """Whether its tier is frozen."""
    fuse_blown_s: float | None = None
    """For how many seconds its fuse has been blown; None if it is not."""
    reinit_requested_at: datetime | None = None
    """When it was requested to compute everything once more, if that is pending."""
    reinit_reason: str = ""
    reinit_detail: str = ""
    slow_refresh_id: int | None = None
    """Its newest refresh that took unusually long, where self-monitoring is set up."""
    slow_refresh_ms: int | None = None

    @property
    def table(self) -> TableId:
        """Its name."""
        return TableId(self.pgt_schema, self.pgt_name)


class BeatStore:
    """Writes and reads beats; every method is one transaction."""

    def __init__(
        self,
        database: Database,
        slot: str,
        counters: Callable[[], dict[str, int]] = dict,
        alerts: AlertSender | None = None,
    ) -> None:
        """`counters` returns what the scheduler has counted since the start; `alerts` is as in `ServiceState`."""
        self._database = database
        self.slot = slot
        self._counters = counters
        self._alerts = alerts or open_alert_sender()

    @property
    def _connection(self) -> Connection:
        return self._database.connection

    def write(self, problem: str, heard: Heard | None) -> None:
        """Write the applier's beat: what is wrong with it, and what it heard."""
        beat = heard.beat if heard is not None else None
        frontier, until = _columns(beat.now if beat else None)
        earlier_frontier, earlier_until = _columns(beat.earlier if beat else None)
        values = {
            "slot": self.slot,
            "problem": problem or None,
            "heard_ago_s": heard.ago_s if heard else None,
            "source_now": to_datetime(heard.source_now_us) if heard else None,
            "frontier": frontier,
            "until": until,
            "earlier_frontier": earlier_frontier,
            "earlier_until": earlier_until,
            "consumer_problem": beat.problem if beat else None,
            "counters": Jsonb(self._counters()),
        }
        self._connection.execute(_WRITE, values)

    def settle(self, earlier: Completeness, now: Completeness) -> None:
        """Store for stream tables that stay behind until when they are complete: the beats soon no longer say it."""
        values = {
            "until": to_datetime(earlier.until_us),
            "frontier": str(earlier.frontier),
            "next": str(now.frontier),
            "settled_s": SETTLED_S,
        }
        self._connection.execute(_SETTLE, values)

    def consumer(self) -> tuple[float, str | None] | None:
        """Return the age in seconds of the beat that the consumer wrote here, and its problem; None without one."""
        row = self._connection.execute(_CONSUMER, (self.slot,)).fetchone()
        return None if row is None else (float(str(row[0])), None if row[1] is None else str(row[1]))

    def watched(self) -> list[WatchedTable]:
        """Return what alerts depend on, of every stream table."""
        with self._connection.cursor(row_factory=class_row(WatchedTable)) as cursor:
            return cursor.execute(_WATCHED).fetchall()

    def slot_lag_bytes(self) -> int | None:
        """Return how much log the slot holds back; None if there is no slot here."""
        row = self._connection.execute(_SLOT_LAG, (self.slot,)).fetchone()
        return None if row is None or row[0] is None else int(str(row[0]))

    def alert(self, alert: Alert) -> bool:
        """Notify every listener of the alert channel; return False if that has to wait. Never fails."""
        fields = {"by": "pg-trickle-applier", **alert.fields}
        return self._alerts.send(lambda: self._connection, alert.event, fields)

    def flush_alerts(self) -> bool:
        """Send the alerts that wait, as far as they may be sent; return whether all of those were."""
        return self._alerts.flush(lambda: self._connection)

    def last_look(self) -> Mapping[str, Any] | None:
        """Return what was stored by `note_look`, also before this process; None if nothing was."""
        row = self._connection.execute(_LAST_LOOK, (self.slot,)).fetchone()
        looked = row[0] if row is not None else None
        return looked if isinstance(looked, dict) else None

    def note_look(self, looked: Mapping[str, Any]) -> None:
        """Store what was seen of the stream tables, once the alerts about it are sent."""
        self._connection.execute(_NOTE_LOOK, (Jsonb(looked), self.slot))


def _columns(known: Completeness | None) -> tuple[object, object]:
    return (None, None) if known is None else (str(known.frontier), to_datetime(known.until_us))
