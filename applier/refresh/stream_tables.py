"""The stream tables in service with their plans, and whether what they read is known."""

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
from applier.sql.analyze.function_bodies import declared_digests
from shared_schema.errors import TrickleError
from shared_schema.lsn import Lsn
from shared_schema.progress import membership_epoch

log = logging.getLogger(__name__)

ANY_RELATION = 0
"""The number of a relation in another database says nothing here: it is known by its name."""

PlanStreamTable = Callable[[StreamTableRow], StreamTable]
"""A stored definition -> its plan; a TrickleError says why it has none."""


@dataclass
class StreamTables:
    """Plans are made once and kept until the definition or a source changes."""

    catalog: Catalog
    traces: Traces
    define: PlanStreamTable
    elsewhere: bool = False
    """Whether the rows of the sources are in another database."""
    tables: dict[int, StreamTable] = field(default_factory=dict)
    _written: dict[int, tuple[str, str, str]] = field(default_factory=dict)
    """What each was defined from."""
    _fingerprints: dict[int, str | None] = field(default_factory=dict)
    """Of the relations the defined stream tables read, as they were when last looked at."""
    _recaptured: set[tuple[int, int]] = field(default_factory=set)
    """Stream table and source: captures asked for because a column was missing."""

    def understand(
        self, rows: Sequence[StreamTableRow]
    ) -> tuple[list[tuple[StreamTableRow, StreamTable]], list[tuple[StreamTableRow, TrickleError]]]:
        """The rows with their plans, and those that have none."""
        self._notice_changes(rows)
        understood: list[tuple[StreamTableRow, StreamTable]] = []
        refused: list[tuple[StreamTableRow, TrickleError]] = []
        for row in rows:
            try:
                if row.pgt_id not in self.tables:
                    self.tables[row.pgt_id] = self.define(row)
                    self._written[row.pgt_id] = _written(row)
                    log.info("stream table defined", extra={"table": str(row.table), "pgt_id": row.pgt_id})
                understood.append((row, self.tables[row.pgt_id]))
            except TrickleError as error:
                if error.retryable:
                    raise
                refused.append((row, error))
        return understood, refused

    def adopt(self, row: StreamTableRow, table: StreamTable) -> None:
        """It is defined so from now on."""
        self.tables[row.pgt_id] = table
        self._written[row.pgt_id] = _written(row)

    def forget(self, pgt_id: int) -> None:
        """It is to be defined anew."""
        self.tables.pop(pgt_id, None)

    def forget_all_but(self, existing: set[int]) -> set[int]:
        """Forget what was dropped; return it."""
        gone = self.tables.keys() - existing
        for pgt_id in gone:
            del self.tables[pgt_id]
        return gone

    def _notice_changes(self, rows: Sequence[StreamTableRow]) -> None:
        """What was altered, or reads what was altered, is defined anew: it may mean something else now, or nothing."""
        for row in rows:
            if row.pgt_id in self.tables and self._written[row.pgt_id] != _written(row):
                del self.tables[row.pgt_id]
        for row in self._calling_replaced(rows):
            log.info("function was replaced, stream table is defined anew", extra={"table": str(row.table)})
            del self.tables[row.pgt_id]
        sources = {scan.relid for table in self.tables.values() for scan in table.scans}
        now = self.catalog.sources.fingerprints(sources)
        altered = {relid for relid in sources if self._fingerprints.setdefault(relid, now.get(relid)) != now.get(relid)}
        for table in [t for t in self.tables.values() if any(s.relid in altered for s in t.scans)]:
            log.info("source was altered, stream table is defined anew", extra={"table": str(table)})
            del self.tables[table.id]
        self._fingerprints = {relid: now.get(relid) for relid in sources}

    def _calling_replaced(self, rows: Sequence[StreamTableRow]) -> list[StreamTableRow]:
        """Those whose plan holds the expression of a function that is another one by now; PostgreSQL is asked once."""
        called = [
            (row, declared_digests(row.defining_query) or {})
            for row in rows
            if row.pgt_id in self.tables and not isinstance(self.tables[row.pgt_id].plan, PostgresQuery)
        ]
        now = self.catalog.sources.function_digests({oid for _, digests in called for oid in digests})
        return [row for row, digests in called if any(now.get(oid) != told for oid, told in digests.items())]

    def ready(self, row: StreamTableRow, table: StreamTable, frontier: Lsn) -> bool:
        """Whether everything it reads is known as of the frontier.

        A column that was not captured is asked for once; what is then still missing is SourceChanged, and so is a
        column that is no longer the one the stream table's rows were computed with.
        """
        if isinstance(table.plan, PostgresQuery):
            self._must_be_here(table, table.plan)
        return all([self._known(row, scan, frontier) for scan in table.scans])

    def _must_be_here(self, table: StreamTable, plan: PostgresQuery) -> None:
        read = [self.traces.get(source) for source in plan.sources]
        if self.elsewhere or any(trace is not None and trace.relid == ANY_RELATION for trace in read):
            raise SourcesElsewhere(
                f"the query of {table} can only be run by PostgreSQL ({plan.refusal}), and its rows are not here",
                hint="keep it in the database of its sources, or write the query so that it can be followed",
            )

    def _known(self, row: StreamTableRow, scan: Scan, frontier: Lsn) -> bool:
        trace = self.traces.get(scan.table)
        if trace is None:
            return False
        if trace.relid not in (ANY_RELATION, scan.relid):
            if row.lsn:
                raise SourceChanged(
                    f"table {scan.table} was dropped and created again", hint="drop and create the stream table"
                )
            return False
        # What nothing is known of is not compared: the stream table is computed anew as a whole.
        comparable = row.lsn and self.traces.whole_at((scan.table,), row.lsn)
        if comparable and not self.traces.knows(scan, row.lsn):
            raise self.traces.reason(scan)
        if self.traces.knows(scan, frontier):
            return True
        if self.traces.coming(scan, frontier):
            return False
        if trace.relid == ANY_RELATION:
            # Nobody there hears us ask for another copy.
            raise self.traces.reason(scan)
        if self.catalog.sources.recapture_epoch(scan.relid) > membership_epoch(trace.membership):
            return False
        if row.lsn or (row.pgt_id, scan.relid) in self._recaptured:
            raise self.traces.reason(scan)
        self._recaptured.add((row.pgt_id, scan.relid))
        log.info("source is captured anew", extra={"table": str(row.table), "source": str(scan.table)})
        self.catalog.sources.request_recapture(scan.relid)
        return False


def _written(row: StreamTableRow) -> tuple[str, str, str]:
    return row.defining_query, row.refresh_mode, row.full_policy
