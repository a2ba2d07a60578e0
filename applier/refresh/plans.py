"""Stored definitions in; the stream tables with their plans out."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from applier.catalog.stream_tables import StreamTableRow
from applier.plan.stream_table import StreamTable
from applier.unexpected import to_own_error
from shared_schema.errors import TrickleError

log = logging.getLogger(__name__)

PlanStreamTable = Callable[[StreamTableRow], StreamTable]
"""Plans a stored definition; raises a TrickleError when it has no plan."""


@dataclass
class StreamTablePlans:
    """Plans each definition once, and again when the definition changes or `forget` was called."""

    plan: PlanStreamTable
    tables: dict[int, StreamTable] = field(default_factory=dict)
    _planned_from: dict[int, tuple[str, str, str]] = field(default_factory=dict)
    """The stored definition that each plan was made from."""
    _planned_at: dict[int, datetime] = field(default_factory=dict)
    """The last request to compute a stream table once more for which it was planned again."""

    def load(
        self, rows: Sequence[StreamTableRow]
    ) -> tuple[list[tuple[StreamTableRow, StreamTable]], list[tuple[StreamTableRow, TrickleError]]]:
        """Return the rows with their plans, and the rows that have none with the error."""
        self._drop_outdated_plans(rows)
        planned: list[tuple[StreamTableRow, StreamTable]] = []
        refused: list[tuple[StreamTableRow, TrickleError]] = []
        for row in rows:
            try:
                if row.pgt_id not in self.tables:
                    self.tables[row.pgt_id] = self.plan(row)
                    self._planned_from[row.pgt_id] = _stored_definition(row)
                    log.info("stream table planned", extra={"table": str(row.table), "pgt_id": row.pgt_id})
                planned.append((row, self.tables[row.pgt_id]))
            except Exception as error:
                refused.append((row, to_own_error(row.table, error)))
        return planned, refused

    def adopt(self, row: StreamTableRow, table: StreamTable) -> None:
        """Use this plan for the definition from now on."""
        self.tables[row.pgt_id] = table
        self._planned_from[row.pgt_id] = _stored_definition(row)

    def forget(self, pgt_id: int) -> None:
        """Drop a plan; the next `load` plans the definition again."""
        self.tables.pop(pgt_id, None)

    def _drop_outdated_plans(self, rows: Sequence[StreamTableRow]) -> None:
        """Drop the plan of each stream table that was altered, or whose whole is to be computed."""
        for row in rows:
            if row.pgt_id in self.tables and self._planned_from[row.pgt_id] != _stored_definition(row):
                del self.tables[row.pgt_id]
            request = row.reinit_requested_at
            if request is not None and self._planned_at.get(row.pgt_id) != request:
                # What it reads may mean something else by now.
                self.tables.pop(row.pgt_id, None)
                self._planned_at[row.pgt_id] = request


def _stored_definition(row: StreamTableRow) -> tuple[str, str, str]:
    return row.defining_query, row.refresh_mode, row.full_policy
