"""Compares the leaf partitions that a check of the catalog saw with the known ones, and follows what nobody announced.

Messages in the log say at which position a partition was attached, detached or dropped. Where nobody writes them, the
difference is noticed here, some time after it happened: leaves that are gone leave with a T row, and new ones are
copied. A table whose leaves were changed by a message since the check began is compared at the next check.

Readers are also told here that changes of a table are no longer streamed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping

from cdc_consumer.change_rows.copy_lines import NO_XID
from cdc_consumer.change_rows.split import truncate_leaf
from cdc_consumer.open_batch import OpenBatch
from cdc_consumer.routes import Routes
from cdc_consumer.snapshot.captured_tables import CapturedTables
from cdc_consumer.snapshot.captures import Captures
from cdc_consumer.wal.frontier import Frontier
from cdc_consumer.wal.horizon import Horizon
from shared_schema.change_row import Stamp
from shared_schema.lsn import Lsn
from shared_schema.progress import Capture

log = logging.getLogger(__name__)


class LeafCheck:
    """Follows the leaves of captured tables between source transactions."""

    def __init__(
        self, tables: CapturedTables, captures: Captures, routes: Routes, frontier: Frontier, batch: OpenBatch
    ) -> None:
        self._tables = tables
        self._captures = captures
        self._routes = routes
        self._frontier = frontier
        self._batch = batch

    def follow(self) -> None:
        """Follow what the last check of the catalog saw, once the stream has reached its position."""
        trees = self._captures.take_trees()
        if trees is None:
            return
        noted = False
        for table, capture in trees.captured.items():
            if (now := self._tables.captures.get(table)) is not capture:
                if now is not None and now.awaited:
                    self._captures.request()
                continue
            if reason := trees.unpublished.get(table):
                log.error("changes of a table are no longer streamed", extra={"table": str(table), "reason": reason})
            noted |= self._tables.note(capture, trees.facts.get(capture.relid, capture.facts), reason)
            if capture.leaves is None:
                continue
            present, leaves = self._tables.captures[table], trees.leaves.get(capture.relid)
            if leaves is None:
                self._tables.forget_awaited(present)
            elif leaves != {leaf: capture.joined.get(leaf, "") for leaf in (*capture.leaves, *capture.awaited)}:
                self._follow(present, leaves, trees.horizon)
        self._tables.commit()
        if noted:
            self._batch.add_message(time.monotonic())
            self._captures.move_server()

    def _follow(self, capture: Capture, leaves: Mapping[int, str], horizon: Horizon) -> None:
        at, now_us = Lsn(self._frontier.next_point.value - 1), time.time_ns() // 1000
        for ordinal, gone in enumerate(self._tables.follow(capture.relid, leaves, at, horizon.sees)):
            writer, schema = self._routes.leaf_writer(gone, at)
            writer.append(truncate_leaf(schema, gone.leaf, Stamp(at, ordinal), NO_XID, now_us, snapshot=True))
        self._routes.forget()
        self._batch.add_message(time.monotonic())
        # The stream of an idle server would not move past the stamps by itself.
        self._captures.move_server()
