"""Knows which tables are captured and from which position on, and searches for new tables."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Sequence
from dataclasses import replace

from cdc_consumer.errors import CaptureFailed, MissingRights, NoFreeSlot, SourceError
from cdc_consumer.metrics import Metrics
from cdc_consumer.snapshot.captured_tables import CapturedTables
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

VANISHED = "it left the publications, or was renamed or dropped, before its new copy was complete"


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
        frontier: Frontier,
        lag: LagReporter,
        metrics: Metrics,
        *,
        heartbeat_s: float,
        together: bool = False,
        unfinished: Collection[TableId] = (),
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
        is_due = self._export is None and (now >= self._check_at or self._tables.is_leaf_awaited)
        if is_due and self._watch.start(self._tables.settled, self._tables.recorded, together=self._together):
            self._check_at = now + self._heartbeat_s
            self._tables.begin_check()
        self._take_result()

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
        if self._export is not None:
            self._export.close()

    def _take_result(self) -> None:
        try:
            seen = self._watch.take_result()
        except SourceError as failure:
            # The server may have no slot to spare for a while, or a right was revoked: the stream goes on meanwhile.
            passes = isinstance(failure, MissingRights | NoFreeSlot) and bool(self._tables.settled)
            if not (passes or isinstance(failure, CaptureFailed)):
                raise
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
        settled = self._tables.settled
        self._unfinished = frozenset(table for table in self._unfinished if table not in settled)
        # Readers of a table that nobody will copy any more are told before the frontier passes half of its copy.
        vanished = [self._tables.recorded[t] for t in sorted(self._unfinished - seen.uncaptured)]
        self._refused = (*seen.refused, *((described(capture), VANISHED) for capture in vanished))
        if not self._unfinished:
            self._frontier.release()

    def _join(self, export: Export) -> Export:
        """Return the export with the point at which its tables join the stream."""
        if not self._frontier.passed(export.at):
            return export
        # The stream of an idle server would not move past the next point by itself.
        self._watch.move_server()
        return replace(export, at=self._frontier.next_point)


def described(capture: Capture) -> PublishedTable:
    """Return a captured table that is in no publication any more."""
    return PublishedTable(capture.table, capture.relid, False, (), "", capture.membership)
