"""A stream table and a frontier in; whether everything that it reads is known there, out."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from datetime import datetime

from applier.arrange.traces import Traces
from applier.catalog.sources import SourceFacts
from applier.catalog.stream_tables import StreamTableRow
from applier.errors import SourceChanged, SourcesElsewhere, SourceStopped
from applier.plan.nodes import Scan
from applier.plan.stream_table import PostgresQuery, StreamTable
from shared_schema.lsn import Lsn
from shared_schema.progress import membership_epoch

log = logging.getLogger(__name__)

ANY_RELATION = 0
"""The relid of a relation in another database means nothing here: such a relation is identified by its name."""


@dataclass
class Readiness:
    """Compares what stream tables read with what the traces know."""

    sources: SourceFacts
    traces: Traces
    sources_elsewhere: bool = False
    """Whether the rows of the sources are in another database."""
    _recaptured: set[tuple[int, int, datetime | None]] = field(default_factory=set)
    """Stream table, source, and the request to compute it once more: recaptures because a column was missing."""

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
        if (reason := self.traces.stopped.get(scan.table)) is not None:
            raise SourceStopped(
                f"changes of {scan.table} are no longer captured: {reason}",
                hint="remove the cause and restart pg-trickle-cdc, which copies the table again; then resume this "
                "stream table",
            )
        trace = self.traces.get(scan.table)
        if trace is None:
            return False
        if trace.relid not in (ANY_RELATION, scan.relid):
            if row.lsn:
                raise SourceChanged(
                    f"table {scan.table} was dropped and created again",
                    hint="SELECT pgtrickle.reinitialize_stream_table(name)",
                )
            return False
        if row.reinitializes and trace.relid != ANY_RELATION and self._is_copied_again(scan, trace.membership):
            # A repair reads no rows that are about to be replaced by a new copy.
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
        if self._is_copied_again(scan, trace.membership):
            return False
        recapture = row.pgt_id, scan.relid, row.reinit_requested_at
        if row.lsn or recapture in self._recaptured:
            raise self.traces.reason(scan)
        self._recaptured.add(recapture)
        log.info("source is captured again", extra={"table": str(row.table), "source": str(scan.table)})
        self.sources.request_recapture(scan.relid)
        return False

    def _is_copied_again(self, scan: Scan, membership: str) -> bool:
        """Whether a recapture was requested that is not in the trace yet."""
        return self.sources.recapture_epoch(scan.relid) > membership_epoch(membership)
