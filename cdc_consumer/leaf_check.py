"""Takes what a look at the catalog saw of the captured tables, and follows what the log does not say.

Messages in the log say at which position a partition was attached, detached or dropped. Where nobody writes them, the
difference is noticed here, some time after it happened: leaves that are gone leave with a T row, and new ones are
copied. A table whose leaves were changed by a message since the look began is compared at the next look.

Readers are also told here that changes of a table are no longer streamed, and up to which position nothing differed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import replace

from cdc_consumer.change_rows.copy_lines import NO_XID
from cdc_consumer.change_rows.split import truncate_leaf
from cdc_consumer.errors import CaptureOutdated
from cdc_consumer.open_batch import OpenBatch
from cdc_consumer.routes import Routes
from cdc_consumer.snapshot.captured_tables import CapturedTables
from cdc_consumer.snapshot.captures import Captures
from cdc_consumer.snapshot.comparison import Comparison
from cdc_consumer.wal.compared import ComparedPositions
from cdc_consumer.wal.frontier import Frontier
from shared_schema.change_row import Stamp
from shared_schema.lsn import Lsn
from shared_schema.progress import Capture
from shared_schema.table_schema import TableId

log = logging.getLogger(__name__)

APPLIER_S = 10.0
"""How long an applier of the same database may take to request a copy that its own stream tables need too."""


class LeafCheck:
    """Follows the catalog between source transactions."""

    def __init__(
        self,
        *,
        tables: CapturedTables,
        captures: Captures,
        routes: Routes,
        frontier: Frontier,
        batch: OpenBatch,
        compared: ComparedPositions,
    ) -> None:
        self._tables = tables
        self._captures = captures
        self._routes = routes
        self._frontier = frontier
        self._batch = batch
        self._compared = compared
        self._outdated: dict[TableId, float] = {}
        """Tables of which an applier should request a copy, and since when."""

    def follow(self) -> None:
        """Follow what the last look at the catalog saw, once the stream has reached its position."""
        seen = self._captures.take_comparison()
        if seen is None:
            return
        same = {t: c for t, c in seen.captured.items() if self._tables.captures.get(t) is c}
        noted = {t: n for t, c in same.items() if (n := self._describe(c, seen)) != c}
        self._tables.note(noted.values())
        is_same = all([self._follow_leaves(self._tables.captures[t], seen) for t, c in same.items()])
        self._tables.commit()
        is_current = self._are_current(seen)
        if noted:
            self._batch.add_message(time.monotonic())
            self._captures.move_server()
        if not (is_same and is_current):
            self._compared.lose()
        elif len(same) == len(self._tables.captures) and seen.is_settled and not self._captures.is_unfinished:
            self._confirm(seen.position)
        waits = not self._compared.range.includes(self._frontier.published)
        self._captures.compare_again(waiting=waits)

    def _describe(self, capture: Capture, seen: Comparison) -> Capture:
        """Return the record of a table with what is known of it now."""
        table = capture.table
        if reason := seen.unpublished.get(table):
            log.warning("changes of a table are no longer streamed", extra={"table": str(table), "reason": reason})
            return replace(capture, left_out=reason)
        if table not in seen.outdated:
            return replace(capture, facts=(seen.facts or {}).get(capture.relid, capture.facts))
        # Its facts stay those of its rows. While the publications leave changes out, an applier requests no copy.
        return replace(capture, left_out=capture.left_out or seen.left_out.get(table, ""))

    def _are_current(self, seen: Comparison) -> bool:
        """Whether the rows of all tables are those of the log, or their readers know that they are not."""
        now = time.monotonic()
        known = self._tables.captures
        told = {t for t in seen.left_out if t in known and known[t].left_out and known[t].relid in seen.of_applier}
        lost = {t: why for t, why in seen.outdated.items() if t in known and t not in told}
        for table, why in lost.items():
            since = self._outdated.get(table, now)
            if known[table].relid not in seen.of_applier or now - since > APPLIER_S:
                raise CaptureOutdated(why, table)
        self._outdated = {table: self._outdated.get(table, now) for table in lost}
        return not lost

    def _confirm(self, position: Lsn) -> None:
        before, frontier = self._compared.range, self._frontier
        is_over = self._compared.confirm(position, frontier.next_point)
        if self._captures.is_compared_by_applier:
            return  # readers elsewhere, if there are any, learn it from the next record
        if is_over:
            # The stream of an idle server would not move to where the new range begins.
            self._captures.move_server()
        elif not before.includes(frontier.published) and self._compared.range.includes(frontier.published):
            self._batch.add_message(time.monotonic())

    def _follow_leaves(self, capture: Capture, seen: Comparison) -> bool:
        """Follow the leaves of a partitioned table -> whether they were known already."""
        if capture.leaves is None:
            return True
        leaves = seen.leaves.get(capture.relid)
        if leaves is None:
            self._tables.forget_awaited(capture)
            return True
        if leaves == {leaf: capture.joined.get(leaf, "") for leaf in (*capture.leaves, *capture.awaited)}:
            return True
        if not self._tables.find_doubtful(capture, leaves, seen.sight):
            self._follow(capture, leaves, seen)
        return False

    def _follow(self, capture: Capture, leaves: Mapping[int, str], seen: Comparison) -> None:
        at, now_us = Lsn(self._frontier.next_point.value - 1), time.time_ns() // 1000
        for ordinal, gone in enumerate(self._tables.follow(capture.relid, leaves, at, (), seen.sight)):
            writer, schema = self._routes.leaf_writer(gone, at)
            writer.append(truncate_leaf(schema, gone.leaf, Stamp(at, ordinal), NO_XID, now_us, snapshot=True))
        self._routes.forget()
        self._batch.add_message(time.monotonic())
        # The stream of an idle server would not move past the stamps by itself.
        self._captures.move_server()
