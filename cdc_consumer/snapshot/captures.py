"""Knows which tables are captured and from which position on, and searches for new tables."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Sequence
from dataclasses import replace

from cdc_consumer.errors import CaptureFailed
from cdc_consumer.metrics import Metrics
from cdc_consumer.snapshot.captured_tables import CapturedTables
from cdc_consumer.snapshot.comparison import CatalogComparison, Comparison
from cdc_consumer.snapshot.export import Export, TableExport
from cdc_consumer.snapshot.watch import CaptureWatch, WantedTables
from cdc_consumer.wal.catalog import PublishedTable
from cdc_consumer.wal.frontier import Frontier
from cdc_consumer.wal.lag import LagReporter
from shared_schema.lsn import Lsn
from shared_schema.progress import Capture, UnfinishedCopies
from shared_schema.table_schema import TableId

log = logging.getLogger(__name__)

RETRY_S = 1.0
"""Pause after a capture that could not begin: the lock or the rewrite that prevented it is usually gone by then."""

GONE = "it left the publications, or was renamed or dropped, before it was copied again"

COMPARE_S, WAITING_S = 1.0, 0.25
"""How often the catalog is compared: WAITING_S while readers elsewhere may wait for it."""

COMPARE_SHARE = 50
"""A look at the catalog may take this part of the time of one session of the server."""


class Captures:
    """Searches for tables to capture. Owns the export that was found and the frontier's limit, which is its point.

    There is at most one export at a time. It waits until the stream reaches its point. If the stream has passed the
    export's consistent point already, the tables join the stream at a later point: their changes were kept meanwhile.

    `unfinished` are tables of which an earlier instance left half a copy on topics that readers know. The frontier is
    held below that copy until they are captured again.
    """

    def __init__(
        self,
        tables: CapturedTables,
        watch: CaptureWatch,
        comparison: CatalogComparison,
        frontier: Frontier,
        *,
        lag: LagReporter,
        metrics: Metrics,
        heartbeat_s: float,
        together: bool = False,
        unfinished: Collection[TableId] = (),
    ) -> None:
        self._tables = tables
        self._watch = watch
        self._comparison = comparison
        self._compare_at = 0.0
        self._least_pause_s = 0.0
        self._compared: Comparison | None = None
        self.is_compared_by_applier = True
        """Whether an applier of this database compares all captured tables, as far as is known."""
        self._frontier = frontier
        self._lag = lag
        self._metrics = metrics
        self._heartbeat_s = heartbeat_s
        self._together = together
        """Whether to export all tables at one point, because no frontier may be published before all are copied."""
        self._check_at = 0.0
        self._unfinished = frozenset(unfinished)
        self._copying: UnfinishedCopies | None = None
        self._refused: tuple[tuple[PublishedTable, str], ...] = ()
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

    @property
    def unfinished(self) -> UnfinishedCopies | None:
        """Copies of tables that readers know, of which a part is on the topics; None if there are none."""
        held, copying = self._frontier.held, self._copying
        if held is None:
            return copying
        tables = self._unfinished.union(copying.tables if copying else ())
        return UnfinishedCopies(held, tuple(sorted(tables)))

    @property
    def refused(self) -> Sequence[tuple[PublishedTable, str]]:
        """Tables that cannot be captured, of which readers must be told, and why."""
        return self._refused

    def finish_refusals(self) -> None:
        """Readers were told. Then check which tables are left."""
        self._refused = ()
        self.request()

    def note_copies(self, left: Sequence[TableExport]) -> None:
        """Note the tables of the export that are not copied yet, when the copy of the first one begins."""
        known = tuple(sorted(table.schema.table for table in left if table.again))
        self._copying = UnfinishedCopies(self._export.stamp, known) if self._export is not None and known else None

    @property
    def wanted(self) -> WantedTables | None:
        """Tables that are about to be exported, whose changes must be kept first; None if there are none."""
        return self._watch.wanted

    def confirm_kept(self) -> None:
        """Let the export of the wanted tables begin."""
        self._watch.confirm_kept()

    @property
    def is_preparing(self) -> bool:
        """Whether tables may be about to be exported."""
        return self._watch.is_running

    def check(self) -> None:
        """Start a check of the publications if one is due, and take over its result if it is there."""
        now = time.monotonic()
        if self._tables.is_leaf_awaited:
            self._check_at = self._compare_at = now
        is_due = self._export is None and now >= self._check_at and not self._watch.is_running
        if is_due and self._watch.start(self._tables.settled, self._tables.recorded, together=self._together):
            self._check_at = now + self._heartbeat_s
            self._tables.begin_check()
        self._take_result()
        if now >= self._compare_at and self._compared is None and not self._comparison.is_running:
            self._comparison.start(self._tables.captures)
            self._compare_at = now + self._heartbeat_s
        self._take_comparison(now)

    def compare_again(self, *, waiting: bool) -> None:
        """Compare the catalog again soon; `waiting` says whether readers elsewhere may wait for it."""
        soon_s = WAITING_S if waiting and not self.is_compared_by_applier else COMPARE_S
        self._compare_at = min(self._compare_at, time.monotonic() + max(soon_s, self._least_pause_s))

    def move_server(self) -> None:
        """Let the stream of an idle server move on."""
        self._watch.move_server()

    def take_changed(self) -> tuple[Capture, ...]:
        """Return the records of tables whose leaf partitions changed, for the next transaction of the sink."""
        return self._tables.take_changed()

    @property
    def held_at(self) -> Lsn | None:
        """The position that the frontier must not pass, because leaf partitions are not copied yet."""
        return self._tables.held_at

    @property
    def is_unfinished(self) -> bool:
        """Whether tables that readers know wait to be captured again."""
        return bool(self._unfinished)

    def take_comparison(self) -> Comparison | None:
        """Return what the last look at the catalog saw, once, when the stream has reached its position."""
        seen = self._compared
        if seen is None or not self._frontier.arrived(seen.reached):
            return None
        self._compared = None
        return seen

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

    def discard_export(self) -> None:
        """Close the export and begin again: changes after its consistent point were not kept."""
        if self._export is not None:
            log.info("capture begins again", extra={"lsn": str(self._export.snapshot_at)})
            self._export.close()
        self._export = None
        self.lift_limit()
        self.request()

    def close(self) -> None:
        """Cancel the running check and close the export."""
        self._watch.close()
        self._comparison.close()
        if self._export is not None:
            self._export.close()

    def _take_comparison(self, now: float) -> None:
        try:
            seen = self._comparison.take_result()
        except CaptureFailed as failure:
            log.info("the catalog could not be compared", extra={"problem": failure.problem})
            self._compare_at = now + RETRY_S
            return
        if seen is None:
            return
        self._compared = seen
        self._least_pause_s = min(COMPARE_SHARE * seen.seconds, self._heartbeat_s)
        self.is_compared_by_applier = all(c.relid in seen.of_applier for c in seen.captured.values())

    def _take_result(self) -> None:
        try:
            seen = self._watch.take_result()
        except CaptureFailed as failure:
            log.warning("capture could not begin", extra={"problem": failure.problem})
            self._metrics.retries.labels("capture").inc()
            self._check_at = time.monotonic() + RETRY_S
            return
        if seen is None:
            return
        self._lag.record_server_position(seen.position)
        if seen.export is None:
            self._is_settled = True
        else:
            self._export = self._join(seen.export)
            self._frontier.limit = self._export.at
        gone = [t for t in self._unfinished - seen.uncaptured if t not in self._tables.settled]
        # Their half copies are on the topics, and no other will follow: readers must know before the frontier passes.
        self._refused = (*seen.refused, *((self._as_published(t), GONE) for t in sorted(gone)))
        self._unfinished = self._unfinished & seen.uncaptured | frozenset(gone)
        if not self._unfinished:
            self._frontier.release()

    def _as_published(self, table: TableId) -> PublishedTable:
        known = self._tables.recorded[table]
        return PublishedTable(table, known.relid, False, (), "", known.membership)

    def _join(self, export: Export) -> Export:
        """Return the export with the point at which its tables join the stream."""
        if not self._frontier.passed(export.at):
            return export
        # The stream of an idle server would not move past the next point by itself.
        self._watch.move_server()
        return replace(export, at=self._frontier.next_point)
