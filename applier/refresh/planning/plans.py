"""Stored definitions in; the stream tables with their plans out."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from applier.catalog.stream_tables import StreamTableRow
from applier.errors import SourceBusy
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
    _written: dict[int, StreamTable] = field(default_factory=dict)
    """The plans that were adopted together with rows."""
    _waiting: set[int] = field(default_factory=set)
    """The stream tables whose sources were busy at the last attempt."""
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
                    self._waiting.discard(row.pgt_id)
                    log.info("stream table planned", extra={"table": str(row.table), "pgt_id": row.pgt_id})
                planned.append((row, self.tables[row.pgt_id]))
            except SourceBusy as error:
                if row.pgt_id not in self._waiting:
                    log.warning("planning waits", extra={"table": str(row.table), "error": error.log_text})
                self._waiting.add(row.pgt_id)
            except Exception as error:
                refused.append((row, to_own_error(row.table, error)))
        return planned, refused

    def adopt(self, row: StreamTableRow, table: StreamTable) -> None:
        """Use this plan for the definition from now on; the rows of the stream table are those of this plan."""
        self.tables[row.pgt_id] = self._written[row.pgt_id] = table
        self._planned_from[row.pgt_id] = _stored_definition(row)

    def has_own_rows(self, pgt_id: int) -> bool:
        """Whether the present plan was adopted together with its rows, and nobody has taken note yet."""
        table = self.tables.get(pgt_id)
        return table is not None and self._written.get(pgt_id) is table

    def take_note(self, pgt_id: int) -> None:
        """Note that the facts of an adopted plan are known."""
        self._written.pop(pgt_id, None)

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
