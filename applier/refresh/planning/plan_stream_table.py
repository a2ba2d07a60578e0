"""A stored definition in; the stream table with its plan, or with the query that PostgreSQL itself runs, out."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import psycopg

from applier.catalog.catalog import Catalog
from applier.catalog.confined import owner_of
from applier.catalog.database import Database
from applier.catalog.dependencies import ObjectIds
from applier.catalog.stream_tables import StreamTableRow
from applier.errors import PlanningCrashed, SourceBusy, SourceChanged
from applier.operators.stateful_nodes import stateful_nodes
from applier.plan.depth import Thresholds
from applier.plan.facts import facts_without_plan, plan_facts
from applier.plan.nodes import StreamPlan, scans
from applier.plan.stream_table import PostgresQuery, StreamTable
from applier.refresh.method.strategy import FullPolicy, RefreshMode
from applier.refresh.planning.explain_query import plan_report
from applier.sql.analyze.analyze import AnalyzedQuery, canonical_query
from applier.sql.by_itself import CHANGES_BY_ITSELF, is_steady
from applier.sql.catalog_snapshot import FIRST_USER_OID
from applier.sql.identity import Renamed, restate, tree_digest
from applier.sql.lexical import without_digests
from applier.sql.plan_query import StoredQuery, analyze_query, plan_analyzed
from applier.sql.refusal import DefinitionError, Refused
from applier.sql.sources import SYSTEM_SCHEMAS
from shared_schema.dependency_facts import DependencyFacts
from shared_schema.table_schema import TableId

log = logging.getLogger(__name__)

ATTEMPTS = 3
"""How often a query is analysed while what it reads is being altered."""

MAX_UNFINISHED = 2
"""After so many times that planning a query began and never ended, it is not tried again by itself."""


@dataclass
class StreamTablePlanner:
    """Plans stored definitions; its connection is used for nothing else."""

    database: Database
    catalog: Catalog
    thresholds: Thresholds
    _begun: set[int] = field(default_factory=set)
    """The stream tables that this process has begun to plan."""
    newly_planned: set[int] = field(default_factory=set)
    """Stream tables that were planned since somebody emptied it: their sources may have new columns."""

    def __call__(self, row: StreamTableRow) -> StreamTable:
        """Return the stream table with its plan; raise a TrickleError when it cannot be maintained."""
        with self._mark(row.pgt_id):
            return self._try_plan(row)

    @contextmanager
    def _mark(self, pgt_id: int) -> Iterator[None]:
        """Remember in the catalog that planning has begun, until it ends. What took the process along several times,
        because it used all memory for example, is not tried at the next start again."""
        unfinished = self.catalog.stream_tables.begin_plan(pgt_id)
        try:
            # Of this process itself: the end could not be noted, because PostgreSQL was away.
            if unfinished >= MAX_UNFINISHED and pgt_id not in self._begun:
                raise PlanningCrashed(
                    f"the applier ended {unfinished} times while it planned the query",
                    hint="make the query smaller (alter_stream_table), or give the applier more memory; then SELECT"
                    " pgtrickle.resume_stream_table(…)",
                )
            self._begun.add(pgt_id)
            yield
        finally:
            self.catalog.stream_tables.end_plan(pgt_id)

    def _try_plan(self, row: StreamTableRow) -> StreamTable:
        try:
            table = self._plan(row)
            self.newly_planned.add(row.pgt_id)
            return table
        except psycopg.errors.LockNotAvailable as error:
            raise SourceBusy(f"what {row.table} reads is locked by another session") from error
        except (psycopg.ProgrammingError, DefinitionError) as error:
            refusal = error.__cause__ if isinstance(error, DefinitionError) else error
            if not isinstance(refusal, psycopg.ProgrammingError):
                raise
            if isinstance(refusal, psycopg.errors.InsufficientPrivilege):
                raise SourceChanged(
                    f"the owner of {row.table} may not run its query: {refusal.diag.message_primary}",
                    hint="grant the owner the right, and the applier's role membership in the owner, then resume",
                ) from error
            # The stream table, or a relation that it reads, is dropped or altered at this moment.
            raise SourceChanged(
                f"the query of {row.table} can no longer be run: {refusal.diag.message_primary}",
                hint=refusal.diag.message_hint
                or "a source was dropped or altered: SELECT pgtrickle.diagnose_errors(name)",
            ) from error

    def _plan(self, row: StreamTableRow) -> StreamTable:
        connection = self.database.connection
        stored = StoredQuery(row.original_query, row.created_at)
        analyzed, facts = self._analyze(row, stored)
        if analyzed.base_columns() != self.catalog.stream_tables.base_columns(row.pgt_relid):
            raise SourceChanged(
                f"the query of {row.table} no longer returns the columns of the stream table",
                hint="a source was altered: SELECT pgtrickle.diagnose_errors(name)",
            )
        if row.reads_uncaptured:
            why = "it reads a relation whose changes are not in the log"
            return self._run_by_postgres(row, analyzed, facts, why, steady=False)
        try:
            definition = plan_analyzed(connection, analyzed, stored, self.thresholds.limits)
        except Refused as refused:
            if not _may_postgres_run(row, refused):
                raise
            steady = is_steady(analyzed.tree, analyzed.catalog)
            return self._run_by_postgres(row, analyzed, facts, refused.problem, steady=steady)
        self.save(row.pgt_id, row.table, definition.plan)
        used = _used_columns(definition.plan, analyzed)
        facts = _facts_of_plan(row, analyzed, facts, used)
        return StreamTable(row.pgt_id, row.table, row.pgt_relid, analyzed.columns, definition.plan, facts=facts)

    def _analyze(self, row: StreamTableRow, stored: StoredQuery) -> tuple[AnalyzedQuery, DependencyFacts]:
        """Analyse a stored query between two equal readings of the facts: so they are those of the analysis.

        What to read is known from a first analysis.
        """
        connection = self.database.connection
        # A stream table holds what its owner may read, whoever wrote its row in the catalog.
        role = owner_of(connection, row.pgt_relid)
        if role is None:
            raise SourceChanged(f"{row.table} does not exist any more", hint="drop it with pgtrickle.drop_stream_table")
        analyzed = analyze_query(connection, row.defining_query, "pg_catalog", stored, role)
        for _ in range(ATTEMPTS):
            ids = dependency_ids(analyzed)
            before = self.catalog.dependencies.read(ids)
            analyzed = analyze_query(connection, row.defining_query, "pg_catalog", stored, role)
            if dependency_ids(analyzed) == ids and self.catalog.dependencies.read(ids) == before:
                return analyzed, before
        raise SourceBusy(f"what {row.table} reads is being altered")

    def restate(self, row: StreamTableRow, old: DependencyFacts, new: DependencyFacts) -> str:
        """Return the stored query with the present names of what it reads; raise SourceChanged when that fails."""
        text = restate(row.defining_query, _renamed(old, new))
        connection = self.database.connection
        try:
            tree, canonical = canonical_query(connection, text, owner_of(connection, row.pgt_relid))
        except psycopg.errors.LockNotAvailable as error:
            raise SourceBusy(f"what {row.table} reads is locked by another session") from error
        except DefinitionError as error:
            raise _cannot_restate(row, error.problem) from error
        if text != row.defining_query and tree_digest(tree, old.relations.keys()) != old.tree:
            raise _cannot_restate(row, "its text cannot be put into the present names")
        return canonical

    def save(self, pgt_id: int, table: TableId, plan: StreamPlan) -> None:
        """Store the facts of a plan for `explain`, and log the thresholds that it exceeds."""
        facts = plan_facts(plan, self.thresholds, stateful_nodes(plan.root))
        self.catalog.stream_tables.save_plan(pgt_id, facts | {"text": plan_report(plan, self.thresholds.limits)})
        for crossed in facts["crossed"]:
            log.warning("a query is beyond a threshold", extra={"table": str(table), **crossed})

    def trial(self, altered: int, ids: frozenset[int]) -> dict[int, tuple[StreamTableRow, StreamTable]]:
        """Plan these stream tables as if the altered one had its new query already, and roll that back."""
        with self._mark(altered), self.database.connection.transaction(force_rollback=True):
            inside = StreamTablePlanner(self.database, Catalog(self.database), self.thresholds)
            with inside.catalog.alterations.adopt_query(altered):
                rows = [row for row in inside.catalog.stream_tables.all() if row.pgt_id in ids]
                return {row.pgt_id: (row, inside._try_plan(row)) for row in rows}

    def _run_by_postgres(
        self, row: StreamTableRow, analyzed: AnalyzedQuery, facts: DependencyFacts, refusal: str, *, steady: bool
    ) -> StreamTable:
        """Return a stream table without a plan; `steady` when its result changes only with its sources."""
        self.catalog.stream_tables.save_plan(row.pgt_id, facts_without_plan(refusal))
        plan = PostgresQuery(row.defining_query, self.catalog.stream_tables.base_sources(row.pgt_id), steady, refusal)
        facts = _facts_of_plan(row, analyzed, facts, None)
        return StreamTable(row.pgt_id, row.table, row.pgt_relid, analyzed.columns, plan, facts=facts)


def text_digest(query: str) -> str:
    """Return a digest of a stored query, without the digests of its functions."""
    return hashlib.md5(without_digests(query).encode(), usedforsecurity=False).hexdigest()


def dependency_ids(analyzed: AnalyzedQuery) -> ObjectIds:
    """Return everything that a query rests on: relations, types of their columns and functions, at any depth."""
    catalog = analyzed.catalog
    relations = {oid for oid, info in catalog.relations.items() if info.table.schema not in SYSTEM_SCHEMAS}
    types = {column.type.oid for oid in relations for column in catalog.relations[oid].columns}
    types |= {oid for oid in catalog.objects.types if str(oid) in analyzed.tree}
    return ObjectIds(
        frozenset(relations),
        frozenset(oid for oid in types if oid >= FIRST_USER_OID),
        frozenset(catalog.objects.functions),
    )


def _used_columns(plan: StreamPlan, analyzed: AnalyzedQuery) -> dict[int, frozenset[int]]:
    used: dict[int, frozenset[int]] = {}
    for scan in scans(plan.root):
        numbers = {c.name: c.number for c in analyzed.catalog.relations[scan.relid].columns}
        used[scan.relid] = used.get(scan.relid, frozenset()) | {numbers[name] for name in scan.columns}
    return used


def _used_types(analyzed: AnalyzedQuery, used: dict[int, frozenset[int]]) -> set[int]:
    """Return the types of the columns that a plan reads, and those that the query names."""
    catalog = analyzed.catalog
    of_columns = {
        c.type.oid for relid, read in used.items() for c in catalog.relations[relid].columns if c.number in read
    }
    return of_columns | {oid for oid in catalog.objects.types if str(oid) in analyzed.tree}


def _facts_of_plan(
    row: StreamTableRow, analyzed: AnalyzedQuery, facts: DependencyFacts, used: dict[int, frozenset[int]] | None
) -> DependencyFacts:
    tree = tree_digest(analyzed.tree, facts.relations.keys())
    if used is not None:
        facts = facts.with_types(_used_types(analyzed, used))
    return facts.with_plan(used, tree, text_digest(row.defining_query))


def _renamed(old: DependencyFacts, new: DependencyFacts) -> dict[TableId, Renamed]:
    """Return the objects with other names by their old ones."""
    renamed: dict[TableId, Renamed] = {}
    for relid, was in old.relations.items():
        now = new.relations.get(relid)
        if now is None:
            continue
        before = {column.number: column.name for column in was.columns}
        names = tuple(before[column.number] for column in now.columns if column.number in before)
        present = tuple(column.name for column in now.columns if column.number in before)
        numbers = {column.number for column in now.columns}
        dropped = frozenset(place for place, column in enumerate(was.columns) if column.number not in numbers)
        if was.table != now.table or names != present or dropped:
            columns = names if names != present else None
            renamed[was.table] = Renamed(now.table, is_relation=True, columns=columns, dropped=dropped)
    for oid, kind in old.types.items():
        if oid not in new.types:
            continue
        present_labels = dict(new.types[oid].labels)
        labels = tuple(
            (label, present_labels.get(o, label)) for o, label in kind.labels if present_labels.get(o) != label
        )
        if new.types[oid].table != kind.table or labels:
            renamed.setdefault(kind.table, Renamed(new.types[oid].table, is_relation=False, labels=labels))
    for oid, function in old.functions.items():
        if oid in new.functions and new.functions[oid].table != function.table:
            renamed.setdefault(function.table, Renamed(new.functions[oid].table, is_relation=False))
    return renamed


def _cannot_restate(row: StreamTableRow, problem: str) -> SourceChanged:
    return SourceChanged(
        f"what {row.table} reads has other names now, and its query cannot follow: {problem}",
        hint=f"SELECT pgtrickle.alter_stream_table('{row.table}', query => …) with the present names",
    )


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
