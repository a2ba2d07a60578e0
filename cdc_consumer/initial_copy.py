"""Copies newly captured tables into the sink: their rows at one consistent point L, then every later change.

A table that no reader has seen yet is copied while the stream continues. Its copied rows are stamped before L, so the
frontier waits below L until the last of them is written. Meanwhile changes of other tables are published, and the
server gets acknowledgements for them. Changes of the table itself wait in a spool and are written after the copy, so
that its topic has them in order. After a crash the table is copied again at a later point: that snapshot contains
everything that was in the spool.

If readers already know one of the tables, or if the slot is new while the topics are old, the stream stops during the
copy: readers must not see half a copy.
"""

from __future__ import annotations

import time

from cdc_consumer.metrics import Metrics
from cdc_consumer.ring.segments import Segments
from cdc_consumer.ring.spool import Spool
from cdc_consumer.routes import Routes
from cdc_consumer.schema_versions import SchemaVersions
from cdc_consumer.settings import ConsumerSettings
from cdc_consumer.snapshot.captures import CapturedTables, Captures
from cdc_consumer.snapshot.export import Export
from cdc_consumer.snapshot.load import Loader, TableCopy
from cdc_consumer.transaction_batcher import TransactionBatcher
from cdc_consumer.wal.frontier import Frontier
from shared_schema.lsn import Lsn
from shared_schema.progress import Capture

STEP_S = 0.02
"""How long one step copies before the loop returns to the stream."""

WAIT_S = 0.002
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
        self._batcher.publish_received()
        self._metrics.copying.set(len(export.tables))
        known = any(table.again for table in export.tables)
        if known or self._is_new_slot or not self._batcher.has_frontier:
            self._copy_at_once(export)
            return
        for table in export.tables:
            relid = table.schema.relid
            self._spools[relid] = Spool(export.stamp, Segments(self._settings.ring_spill_folder or None))
            self._routes.redirect_rows(relid, self._spools[relid])
            self._schema_versions.record_version(table.schema)
        self._not_copied = list(range(len(export.tables)))
        self._copy = self._loader.begin(export, export.tables[0])

    def run_step(self, *, idle: bool) -> None:
        """Copy for STEP_S; `idle` means that the stream had no frames."""
        export, copy = self._captures.export, self._copy
        if export is None or copy is None:
            return
        until = time.monotonic() + STEP_S
        while not copy.done and copy.step(WAIT_S if idle else 0.0) and time.monotonic() < until:
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

    def _finish(self, export: Export, copy: TableCopy) -> None:
        """Write the spooled changes behind the copy and publish the capture; later changes take the ordinary route."""
        relid = export.tables[self._not_copied.pop(0)].schema.relid
        spool = self._spools.pop(relid)
        for rows in spool.drain():
            copy.row_writer.write_all(rows)
        spool.close()
        capture = copy.capture()
        copy.close()
        self._copy = None
        if not self._not_copied:
            self._captures.lift_limit()
        self._batcher.publish((capture,))
        self._tables.add(capture)
        self._routes.restore_route(relid)
        self._metrics.copying.set(len(self._not_copied))
        self._metrics.spool_bytes.set(self._spooled_bytes())
        if self._not_copied:
            self._copy = self._loader.begin(export, export.tables[self._not_copied[0]])
        else:
            self._captures.finish_export()

    def _copy_at_once(self, export: Export) -> None:
        """Copy all tables while the stream is stopped; publish each table's capture together with its last rows.

        So a restart copies only the remaining tables. The frontier passes their point with the last table. If the slot
        is new and the topics are old, no frontier is published before that: readers already know the tables and would
        conclude that nothing is missing.
        """
        captures: list[Capture] = []
        for table in export.tables:
            captures.append(self._loader.load(export, table))
            self._schema_versions.record_version(table.schema)
            last = len(captures) == len(export.tables)
            if last:
                self._captures.lift_limit()
            if last or not self._is_new_slot:
                self._batcher.publish((captures[-1],))
            else:
                self._batcher.commit_copied(captures[-1])
        self._is_new_slot = False
        self._metrics.copying.set(0)
        for capture in captures:
            self._tables.add(capture)
        self._captures.finish_export()
        self._routes.forget()
