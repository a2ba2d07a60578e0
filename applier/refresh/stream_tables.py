"""Stored definitions in; the stream tables with their plans, and whether their sources are known at a frontier, out."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from applier.arrange.traces import Traces
from applier.catalog.catalog import Catalog
from applier.catalog.stream_tables import StreamTableRow
from applier.errors import SourceChanged, SourcesElsewhere
from applier.plan.nodes import Scan
from applier.plan.stream_table import PostgresQuery, StreamTable
from applier.sql.lexical import declared_digests
from shared_schema.errors import TrickleError
from shared_schema.lsn import Lsn
from shared_schema.progress import membership_epoch

log = logging.getLogger(__name__)

ANY_RELATION = 0
"""The relid of a relation in another database means nothing here: such a relation is identified by its name."""

PlanStreamTable = Callable[[StreamTableRow], StreamTable]
"""Plans a stored definition; raises a TrickleError when it has no plan."""


@dataclass
class StreamTables:
    """Plans each definition once, and again when the definition or a source changes."""

    catalog: Catalog
    traces: Traces
    plan: PlanStreamTable
    sources_elsewhere: bool = False
    """Whether the rows of the sources are in another database."""
    tables: dict[int, StreamTable] = field(default_factory=dict)
    _planned_from: dict[int, tuple[str, str, str]] = field(default_factory=dict)
    """The stored definition that each plan was made from."""
    _fingerprints: dict[int, str | None] = field(default_factory=dict)
    """The fingerprints of the source relations at the last look."""
    _recaptured: set[tuple[int, int]] = field(default_factory=set)
    """Stream table and source: recaptures that were requested because a column was missing."""

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

    def forget_dropped(self, existing: set[int]) -> set[int]:
        """Drop the plans of stream tables that no longer exist; return their ids."""
        dropped = self.tables.keys() - existing
        for pgt_id in dropped:
            del self.tables[pgt_id]
        return dropped

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
        now = self.catalog.sources.fingerprints(sources)
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
        now = self.catalog.sources.function_digests({oid for _, digests in digests_of for oid in digests})
        return [row for row, digests in digests_of if any(now.get(oid) != then for oid, then in digests.items())]

    def is_ready(self, row: StreamTableRow, table: StreamTable, frontier: Lsn) -> bool:
        """Whether everything the stream table reads is known at the frontier.

        Requests a recapture once for a column that was not captured. Raises SourceChanged when a column is still
        missing after that, and when a column is no longer the one from which the stream table's rows were computed.
        """
        if isinstance(table.plan, PostgresQuery):
            self._check_sources_are_here(table, table.plan)
        return all([self._is_known(row, scan, frontier) for scan in table.scans])

    def _check_sources_are_here(self, table: StreamTable, plan: PostgresQuery) -> None:
        traces = [self.traces.get(source) for source in plan.sources]
        if self.sources_elsewhere or any(trace is not None and trace.relid == ANY_RELATION for trace in traces):
            raise SourcesElsewhere(
                f"only PostgreSQL can run the query of {table} ({plan.refusal}), and its rows are in another database",
                hint="create it in the database of its sources, or write the query so that it can be maintained",
            )

    def _is_known(self, row: StreamTableRow, scan: Scan, frontier: Lsn) -> bool:
        trace = self.traces.get(scan.table)
        if trace is None:
            return False
        if trace.relid not in (ANY_RELATION, scan.relid):
            if row.lsn:
                raise SourceChanged(
                    f"table {scan.table} was dropped and created again", hint="drop and create the stream table"
                )
            return False
        # A relation that is unknown at the old frontier is not compared: the next refresh is FULL.
        comparable = row.lsn and self.traces.whole_at((scan.table,), row.lsn)
        if comparable and not self.traces.knows(scan, row.lsn):
            raise self.traces.reason(scan)
        if self.traces.knows(scan, frontier):
            return True
        if self.traces.coming(scan, frontier):
            return False
        if trace.relid == ANY_RELATION:
            # A recapture cannot be requested in another database.
            raise self.traces.reason(scan)
        if self.catalog.sources.recapture_epoch(scan.relid) > membership_epoch(trace.membership):
            return False
        if row.lsn or (row.pgt_id, scan.relid) in self._recaptured:
            raise self.traces.reason(scan)
        self._recaptured.add((row.pgt_id, scan.relid))
        log.info("source is captured again", extra={"table": str(row.table), "source": str(scan.table)})
        self.catalog.sources.request_recapture(scan.relid)
        return False


def _stored_definition(row: StreamTableRow) -> tuple[str, str, str]:
    return row.defining_query, row.refresh_mode, row.full_policy
