"""A stored definition -> the stream table with its plan, or with the query that PostgreSQL runs where there is none."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

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
from applier.refresh.strategy import FullPolicy, RefreshMode
from applier.sql.analyze.analyze import analysis_transaction, analyze
from applier.sql.plan_query import StoredQuery, plan_query
from applier.sql.refusal import Reason, Refused
from shared_schema.table_schema import Column, TableId

log = logging.getLogger(__name__)

CHANGES_BY_ITSELF = frozenset({Reason.VOLATILE, Reason.CURRENT_TIME, Reason.SESSION})
"""Refusals of queries that have no one right content: only FULL, asked for by name, takes them."""

CALLS_FUNCTIONS = "/* functions:"
"""How a stored query begins that calls functions of users: what those read, nobody knows."""


@dataclass
class StreamTablePlanner:
    """Plans stored definitions; its connection is used for nothing else."""

    database: Database
    catalog: Catalog
    thresholds: Thresholds

    def __call__(self, row: StreamTableRow) -> StreamTable:
        """The stream table; a TrickleError says why it cannot be kept."""
        try:
            return self._defined(row)
        except psycopg.ProgrammingError as error:
            # It is dropped or altered at this moment, or what it reads is.
            raise SourceChanged(
                f"the query of {row.table} cannot be run any more: {error.diag.message_primary}",
                hint=error.diag.message_hint
                or "what it reads was dropped or altered: drop and create the stream table",
            ) from error

    def _defined(self, row: StreamTableRow) -> StreamTable:
        if self.catalog.stream_tables.result_columns(row.defining_query) != self.catalog.stream_tables.result_columns(
            f"TABLE {row.table.quoted}"
        ):
            raise SourceChanged(
                f"the query of {row.table} no longer returns the columns the stream table has",
                hint="a source was altered: drop and create the stream table",
            )
        if row.reads_uncaptured:
            return self._run_by_postgres(row, "it reads what leaves no rows in the log", steady=False)
        try:
            written = StoredQuery(row.original_query, row.created_at)
            definition = plan_query(self.database.connection, row.defining_query, "pg_catalog", written)
        except Refused as refused:
            if not _postgres_may(row, refused):
                raise
            steady = refused.reason not in CHANGES_BY_ITSELF and not row.defining_query.startswith(CALLS_FUNCTIONS)
            return self._run_by_postgres(row, refused.problem, steady=steady)
        self.save(row.pgt_id, row.table, definition.plan)
        columns = tuple(Column(name, kind) for name, kind in definition.columns)
        return StreamTable(row.pgt_id, row.table, row.pgt_relid, columns, definition.plan)

    def save(self, pgt_id: int, table: TableId, plan: StreamPlan) -> None:
        """Keep the facts of a plan for `explain`, and tell of thresholds that it crosses."""
        found = plan_facts(plan, self.thresholds, stateful_nodes(plan.root))
        self.catalog.stream_tables.save_plan(pgt_id, found)
        for one in found["crossed"]:
            log.warning("a query is beyond a threshold", extra={"table": str(table), **one})

    def trial(self, altered: int, wanted: frozenset[int]) -> dict[int, tuple[StreamTableRow, StreamTable]]:
        """The wanted stream tables as they would be if the altered one had its new query; nothing stays of it."""
        with self.database.connection.transaction(force_rollback=True):
            inside = StreamTablePlanner(self.database, Catalog(self.database), self.thresholds)
            with inside.catalog.alterations.adopting(altered):
                rows = [row for row in inside.catalog.stream_tables.all() if row.pgt_id in wanted]
                return {row.pgt_id: (row, inside(row)) for row in rows}

    def _run_by_postgres(self, row: StreamTableRow, refusal: str, *, steady: bool) -> StreamTable:
        self.catalog.stream_tables.save_plan(row.pgt_id, facts_without_plan(refusal))
        plan = PostgresQuery(row.defining_query, self.catalog.stream_tables.base_sources(row.pgt_id), steady, refusal)
        columns = _columns(self.database.connection, row.defining_query)
        return StreamTable(row.pgt_id, row.table, row.pgt_relid, columns, plan)


def _postgres_may(row: StreamTableRow, refused: Refused) -> bool:
    """Whether PostgreSQL runs a query that cannot be followed: never against the user's word.

    Not for one that reads stream tables: PostgreSQL would read their rows, which are of another frontier.
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


def _columns(connection: psycopg.Connection[Any], query: str) -> tuple[Column, ...]:
    with analysis_transaction(connection, "pg_catalog") as catalog:
        return tuple(Column(c.name, c.type) for c in analyze(connection, catalog, query).columns)
