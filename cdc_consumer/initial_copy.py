"""Copies newly captured tables into the sink: their rows at one point L, then every later change.

A table is copied while the stream continues. From before its export begins, its changes are kept in a spool on local
disk, because nobody knows yet at which point the export will be. Its copied rows are stamped before L, so the frontier
waits below L until the last of them is written. Meanwhile changes of other tables are published, and the server gets
acknowledgements for them. Changes of the table itself are written after the copy, so that its topic has them in order.
After a crash the table is copied again at a later point: that snapshot contains everything that was in the spool.

If readers already know the table, its changes are also written to its topic as before, until L. Rows of half a copy are
on its topic after a crash: then the frontier stays below them until the table is copied again, so nobody counts them.

If the slot is new while the topics are old, the stream stops during the copy: no frontier may be published before.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager

from cdc_consumer.errors import SourceError, TableUnreadable
from cdc_consumer.metrics import Metrics
from cdc_consumer.ring.segments import Segments
from cdc_consumer.ring.spool import Spool
from cdc_consumer.routes import Routes
from cdc_consumer.schema_versions import SchemaVersions
from cdc_consumer.settings import ConsumerSettings
from cdc_consumer.snapshot.captured_tables import CapturedTables
from cdc_consumer.snapshot.captures import Captures
from cdc_consumer.snapshot.export import Export, TableExport
from cdc_consumer.snapshot.load import Loader, TableCopy, new_capture
from cdc_consumer.snapshot.watch import is_new
from cdc_consumer.transaction_batcher import TransactionBatcher
from cdc_consumer.wal.catalog import PublishedTable
from cdc_consumer.wal.frontier import Frontier
from shared_schema.lsn import ORIGIN, Lsn
from shared_schema.progress import Capture

log = logging.getLogger(__name__)

COPY_STEP_S = 0.02
"""How long one step copies before the loop returns to the stream."""

TOGETHER_S = 0.5
"""Tables of a first load that are copied within this time share a transaction of the sink."""

COPY_WAIT_S = 0.002
"""How long a step waits for copied rows when the stream has nothing to do."""


class InitialCopy:
    """Copies the tables of at most one export at a time."""

    def __init__(
        self,
        *,
        settings: ConsumerSettings,
        frontier: Frontier,
        tables: CapturedTables,
        captures: Captures,
        loader: Loader,
        routes: Routes,
        schema_versions: SchemaVersions,
        batcher: TransactionBatcher,
        metrics: Metrics,
        is_new_slot: bool,
    ) -> None:
        self._settings = settings
        self._frontier = frontier
        self._tables = tables
        self._captures = captures
        self._loader = loader
        self._routes = routes
        self._schema_versions = schema_versions
        self._batcher = batcher
        self._metrics = metrics
        self._is_new_slot = is_new_slot
        self._not_copied: list[int] = []
        """Indexes into the export's tables: those that are not copied yet."""
        self._copy: TableCopy | None = None
        self._spools: dict[int, Spool] = {}

    @property
    def is_active(self) -> bool:
        """Whether a table is being copied while the stream continues."""
        return self._copy is not None

    @property
    def is_full(self) -> bool:
        """Whether the spools hold so many changes that the stream must stop until the copy is finished."""
        if self._copy is None or self._copy.done:
            return False
        return self._spooled_bytes() > self._settings.ring_spill_max_mb << 20

    def keep_changes(self) -> None:
        """Keep the changes of tables that are about to be exported, and let go of those that will not be."""
        if (wanted := self._captures.wanted) is not None:
            self._release_spools()
            for table in wanted.tables:
                spool = Spool(wanted.position, Segments(self._settings.ring_spill_folder or None))
                self._spools[table.relid] = spool
                if table.partitioned and not table.only:
                    self._tables.prepare_copy(self._preliminary(table, wanted.position))
                for relid in kept_relations(table):
                    self._routes.repeat_rows(relid, spool)
            self._captures.confirm_kept()
        elif self._captures.export is not None or not self._spools:
            return
        elif not self._captures.is_preparing:
            self._release_spools()
        elif self._spooled_bytes() > self._settings.ring_spill_max_mb << 20:
            # A long transaction delays the export. When it has ended, the snapshot contains all these changes.
            for spool in self._spools.values():
                spool.forget()

    def stop_refused(self) -> None:
        """Tell the readers of tables that cannot be captured; their rows are dropped."""
        settled = self._tables.settled
        refused = [
            (t, reason) for t, reason in self._captures.refused if is_new(t, settled) or not settled[t.table].stopped
        ]
        if not refused or not self._batcher.has_frontier or self._frontier.open_commit is not None or self.is_active:
            return
        at, slot = self._frontier.published, self._settings.slot
        captures = tuple(
            Capture(slot, table.table, table.relid, at, 0, table.membership, stopped=reason)
            for table, reason in refused
        )
        self._batcher.publish(captures)
        for capture in captures:
            log.error("table is not captured", extra={"table": str(capture.table), "reason": capture.stopped})
            self._tables.add(capture)
        self._routes.forget()
        self._captures.finish_refusals()

    def begin_if_reached(self) -> None:
        """Begin the copy that waits if the stream has arrived at its point."""
        export = self._captures.export
        if export is not None and self._frontier.arrived(export.at):
            self._begin(export)

    def begin_before(self, position: Lsn) -> None:
        """Begin the copy that waits if the stream is about to pass its point.

        The next item of the stream is at `position`. Commits come in order, so every commit before a point that is not
        after `position` was received.
        """
        export = self._captures.export
        if export is not None and position >= export.at:
            self._frontier.reach(export.at)
            self._begin(export)

    def _begin(self, export: Export) -> None:
        """Start copying. Everything before the export's point was received, and nothing after it."""
        if self.is_active:
            return
        relids = [table.schema.relid for table in export.tables]
        if any(
            self._spools[relid].forgotten >= export.snapshot_at
            # The leaf partitions have changed since the snapshot.
            or self._tables.last_news.get(relid, ORIGIN) >= export.snapshot_at
            for relid in relids
        ):
            self._release_spools()
            self._captures.discard_export()
            return
        self._batcher.publish_received()
        self._loader.prepare(export)
        self._metrics.copying.set(len(export.tables))
        for relid in relids:
            self._spools[relid].begin_at(export.snapshot_at)
        for table in export.tables:
            if table.published.partitioned and not table.published.only:
                self._tables.begin_copy(new_capture(self._settings.slot, export, table))
        if self._is_new_slot or not self._batcher.has_frontier:
            self._copy_at_once(export)
            return
        for table in export.tables:
            for relid in kept_relations(table.published):
                self._routes.redirect_rows(relid, self._spools[table.schema.relid])
            self._schema_versions.record_version(table.schema)
        self._not_copied = list(range(len(export.tables)))
        self._begin_copy(export)

    def _begin_copy(self, export: Export) -> None:
        """Start to copy the next table. From now on readers that know the table have a part of its new rows."""
        self._captures.note_copies([export.tables[i] for i in self._not_copied])
        table = export.tables[self._not_copied[0]]
        with refuse_unreadable(table):
            self._copy = self._loader.begin(export, table)

    def run_step(self, *, idle: bool) -> None:
        """Copy for STEP_S; `idle` means that the stream had no frames."""
        export, copy = self._captures.export, self._copy
        if export is None or copy is None:
            return
        until = time.monotonic() + COPY_STEP_S
        with refuse_unreadable(export.tables[self._not_copied[0]]):
            while not copy.done and copy.step(COPY_WAIT_S if idle else 0.0) and time.monotonic() < until:
                pass
        self._metrics.spool_bytes.set(self._spooled_bytes())
        if self._frontier.open_commit is not None:
            return
        if copy.done:
            self._finish(export, copy)
        else:
            self._batcher.publish_if_long()

    def close(self) -> None:
        """Cancel the running copy and drop the spools."""
        if self._copy is not None:
            self._copy.close()
        for spool in self._spools.values():
            spool.close()

    def _spooled_bytes(self) -> int:
        return sum(spool.size for spool in self._spools.values())

    def _release_spools(self) -> None:
        for spool in self._spools.values():
            self._routes.restore_routes(spool)
            spool.close()
        self._spools.clear()
        self._tables.cancel_copies()

    def _finish(self, export: Export, copy: TableCopy) -> None:
        """Write the spooled changes behind the copy and publish the capture; later changes take the ordinary route."""
        table = export.tables[self._not_copied.pop(0)]
        spool = self._spools.pop(table.schema.relid)
        copy.append(spool)
        spool.close()
        merged = self._merge(table, copy.capture())
        captures = () if merged is None else (self._tables.add(merged),)
        copy.close()
        self._copy = None
        self._captures.note_copies([export.tables[i] for i in self._not_copied])
        if not self._not_copied:
            self._captures.lift_limit()
        self._batcher.publish(captures)
        self._routes.restore_routes(spool)
        self._metrics.copying.set(len(self._not_copied))
        self._metrics.spool_bytes.set(self._spooled_bytes())
        if self._not_copied:
            self._begin_copy(export)
        else:
            self._captures.finish_export()

    def _merge(self, table: TableExport, copied: Capture) -> Capture | None:
        """Return the record to publish: leaf partitions that were copied alone join the record of their table.

        None if the table stopped while they were copied.
        """
        if not table.published.only:
            return copied
        return self._tables.with_copied(copied, table.published.only)

    def _preliminary(self, table: PublishedTable, position: Lsn) -> Capture:
        leaves = dict.fromkeys(table.leaves, position)
        slot = self._settings.slot
        return Capture(slot, table.table, table.relid, position, 0, leaves=leaves, joined=table.joined)

    def _copy_at_once(self, export: Export) -> None:
        """Copy all tables while the stream is stopped; publish captures together with the last rows of their tables.

        So a restart copies only the remaining tables; small ones share a transaction. The frontier passes their point
        with the last table. If the slot is new and the topics are old, no frontier is published before that: readers
        already know the tables and would conclude that nothing is missing.
        """
        captures: list[Capture] = []
        committed_at = time.monotonic()
        for table in export.tables:
            with refuse_unreadable(table):
                copied = self._loader.load(export, table, self._spools[table.schema.relid])
            merged = self._merge(table, copied)
            captures += [] if merged is None else [self._tables.add(merged)]
            self._schema_versions.record_version(table.schema)
            last = table is export.tables[-1]
            if not last and time.monotonic() - committed_at < TOGETHER_S:
                continue
            if last:
                self._captures.lift_limit()
            if last or not self._is_new_slot:
                self._batcher.publish(tuple(captures))
            else:
                self._batcher.commit_copied(*captures)
            captures.clear()
            committed_at = time.monotonic()
        self._is_new_slot = False
        self._metrics.copying.set(0)
        self._release_spools()
        self._captures.finish_export()
        self._routes.forget()


@contextmanager
def refuse_unreadable(table: TableExport) -> Iterator[None]:
    """Blame errors of reading a table on the table alone, if trying again does not help."""
    try:
        yield
    except SourceError as error:
        if error.retryable:
            raise
        raise TableUnreadable(error.problem, hint=error.hint, table=table.schema.table) from error


def kept_relations(table: PublishedTable) -> tuple[int, ...]:
    """Return the relations whose changes are kept while the table is copied: all of it, or some leaf partitions."""
    return table.only or (table.relid,)
