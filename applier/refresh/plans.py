"""Stored definitions in; the stream tables with their plans out."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from applier.catalog.sources import SourceFacts
from applier.catalog.stream_tables import StreamTableRow
from applier.plan.stream_table import PostgresQuery, StreamTable
from applier.sql.lexical import declared_digests
from shared_schema.errors import TrickleError

log = logging.getLogger(__name__)

PlanStreamTable = Callable[[StreamTableRow], StreamTable]
"""Plans a stored definition; raises a TrickleError when it has no plan."""


@dataclass
class StreamTablePlans:
    """Plans each definition once, and again when the definition or a source changes."""

    sources: SourceFacts
    plan: PlanStreamTable
    tables: dict[int, StreamTable] = field(default_factory=dict)
    _planned_from: dict[int, tuple[str, str, str]] = field(default_factory=dict)
    """The stored definition that each plan was made from."""
    _fingerprints: dict[int, str | None] = field(default_factory=dict)
    """The fingerprints of the source relations at the last look."""

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
            except TrickleError as error:
                if error.retryable:
                    raise
                refused.append((row, error))
        return planned, refused

    def adopt(self, row: StreamTableRow, table: StreamTable) -> None:
        """Use this plan for the definition from now on."""
        self.tables[row.pgt_id] = table
        self._planned_from[row.pgt_id] = _stored_definition(row)

    def forget(self, pgt_id: int) -> None:
        """Drop a plan; the next `load` plans the definition again."""
        self.tables.pop(pgt_id, None)

    def _drop_outdated_plans(self, rows: Sequence[StreamTableRow]) -> None:
        """Drop the plan of each stream table that was altered or reads an altered relation: its query may mean
        something else now, or nothing."""
        for row in rows:
            if row.pgt_id in self.tables and self._planned_from[row.pgt_id] != _stored_definition(row):
                del self.tables[row.pgt_id]
        for row in self._with_replaced_functions(rows):
            log.info("function was replaced, stream table is planned again", extra={"table": str(row.table)})
            del self.tables[row.pgt_id]
        sources = {scan.relid for table in self.tables.values() for scan in table.scans}
        now = self.sources.fingerprints(sources)
        altered = {relid for relid in sources if self._fingerprints.setdefault(relid, now.get(relid)) != now.get(relid)}
        for table in [t for t in self.tables.values() if any(s.relid in altered for s in t.scans)]:
            log.info("source was altered, stream table is planned again", extra={"table": str(table)})
            del self.tables[table.id]
        self._fingerprints = {relid: now.get(relid) for relid in sources}

    def _with_replaced_functions(self, rows: Sequence[StreamTableRow]) -> list[StreamTableRow]:
        """Return the rows whose plan holds the body of a function that was replaced; one query reads all digests."""
        digests_of = [
            (row, declared_digests(row.defining_query) or {})
            for row in rows
            if row.pgt_id in self.tables and not isinstance(self.tables[row.pgt_id].plan, PostgresQuery)
        ]
        now = self.sources.function_digests({oid for _, digests in digests_of for oid in digests})
        return [row for row, digests in digests_of if any(now.get(oid) != then for oid, then in digests.items())]


def _stored_definition(row: StreamTableRow) -> tuple[str, str, str]:
    return row.defining_query, row.refresh_mode, row.full_policy
