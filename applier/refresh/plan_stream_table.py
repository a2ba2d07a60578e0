"""A stored definition in; the stream table with its plan, or with the query that PostgreSQL itself runs, out."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import psycopg

from applier.catalog.catalog import Catalog
from applier.catalog.database import Database
from applier.catalog.stream_tables import StreamTableRow
from applier.errors import SourceChanged
from applier.operators.stateful_nodes import stateful_nodes
from applier.plan.depth import Thresholds
from applier.plan.facts import facts_without_plan, plan_facts
from applier.plan.nodes import StreamPlan
from applier.plan.stream_table import PostgresQuery, StreamTable
from applier.refresh.explain_query import plan_report
from applier.refresh.strategy import FullPolicy, RefreshMode
from applier.sql.analyze.analyze import AnalyzedQuery
from applier.sql.plan_query import StoredQuery, analyze_query, plan_analyzed
from applier.sql.refusal import DefinitionError, Reason, Refused
from shared_schema.table_schema import TableId

log = logging.getLogger(__name__)

CHANGES_BY_ITSELF = frozenset({Reason.VOLATILE, Reason.CURRENT_TIME, Reason.SESSION})
"""Refusals of queries whose result changes by itself: only an explicit mode FULL accepts them."""

CALLS_FUNCTIONS = "/* functions:"
"""The first words of a stored query that calls user functions: it is not known what those read."""


@dataclass
class StreamTablePlanner:
    """Plans stored definitions; its connection is used for nothing else."""

    database: Database
    catalog: Catalog
    thresholds: Thresholds

    def __call__(self, row: StreamTableRow) -> StreamTable:
        """Return the stream table with its plan; raise a TrickleError when it cannot be maintained."""
        try:
            return self._plan(row)
        except (psycopg.ProgrammingError, DefinitionError) as error:
            refusal = error.__cause__ if isinstance(error, DefinitionError) else error
            if not isinstance(refusal, psycopg.ProgrammingError):
                raise
            # The stream table, or a relation that it reads, is dropped or altered at this moment.
            raise SourceChanged(
                f"the query of {row.table} can no longer be run: {refusal.diag.message_primary}",
                hint=refusal.diag.message_hint or "a source was dropped or altered: drop and create the stream table",
            ) from error

    def _plan(self, row: StreamTableRow) -> StreamTable:
        connection = self.database.connection
        stored = StoredQuery(row.original_query, row.created_at)
        analyzed = analyze_query(connection, row.defining_query, "pg_catalog", stored)
        if analyzed.base_columns() != self.catalog.stream_tables.base_columns(row.pgt_relid):
            raise SourceChanged(
                f"the query of {row.table} no longer returns the columns of the stream table",
                hint="a source was altered: drop and create the stream table",
            )
        if row.reads_uncaptured:
            return self._run_by_postgres(
                row, analyzed, "it reads a relation whose changes are not in the log", steady=False
            )
        try:
            definition = plan_analyzed(connection, analyzed, stored)
        except Refused as refused:
            if not _may_postgres_run(row, refused):
                raise
            steady = refused.reason not in CHANGES_BY_ITSELF and not row.defining_query.startswith(CALLS_FUNCTIONS)
            return self._run_by_postgres(row, analyzed, refused.problem, steady=steady)
        self.save(row.pgt_id, row.table, definition.plan)
        return StreamTable(row.pgt_id, row.table, row.pgt_relid, analyzed.columns, definition.plan)

    def save(self, pgt_id: int, table: TableId, plan: StreamPlan) -> None:
        """Store the facts of a plan for `explain`, and log the thresholds that it exceeds."""
        facts = plan_facts(plan, self.thresholds, stateful_nodes(plan.root))
        self.catalog.stream_tables.save_plan(pgt_id, facts | {"text": plan_report(plan)})
        for crossed in facts["crossed"]:
            log.warning("a query is beyond a threshold", extra={"table": str(table), **crossed})

    def trial(self, altered: int, ids: frozenset[int]) -> dict[int, tuple[StreamTableRow, StreamTable]]:
        """Plan these stream tables as if the altered one had its new query already, and roll that back."""
        with self.database.connection.transaction(force_rollback=True):
            inside = StreamTablePlanner(self.database, Catalog(self.database), self.thresholds)
            with inside.catalog.alterations.adopt_query(altered):
                rows = [row for row in inside.catalog.stream_tables.all() if row.pgt_id in ids]
                return {row.pgt_id: (row, inside(row)) for row in rows}

    def _run_by_postgres(
        self, row: StreamTableRow, analyzed: AnalyzedQuery, refusal: str, *, steady: bool
    ) -> StreamTable:
        """Return a stream table without a plan; `steady` when its result changes only with its sources."""
        self.catalog.stream_tables.save_plan(row.pgt_id, facts_without_plan(refusal))
        plan = PostgresQuery(row.defining_query, self.catalog.stream_tables.base_sources(row.pgt_id), steady, refusal)
        return StreamTable(row.pgt_id, row.table, row.pgt_relid, analyzed.columns, plan)


def _may_postgres_run(row: StreamTableRow, refused: Refused) -> bool:
    """Whether PostgreSQL may run a query that cannot be maintained; only when the user's settings allow it.

    Not for a query that reads stream tables: PostgreSQL would read their rows, which belong to another frontier.
    """
    if not refused.full_in_postgres or row.reads:
        return False
    match RefreshMode(row.refresh_mode):
        case RefreshMode.FULL:
            return True
        case RefreshMode.AUTO:
            return FullPolicy(row.full_policy) is FullPolicy.ALLOW and refused.reason not in CHANGES_BY_ITSELF
        case RefreshMode.DIFFERENTIAL | RefreshMode.IMMEDIATE:
            return False
