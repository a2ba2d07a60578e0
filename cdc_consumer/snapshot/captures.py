"""Knows which tables are captured and from which position on, and starts the search for new tables."""

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
"""Pause after a capture that could not begin: the lock or the rewrite that prevented it is usually gone by then."""

HOLD_S = 0.5
"""How long the stream stops for an export, so that the stream does not pass the export's consistent point first."""

HOLD_STEP_S = 0.02
"""An export usually takes a few milliseconds."""


class Captures:
    """The captured tables of a slot, and at most one export that waits until the stream reaches its point."""

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
        self._check_at = 0.0
        self._held_until: float | None = None
        self.export: Export | None = None
        self.settled = False
        """Whether every table that was found at the start is captured."""
        self._index()

    def since(self, relid: int, table: TableId) -> Lsn | None:
        """Return the position from which on the relation's commits are streamed; None if it is not captured."""
        capture = self._by_relid.get(relid)
        return capture.snapshot_lsn if capture is not None and capture.table == table else None

    def is_captured(self, relid: int) -> bool:
        """Return whether the relation is captured or is part of the current export."""
        exported = self.export.tables if self.export is not None else ()
        return relid in self._by_relid or any(table.schema.relid == relid for table in exported)

    def request(self) -> None:
        """Check the publications for new tables as soon as possible."""
        self._check_at = 0.0

    def check(self) -> None:
        """Start a check of the publications if one is due, and take over its result if it is there."""
        now = time.monotonic()
        if self.export is None and now >= self._check_at and self._watch.start(self._captured):
            self._check_at = now + self._heartbeat_s
        while not self._take_result(HOLD_STEP_S if self._is_holding() else 0.0):
            if not self._is_holding():
                return
        self._held_until = None

    def add(self, capture: Capture) -> None:
        """Add a captured table: its copy and its capture record are published."""
        self._captured[capture.table] = capture
        self._index()

    def finish_export(self) -> None:
        """Close the export: all its tables are captured. Then check for tables that were published meanwhile."""
        if self.export is not None:
            self.export.close()
        self.export, self._frontier.limit = None, None
        self._watch.together = False
        self.request()

    def close(self) -> None:
        """Cancel the running check and close the export."""
        self._watch.close()
        if self.export is not None:
            self.export.close()

    def _is_holding(self) -> bool:
        """Return whether the stream should stop for the export that is being prepared.

        Only once per export and for HOLD_S: an export that waits for long transactions must not stop the stream.
        """
        if not self._watch.exporting.is_set():
            return False
        if self._held_until is None:
            self._held_until = time.monotonic() + HOLD_S
        return time.monotonic() < self._held_until

    def _take_result(self, timeout_s: float) -> bool:
        try:
            seen = self._watch.take_result(timeout_s)
        except CaptureFailed as failure:
            log.warning("capture could not begin", extra={"problem": failure.problem})
            self._metrics.retries.labels("capture").inc()
            self._check_at = time.monotonic() + RETRY_S
            return True
        if seen is None:
            return False
        self._metrics.server_position = seen.position
        if seen.export is None:
            self.settled = True
        elif self._frontier.passed(seen.export.at):
            # The stream passed the consistent point first, so it already dropped rows of these tables.
            log.info("capture overtaken by the stream", extra={"lsn": str(seen.export.at)})
            seen.export.close()
            self.request()
        else:
            self.export = seen.export
            self._frontier.limit = seen.export.at
        return True

    def _index(self) -> None:
        self._by_relid = {c.relid: c for c in self._captured.values()}
        self._metrics.captures.set(len(self._captured))
