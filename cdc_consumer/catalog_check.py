"""Takes what a look at the catalog saw of the captured tables, and follows what the log does not say.

Messages in the log say at which position a partition was attached, detached or dropped. Where nobody writes them, the
difference is noticed here, some time after it happened: leaves that are gone leave with a T row, and new ones are
copied. A table whose leaves were changed by a message since the look began is compared at the next look.

Readers are also told here that changes of a table are no longer streamed, and up to which position nothing differed:
those in another database cannot compare themselves.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping

from cdc_consumer.change_rows.copy_lines import NO_XID
from cdc_consumer.change_rows.split import truncate_leaf
from cdc_consumer.errors import CaptureFailed, CaptureOutdated, MissingRights, NoFreeSlot, SourceError
from cdc_consumer.routes import Routes
from cdc_consumer.snapshot.captured_tables import CapturedTables
from cdc_consumer.snapshot.captures import Captures
from cdc_consumer.snapshot.comparison import CatalogComparison, Comparison, SeenCatalog
from cdc_consumer.transaction_batcher import TransactionBatcher
from cdc_consumer.wal.compared import ComparedPositions
from cdc_consumer.wal.frontier import Frontier
from cdc_consumer.wal.horizon import Horizon
from shared_schema.change_row import Stamp
from shared_schema.lsn import Lsn
from shared_schema.progress import Capture
from shared_schema.table_schema import TableId

log = logging.getLogger(__name__)

LOOK_S, AWAITED_S = 1.0, 0.05
"""The pause between two looks: AWAITED_S while readers elsewhere may wait for one."""

LOOK_SHARE, MAX_PAUSE_S = 50, 10.0
"""Looks may take this part of the time of one session of the server; the pause is not longer than MAX_PAUSE_S."""

APPLIER_S = 10.0
"""How long an applier of the same database may take to request a copy that its own stream tables need too."""


class CatalogCheck:
    """Looks at the catalog, and follows it between source transactions."""

    def __init__(
        self,
        *,
        tables: CapturedTables,
        captures: Captures,
        routes: Routes,
        frontier: Frontier,
        batcher: TransactionBatcher,
        comparison: CatalogComparison,
        compared: ComparedPositions,
        readers_are_here: bool,
    ) -> None:
        """`readers_are_here` when the rows are written into this database: then no reader is elsewhere."""
        self._readers_are_here = readers_are_here
        self._tables = tables
        self._captures = captures
        self._routes = routes
        self._frontier = frontier
        self._batcher = batcher
        self._batch = batcher.batch
        self._comparison = comparison
        self._compared = compared
        self._look: Comparison | None = None
        """A look whose result waits until the stream has reached its position."""
        self._look_at = 0.0
        self._pause_s = 0.0
        """The least pause after the last look."""
        self._settled: tuple[Mapping[TableId, Capture], str] | None = None
        """The captures that were compared and found unchanged, and the digest of the catalog of that moment."""
        self._uncaptured = "", ""
        """What of the last look let us search for tables to capture."""
        self._is_local = True
        """Whether an applier of this database compares all captured tables, as far as is known."""
        self._outdated: dict[TableId, float] = {}
        """Tables of which an applier of this database should request a copy, and since when."""

    @property
    def is_awaited(self) -> bool:
        """Whether readers elsewhere may wait for a look."""
        return not self._is_local and not self._compared.range.includes(self._frontier.published)

    def run(self) -> None:
        """Look if it is due, and follow what the last look saw, once the stream has reached its position."""
        self._start_if_due()
        self._take_result()
        look = self._look
        if look is None or (look.seen is not None and not self._frontier.arrived(look.seen.reached)):
            return
        self._look = None
        self._follow(look)

    def close(self) -> None:
        """Stop looking."""
        self._comparison.close()

    def _start_if_due(self) -> None:
        if self._look is not None or self._comparison.is_running or not self._batcher.has_frontier:
            return
        is_soon = self.is_awaited or self._tables.is_leaf_awaited or self._settled is None
        since = time.monotonic() - self._look_at
        if since < max(AWAITED_S if is_soon else LOOK_S, self._pause_s):
            return
        captured, digest = self._settled or (None, None)
        self._comparison.start(self._tables.captures, digest if captured == self._tables.captures else None)

    def _take_result(self) -> None:
        try:
            look = self._comparison.take_result()
        except SourceError as failure:
            # The stream goes on: a table may be altered at this moment, or the server has no session to spare.
            if not isinstance(failure, CaptureFailed | MissingRights | NoFreeSlot):
                raise
            log.warning("the catalog could not be compared", extra={"problem": failure.problem})
            self._look_at, self._pause_s = time.monotonic(), LOOK_S
            return
        if look is None:
            return
        self._look, self._look_at = look, time.monotonic()
        self._pause_s = min(LOOK_SHARE * look.seconds, MAX_PAUSE_S)
        self._is_local = self._readers_are_here or all(
            capture.relid in look.of_applier for capture in look.captured.values()
        )
        uncaptured = look.members, look.digest if look.seen is not None and look.seen.is_uncaptured else ""
        if uncaptured != self._uncaptured:
            self._uncaptured = uncaptured
            self._captures.request()

    def _follow(self, look: Comparison) -> None:
        """Follow what differs. If nothing does, readers may trust everything before the look."""
        same = {t: c for t, c in look.captured.items() if self._tables.captures.get(t) is c}
        is_whole = len(same) == len(look.captured) == len(self._tables.captures)
        if look.seen is not None and self._differs(look.seen, same, look.of_applier):
            self._compared.lose()
            self._settled = None
        elif is_whole and not self._captures.is_unfinished:
            self._settled = dict(self._tables.captures), look.digest
            if not look.is_committing:
                self._confirm(look.position)

    def _confirm(self, position: Lsn) -> None:
        was_awaited = self.is_awaited
        begins = self._compared.confirm(position, self._frontier.next_point)
        if self._is_local:
            # Readers elsewhere, if there are any, learn it from the next record.
            return
        if begins:
            # The stream of an idle server would not move to where the new range begins.
            self._captures.move_server()
        elif was_awaited and not self.is_awaited:
            self._batch.add_message(time.monotonic())
            self._batch.request_publication()

    def _differs(self, seen: SeenCatalog, same: Mapping[TableId, Capture], of_applier: frozenset[int]) -> bool:
        """Follow what was seen of the tables that are still captured as they were -> whether something was wrong."""
        lost = self._find_lost(seen, same, of_applier)
        is_noted = False
        is_followed = seen.is_copy_missing
        for table, capture in same.items():
            reason = seen.unpublished.get(table) or lost.get(table)
            if reason:
                log.error("changes of a table are not all streamed", extra={"table": str(table), "reason": reason})
            # The facts of outdated rows stay those of the rows.
            facts = capture.facts if table in seen.outdated else seen.facts.get(capture.relid, capture.facts)
            is_noted |= self._tables.note(capture, facts, reason)
            is_followed |= bool(reason)
            if capture.leaves is None:
                continue
            present, leaves = self._tables.captures[table], seen.leaves.get(capture.relid)
            if leaves is None:
                self._tables.forget_awaited(present)
            elif leaves != {leaf: capture.joined.get(leaf, "") for leaf in (*capture.leaves, *capture.awaited)}:
                self._follow_leaves(present, leaves, seen.horizon)
                is_followed = True
        self._tables.commit()
        if is_noted:
            self._batch.add_message(time.monotonic())
            self._captures.move_server()
        if any(c.awaited for t, c in self._tables.captures.items() if t not in same):
            self._captures.request()
        return is_followed or bool(self._outdated)

    def _find_lost(
        self, seen: SeenCatalog, same: Mapping[TableId, Capture], of_applier: frozenset[int]
    ) -> dict[TableId, str]:
        """Return the tables of which readers elsewhere must be told that nobody copies them again for now, and why.

        Raises CaptureOutdated for one that the next session is to copy again: no applier of this database requests it.
        """
        now = time.monotonic()
        outdated: dict[TableId, float] = {}
        lost: dict[TableId, str] = {}
        for table, why in seen.outdated.items():
            is_of_applier = table in same and same[table].relid in of_applier
            if table not in same or (is_of_applier and same[table].left_out):
                continue
            outdated[table] = self._outdated.get(table, now)
            if is_of_applier and table in seen.left_out:
                # While changes are left out, the applier requests no copy.
                lost[table] = seen.left_out[table]
            elif not is_of_applier or now - outdated[table] > APPLIER_S:
                raise CaptureOutdated(why, table)
        self._outdated = outdated
        return lost

    def _follow_leaves(self, capture: Capture, leaves: Mapping[int, str], horizon: Horizon) -> None:
        at, now_us = Lsn(self._frontier.next_point.value - 1), time.time_ns() // 1000
        for ordinal, gone in enumerate(self._tables.follow(capture.relid, leaves, at, horizon.sees)):
            writer, schema = self._routes.leaf_writer(gone, at)
            writer.append(truncate_leaf(schema, gone.leaf, Stamp(at, ordinal), NO_XID, now_us, snapshot=True))
        self._routes.forget()
        self._batch.add_message(time.monotonic())
        # The stream of an idle server would not move past the stamps by itself.
        self._captures.move_server()
