"""Which tables are captured, from where on, and when to look for new ones."""

from __future__ import annotations

import logging
import time

from cdc_consumer.errors import CaptureFailed
from cdc_consumer.metrics import Metrics
from cdc_consumer.snapshot.export import Export
from cdc_consumer.snapshot.watch import CaptureWatch
from cdc_consumer.wal.frontier import Frontier
from shared_schema.lsn import Lsn
from shared_schema.progress import Capture
from shared_schema.table_schema import TableId

log = logging.getLogger(__name__)

RETRY_S = 1.0
"""After a capture that could not begin: somebody's lock or rewrite is usually gone by then."""

HOLD_S = 0.5
"""How long the stream stands still for an export to reach its consistent point before it could be overtaken."""

HOLD_STEP_S = 0.02
"""The export mostly takes a few milliseconds."""


class Captures:
    """The captured tables of a slot, and at most one export that waits for the stream to reach its point."""

    def __init__(
        self,
        captured: dict[TableId, Capture],
        watch: CaptureWatch,
        frontier: Frontier,
        heartbeat_s: float,
        metrics: Metrics,
    ) -> None:
        self._captured = captured
        self._watch = watch
        self._frontier = frontier
        self._heartbeat_s = heartbeat_s
        self._metrics = metrics
        self._look_at = 0.0
        self._held_until: float | None = None
        self.export: Export | None = None
        self.settled = False
        """Whether every table found at the start is captured."""
        self._index()

    def since(self, relid: int, table: TableId) -> Lsn | None:
        """Commits from this position on are streamed for the relation; None when it is not captured."""
        capture = self._by_relid.get(relid)
        return capture.snapshot_lsn if capture is not None and capture.table == table else None

    def holds(self, relid: int) -> bool:
        """Whether the relation is captured, or about to be."""
        exported = self.export.tables if self.export is not None else ()
        return relid in self._by_relid or any(table.schema.relid == relid for table in exported)

    def request(self) -> None:
        """Look at the publications as soon as possible."""
        self._look_at = 0.0

    def turn(self) -> None:
        """Start a look when it is time, take its outcome when it is there."""
        now = time.monotonic()
        if self.export is None and now >= self._look_at and self._watch.look(self._captured):
            self._look_at = now + self._heartbeat_s
        while not self._take(HOLD_STEP_S if self._holding() else 0.0):
            if not self._holding():
                return
        self._held_until = None

    def joined(self, capture: Capture) -> None:
        """A table's copy and its capture record are published."""
        self._captured[capture.table] = capture
        self._index()

    def done(self) -> None:
        """All tables of the export are; more may have joined the publications meanwhile."""
        if self.export is not None:
            self.export.close()
        self.export, self._frontier.limit = None, None
        self._watch.together = False
        self.request()

    def close(self) -> None:
        """Give up what is under way."""
        self._watch.close()
        if self.export is not None:
            self.export.close()

    def _holding(self) -> bool:
        """Once per export, for a moment: an export that waits for long transactions must not stop the stream."""
        if not self._watch.exporting.is_set():
            return False
        if self._held_until is None:
            self._held_until = time.monotonic() + HOLD_S
        return time.monotonic() < self._held_until

    def _take(self, timeout_s: float) -> bool:
        try:
            sighting = self._watch.sighting(timeout_s)
        except CaptureFailed as failure:
            log.warning("capture could not begin", extra={"problem": failure.problem})
            self._metrics.retries.labels("capture").inc()
            self._look_at = time.monotonic() + RETRY_S
            return True
        if sighting is None:
            return False
        self._metrics.server_position = sighting.position
        if sighting.export is None:
            self.settled = True
        elif self._frontier.passed(sighting.export.at):
            # The stream got beyond the consistent point first: rows of these tables were already left out.
            log.info("capture overtaken by the stream", extra={"lsn": str(sighting.export.at)})
            sighting.export.close()
            self.request()
        else:
            self.export = sighting.export
            self._frontier.limit = sighting.export.at
        return True

    def _index(self) -> None:
        self._by_relid = {c.relid: c for c in self._captured.values()}
        self._metrics.captures.set(len(self._captured))
