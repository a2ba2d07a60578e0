"""The applier's beat in, with what it heard of the consumer; its row in the catalog, and what SQL readers see, out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from psycopg.types.json import Jsonb

from applier.catalog.database import Connection, Database
from applier.catalog.service import send_alert
from shared_schema.beats import Beat, Completeness, to_datetime

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

_STALENESS = """
SELECT s.pgt_schema, s.pgt_name, extract(epoch FROM f.staleness)::float8
FROM pgtrickle._freshness f JOIN pgtrickle.pgt_stream_tables s USING (pgt_id) WHERE f.staleness IS NOT NULL
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


class BeatStore:
    """Writes and reads beats; every method is one transaction."""

    def __init__(self, database: Database, slot: str, counters: Callable[[], dict[str, int]] = dict) -> None:
        """`counters` returns what the scheduler has counted since the start."""
        self._database = database
        self._slot = slot
        self._counters = counters

    @property
    def _connection(self) -> Connection:
        return self._database.connection

    def write(self, problem: str, heard: Heard | None) -> None:
        """Write the applier's beat: what is wrong with it, and what it heard."""
        beat = heard.beat if heard is not None else None
        frontier, until = _columns(beat.now if beat else None)
        earlier_frontier, earlier_until = _columns(beat.earlier if beat else None)
        values = {
            "slot": self._slot,
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
        row = self._connection.execute(_CONSUMER, (self._slot,)).fetchone()
        return None if row is None else (float(str(row[0])), None if row[1] is None else str(row[1]))

    def staleness(self) -> dict[tuple[str, str], float]:
        """Return the staleness of every stream table in seconds, by schema and name."""
        rows = self._connection.execute(_STALENESS).fetchall()
        return {(str(schema), str(name)): float(str(seconds)) for schema, name, seconds in rows}

    def alert(self, event: str, detail: str) -> None:
        """Notify every listener of the alert channel."""
        send_alert(self._connection, event, by="pg-trickle-applier", detail=detail)


def _columns(known: Completeness | None) -> tuple[object, object]:
    return (None, None) if known is None else (str(known.frontier), to_datetime(known.until_us))
