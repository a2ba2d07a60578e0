"""The catalog's gates in; how far each stream table may go now, lines of the history and alerts, out.

Nothing is read while no gate or group was ever closed: every stream table's row carries the version of the gates.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from applier.arrange.traces import Traces
from applier.catalog.catalog import Catalog
from applier.catalog.gates import GateRow
from applier.catalog.stream_tables import StreamTableRow
from applier.plan.stream_table import PostgresQuery, StreamTable
from applier.refresh.holding.gates import (
    Gate,
    GateKey,
    GateKind,
    Hold,
    find_hold,
    find_positions,
    find_stuck,
    key_of,
)
from shared_schema.lsn import ORIGIN, Lsn

log = logging.getLogger(__name__)


@dataclass
class Holds:
    """The gates at the last look. Only the thread of the ticks uses it."""

    catalog: Catalog
    traces: Traces
    holdback_timeout_s: Callable[[], float]
    """Returns, at present, the seconds after which a watermark group counts as stuck; 0 never."""
    _version: str | None = None
    _gates: list[Gate] = field(default_factory=list)
    _positions: dict[GateKey, Lsn] = field(default_factory=dict)
    _last_frontier: Lsn = ORIGIN
    """The frontier of the tick before: nothing that was begun goes further."""
    _skipped: dict[int, tuple[str, str]] = field(default_factory=dict)
    """What the history says last about each stream table that is held."""
    _alerted: set[tuple[str, Lsn]] | None = None
    """The watermark groups that were reported as stuck, with where they parted; also before a restart."""

    def look(self, rows: Sequence[StreamTableRow], frontier: Lsn) -> None:
        """Read the gates if they changed; after the frontier is known and before anything is refreshed up to it."""
        version = rows[0].gates_version if rows else None
        if version != self._version:
            stored = self.catalog.gates.all() if version is not None else []
            now = datetime.now(UTC)
            gates = [_gate(row, now) for row in stored]
            log_end = max((Lsn.parse(row.log_end) for row in stored), default=ORIGIN)
            positions = find_positions(gates, self._positions, self._last_frontier, log_end)
            for gate in gates:
                if gate.is_closed and gate.held_lsn is None:
                    # Before any reader goes there: a restart finds the same position.
                    self.catalog.gates.note_position(gate.kind.value, gate.id, gate.closed_lsn, positions[key_of(gate)])
            self._gates, self._positions, self._version = gates, positions, version
            if any(not gate.is_closed for gate in self._gates):
                # Its readers go on when the frontier has passed the end of the log; an idle log does not move itself.
                self.catalog.frontiers.wake()
        self._last_frontier = frontier
        self._alert_stuck(datetime.now(UTC))

    def limit(self, row: StreamTableRow, table: StreamTable, frontier: Lsn) -> Lsn:
        """Return how far a stream table may go: the frontier, the position of a gate, or where it is."""
        hold = self._find(row, table, frontier)
        if hold is None:
            self._skipped.pop(row.pgt_id, None)
            return frontier
        if row.lsn < hold.limit and self._can_go_to(table, hold.limit):
            return hold.limit
        self._note_skip(row, hold)
        return row.lsn

    def lets_pass(self, row: StreamTableRow, table: StreamTable, frontier: Lsn) -> bool:
        """Whether a stream table may go to the frontier with this plan, which it need not have yet."""
        return self._find(row, table, frontier) is None

    def _find(self, row: StreamTableRow, table: StreamTable, frontier: Lsn) -> Hold | None:
        """Return what keeps a stream table from the frontier; PostgreSQL runs a query only at a later one."""
        hold = find_hold(table.sources, row.lsn, frontier, self._gates, self._positions) if self._gates else None
        by_postgres = isinstance(table.plan, PostgresQuery)
        return hold if hold is not None and (by_postgres or hold.limit < frontier) else None

    def is_held(self, pgt_id: int) -> bool:
        """Whether a stream table was held when it was looked at last: no schedule makes it due."""
        return pgt_id in self._skipped

    def _can_go_to(self, table: StreamTable, position: Lsn) -> bool:
        """Whether a position of the past can still be computed. PostgreSQL runs a query only at the present one."""
        return (
            not isinstance(table.plan, PostgresQuery)
            and self.traces.holds(table.sources, position)
            and all(self.traces.knows(scan, position) for scan in table.scans)
        )

    def _note_skip(self, row: StreamTableRow, hold: Hold) -> None:
        skip = hold.reason.value, hold.detail
        if self._skipped.get(row.pgt_id) != skip:
            self.catalog.gates.record_skip(row.pgt_id, row.lsn, *skip)
            self._skipped[row.pgt_id] = skip
            log.info("stream table is held", extra={"table": str(row.table), "at": str(row.lsn), "by": hold.detail})

    def _alert_stuck(self, now: datetime) -> None:
        """Send an alert for each watermark group that holds its readers for too long, and one when it goes on."""
        kind, store = GateKind.WATERMARK, self.catalog.gates
        if self._alerted is None:
            self._alerted = store.alerted(kind.value)
        timeout_s = self.holdback_timeout_s()
        for gate in find_stuck(self._gates, now, timeout_s):
            if (gate.id, gate.closed_lsn) not in self._alerted:
                held_s, most_s = round((now - gate.closed_at).total_seconds()), round(timeout_s)
                about: dict[str, int | str] = {"held_s": held_s, "timeout_s": most_s, "detail": gate.detail}
                store.alert_stuck(kind.value, gate.id, gate.closed_lsn, **about)
                self._alerted.add((gate.id, gate.closed_lsn))
        held = {(gate.id, gate.closed_lsn) for gate in self._gates if gate.kind is kind and gate.is_closed}
        for group, parted_lsn in self._alerted - held:
            store.alert_resumed(kind.value, group, parted_lsn)
        self._alerted &= held


def _gate(row: GateRow, now: datetime) -> Gate:
    return Gate(
        kind=GateKind(row.kind),
        id=row.gate,
        name=row.name,
        sources=row.source_tables,
        min_sources=row.min_sources,
        is_closed=row.is_closed,
        closed_lsn=Lsn.parse(row.closed_lsn),
        held_lsn=Lsn.parse(row.held_lsn) if row.held_lsn else None,
        opened_lsn=Lsn.parse(row.opened_lsn) if row.opened_lsn else None,
        # By this clock, as what it is compared with.
        closed_at=now - timedelta(seconds=row.age_s),
        detail=row.detail or "",
        readers_at=Lsn.parse(row.readers_at) if row.readers_at else ORIGIN,
    )
