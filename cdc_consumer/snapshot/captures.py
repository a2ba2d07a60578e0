"""Knows which tables are captured and from which position on, and searches for new tables."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping

from cdc_consumer.errors import CaptureFailed
from cdc_consumer.metrics import Metrics
from cdc_consumer.snapshot.export import Export
from cdc_consumer.snapshot.watch import CaptureWatch
from cdc_consumer.wal.frontier import Frontier
from cdc_consumer.wal.lag import LagReporter
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


class CapturedTables:
    """The captured tables of a slot, and the position from which on each of them is streamed."""

    def __init__(self, captured: Mapping[TableId, Capture], metrics: Metrics) -> None:
        self._captured = dict(captured)
        self._metrics = metrics
        self._index()

    @property
    def captures(self) -> Mapping[TableId, Capture]:
        """The capture of each table."""
        return self._captured

    def since(self, relid: int, table: TableId) -> Lsn | None:
        """Return the position from which on the relation's commits are streamed; None if it is not captured."""
        capture = self._by_relid.get(relid)
        return capture.snapshot_lsn if capture is not None and capture.table == table else None

    def has_relation(self, relid: int) -> bool:
        """Return whether the relation is captured."""
        return relid in self._by_relid

    def add(self, capture: Capture) -> None:
        """Add a captured table: its copy and its capture record are published."""
        self._captured[capture.table] = capture
        self._index()

    def _index(self) -> None:
        self._by_relid = {c.relid: c for c in self._captured.values()}
        self._metrics.captures.set(len(self._captured))


class Captures:
    """Searches for tables to capture. Owns the export that was found and the frontier's limit, which is its point.

    There is at most one export at a time. It waits until the stream reaches its point.
    """

    def __init__(
        self,
        tables: CapturedTables,
        watch: CaptureWatch,
        frontier: Frontier,
        lag: LagReporter,
        metrics: Metrics,
        *,
        heartbeat_s: float,
        together: bool = False,
    ) -> None:
        self._tables = tables
        self._watch = watch
        self._frontier = frontier
        self._lag = lag
        self._metrics = metrics
        self._heartbeat_s = heartbeat_s
        self._together = together
        """Whether to export all tables at one point, because no frontier may be published before all are copied."""
        self._check_at = 0.0
        self._held_until: float | None = None
        self._export: Export | None = None
        self._is_settled = False
        """Whether every table that was found at the start is captured."""

    @property
    def export(self) -> Export | None:
        """The export that waits or is being copied."""
        return self._export

    @property
    def is_complete(self) -> bool:
        """Whether every table that was found is captured."""
        return self._is_settled and self._export is None

    def is_captured(self, relid: int) -> bool:
        """Return whether the relation is captured or is part of the current export."""
        exported = self._export.tables if self._export is not None else ()
        return self._tables.has_relation(relid) or any(table.schema.relid == relid for table in exported)

    def request(self) -> None:
        """Check the publications for new tables as soon as possible."""
        self._check_at = 0.0

    def check(self) -> None:
        """Start a check of the publications if one is due, and take over its result if it is there."""
        now = time.monotonic()
        is_due = self._export is None and now >= self._check_at
        if is_due and self._watch.start(self._tables.captures, together=self._together):
            self._check_at = now + self._heartbeat_s
        while not self._take_result(HOLD_STEP_S if self._is_holding() else 0.0):
            if not self._is_holding():
                return
        self._held_until = None

    def lift_limit(self) -> None:
        """Let the frontier pass the export's point: the last copied row is in the open transaction of the sink."""
        self._frontier.limit = None

    def finish_export(self) -> None:
        """Close the export: all its tables are captured. Then check for tables that were published meanwhile."""
        if self._export is not None:
            self._export.close()
        self._export = None
        self.lift_limit()
        self._together = False
        self.request()

    def close(self) -> None:
        """Cancel the running check and close the export."""
        self._watch.close()
        if self._export is not None:
            self._export.close()

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
        self._lag.record_server_position(seen.position)
        if seen.export is None:
            self._is_settled = True
        elif self._frontier.passed(seen.export.at):
            # The stream passed the consistent point first, so it already dropped rows of these tables.
            log.info("capture overtaken by the stream", extra={"lsn": str(seen.export.at)})
            seen.export.close()
            self.request()
        else:
            self._export = seen.export
            self._frontier.limit = seen.export.at
        return True
