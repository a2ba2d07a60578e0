"""A frontier in; the stream tables that may be shown there, because nothing that they rest on has changed, out.

The order is what makes it sound: first the position up to which rows are complete, then the sessions whose commit may
be under way, then the catalog. Every commit before the position is therefore either seen in the catalog or among the
sessions. A stream table whose facts changed, or cannot be vouched for now, stays at its frontier; the others go on.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import assert_never

from applier import metrics
from applier.catalog.catalog import Catalog
from applier.catalog.dependencies import ObjectIds, ids_of
from applier.catalog.stream_tables import StreamTableRow
from applier.errors import PublicationChanged, SourceChanged
from applier.plan.nodes import StreamPlan
from applier.plan.stream_table import PostgresQuery, StreamTable
from applier.refresh.captured_sources import CapturedSources
from applier.refresh.evolution import Recompute, Replan, Suspend, Transparent, Verdict, judge
from applier.refresh.plan_stream_table import StreamTablePlanner, text_digest
from applier.refresh.plans import StreamTablePlans
from applier.refresh.server_history import ServerHistory
from applier.refresh.stream_tables import RefusedRow
from shared_schema.commits import SessionAtWork, find_commits
from shared_schema.dependency_facts import DependencyFacts, read_facts
from shared_schema.errors import TrickleError
from shared_schema.lsn import ORIGIN, Lsn

log = logging.getLogger(__name__)

NOTHING = read_facts({})


@dataclass
class Vouch:
    """Compares what stream tables rest on with the present, once per tick."""

    catalog: Catalog
    planner: StreamTablePlanner
    plans: StreamTablePlans
    sources: CapturedSources
    history: ServerHistory | None = None
    """Whether the server still has what was published from it."""
    _facts: dict[int, DependencyFacts] | None = None
    """The facts that each stream table was planned with."""
    _tables: dict[int, StreamTable] = field(default_factory=dict)
    """The plans whose facts those are."""
    _look: tuple[ObjectIds, str] | None = None
    """The objects of the last look, and the digest that was found."""
    _present: DependencyFacts = NOTHING
    _compared: set[int] = field(default_factory=set)
    """The stream tables that were compared with `_present` and found unchanged."""
    _committing: list[SessionAtWork] = field(default_factory=list)
    _frontier: Lsn = ORIGIN
    has_waiting: bool = False
    """Whether a stream table waits for a commit that is under way: it ends soon."""

    @property
    def is_unsettled(self) -> bool:
        """Whether a commit is under way that may alter something, or the server lacks published changes."""
        return bool(self._committing) or self.has_lost_history

    @property
    def has_lost_history(self) -> bool:
        """Whether the server lacks published changes: then nothing that was computed from them is written."""
        return self.history is not None and self.history.loss is not None

    def look(self, frontier: Lsn) -> None:
        """Look at the sessions and at the catalog, in this order; rows are complete up to the frontier."""
        self._frontier, self.has_waiting = frontier, False
        if self.history is not None:
            self.history.look(frontier)
            if self.has_lost_history:
                # The catalog is an older one: everything is read again when the topics have its history.
                self._facts, self._look, self._present = None, None, NOTHING
                self._tables.clear()
                self._committing = []
                return
        store = self.catalog.dependencies
        self.sources.begin()
        if self._facts is None:
            self._facts = store.load()
        ids = ids_of(self._facts.values())
        self._committing = find_commits(store.sessions_at_work, ids.all)
        found = ids, store.digest(ids)
        if found != self._look:
            self._present, self._look = store.read(ids), found
            self._compared.clear()
            self.sources.compare(self._present)

    def admit(self, rows: Sequence[StreamTableRow]) -> tuple[list[StreamTableRow], list[RefusedRow]]:
        """Return the stream tables that may be planned and refreshed now, and those that cannot go on with the error.

        What changed is followed here: with a new plan at once, or by a request to compute the whole.
        """
        if self.history is not None:
            self.history.check(rows)
            if self.has_lost_history:
                return [], self._refuse_all(self.history, rows)
        admitted: list[StreamTableRow] = []
        refused: list[RefusedRow] = []
        for row in rows:
            try:
                if not row.in_service or self._may_go_on(row):
                    admitted.append(row)
            except TrickleError as error:
                if error.retryable:
                    raise
                refused.append((row, error))
        self._forget({row.pgt_id for row in rows})
        return admitted, refused

    @staticmethod
    def _refuse_all(history: ServerHistory, rows: Sequence[StreamTableRow]) -> list[RefusedRow]:
        """Refuse every stream table in service; those that are to be computed as a whole wait for the new history."""
        error = history.refusal()
        return [(row, error) for row in rows if error is not None and row.in_service and not row.reinitializes]

    def vouches(self, row: StreamTableRow, table: StreamTable) -> bool:
        """Whether the plan and the rows that it reads are those of the frontier; a new plan's facts are stored."""
        facts = table.facts or NOTHING
        if self._tables.get(table.id) is not table and not self._accept(row, table, facts):
            return False
        objects = ids_of([facts]).all
        if any(session.concerns(objects) for session in self._committing):
            self.has_waiting = True
            return False
        return self.sources.are_current(facts, self._frontier)

    def _may_go_on(self, row: StreamTableRow) -> bool:
        stored = self._stored(row)
        if stored is None:
            return True
        self._check_publications(stored)
        if row.pgt_id in self._compared:
            return True
        present = stored.of_now(self._present)
        if row.reinitializes:
            # All of it is computed with the present facts, whatever they are.
            if stored != present:
                self.plans.forget(row.pgt_id)
            return True
        verdict = self._judge(row, stored, present)
        if row.altered and not isinstance(verdict, Transparent):
            # It waits for its new query, which is planned with the present facts.
            return False
        return self._follow(row, stored, present, verdict)

    def _stored(self, row: StreamTableRow) -> DependencyFacts | None:
        """Return the facts that its present query was planned with."""
        stored = (self._facts or {}).get(row.pgt_id)
        return stored if stored is not None and stored.text == text_digest(row.defining_query) else None

    def _check_publications(self, facts: DependencyFacts) -> None:
        for relid in facts.relations:
            if problem := self.sources.problem(relid):
                raise PublicationChanged(
                    f"not all changes of {facts.relations[relid].table} are in the stream: {problem}",
                    hint="put the table back; SELECT pgtrickle.resume_stream_table(name) then copies it again",
                )

    def _judge(self, row: StreamTableRow, stored: DependencyFacts, present: DependencyFacts) -> Verdict:
        if stored == present:
            return Transparent()
        gone = [
            fact.table
            for relid, fact in stored.relations.items()
            if relid not in present.relations or present.relations[relid].table != fact.table
        ]
        owners = self.catalog.dependencies.owners(gone) if gone else {}
        return judge(stored, present, owners, row.table)

    def _follow(self, row: StreamTableRow, stored: DependencyFacts, present: DependencyFacts, verdict: Verdict) -> bool:
        """Do what the verdict asks for; return whether the stream table may be refreshed in this tick."""
        match verdict:
            case Transparent():
                self._store(row.pgt_id, stored, present)
                return True
            case Suspend(error=error):
                raise error
            case Replan(renamed=False):
                self._plan_again(row, stored, present, verdict.seen)
                return True
            case Replan():
                self._restate(row, stored, present, verdict.seen, whole=False)
                return False
            case Recompute():
                return self._recompute(row, stored, present, verdict)
            case _:
                assert_never(verdict)

    def _recompute(
        self, row: StreamTableRow, stored: DependencyFacts, present: DependencyFacts, verdict: Recompute
    ) -> bool:
        # What PostgreSQL computes as a whole each time anyway is computed as a whole once more.
        may_evolve = self._is_always_whole(self.plans.tables.get(row.pgt_id)) or (
            self.catalog.dependencies.may_evolve(row.pgt_id)
        )
        if not (verdict.renamed or verdict.relabelled):
            try:
                planned = self.planner(row)
            except TrickleError:
                # A request for the whole accepts replaced functions; everything else is final.
                if not (may_evolve and all("function" in text for text in verdict.seen)):
                    raise
            else:
                if not verdict.rewritten and self._means_the_same(row.pgt_id, planned):
                    self._plan_again(row, stored, present, verdict.seen)
                    return True
        if verdict.changes_rows and not may_evolve:
            raise SourceChanged(
                "; ".join(verdict.seen),
                hint=f"SELECT pgtrickle.reinitialize_stream_table('{row.table}') takes it over; with auto_evolve it is "
                "followed by itself",
            )
        self._restate(row, stored, present, verdict.seen, whole=True, relabelled=verdict.relabelled)
        return False

    def _means_the_same(self, pgt_id: int, planned: StreamTable) -> bool:
        """Whether a new plan leads to the rows of the old one, or its rows are computed as a whole each time anyway."""
        old = self.plans.tables.get(pgt_id)
        if isinstance(planned.plan, PostgresQuery):
            return self._is_always_whole(planned)
        return old is not None and isinstance(old.plan, StreamPlan) and old.plan == planned.plan

    @staticmethod
    def _is_always_whole(table: StreamTable | None) -> bool:
        """Whether PostgreSQL runs the query of a stream table at each refresh, whether its sources changed or not."""
        return table is not None and isinstance(table.plan, PostgresQuery) and not table.plan.is_deterministic

    def _plan_again(
        self, row: StreamTableRow, stored: DependencyFacts, present: DependencyFacts, seen: tuple[str, ...]
    ) -> None:
        log.info("stream table is planned again", extra={"table": str(row.table), "seen": "; ".join(seen)})
        self.plans.forget(row.pgt_id)
        self._store(row.pgt_id, stored, present)

    def _restate(
        self,
        row: StreamTableRow,
        stored: DependencyFacts,
        present: DependencyFacts,
        seen: tuple[str, ...],
        *,
        whole: bool,
        relabelled: bool = False,
    ) -> None:
        """Store the query with the present names, and with `whole` request that all of it is computed."""
        query = self.planner.restate(row, stored, present)
        detail = "; ".join(seen)
        log.info("stream table follows", extra={"table": str(row.table), "seen": detail, "whole": whole})
        self.catalog.dependencies.follow(row.pgt_id, query, detail, whole=whole, relabelled=relabelled)
        self.plans.forget(row.pgt_id)
        self._store(row.pgt_id, stored, present.with_text(text_digest(query)))
        metrics.SCHEMA_EVOLUTIONS.inc()

    def _store(self, pgt_id: int, stored: DependencyFacts, present: DependencyFacts) -> None:
        if stored != present:
            self.catalog.dependencies.store(pgt_id, present)
            self._known[pgt_id] = present
        self._compared.add(pgt_id)

    def _accept(self, row: StreamTableRow, table: StreamTable, facts: DependencyFacts) -> bool:
        """Take over the facts of a new plan, unless they differ from those that the rows were computed with."""
        stored = self._stored(row)
        if stored is not None and row.lsn and not row.reinitializes:
            verdict = self._judge(row, stored, stored.of_now(facts))
            if not isinstance(verdict, Transparent | Replan):
                # Something changed between the look and the planning: the next look sees it.
                self.plans.forget(table.id)
                self.has_waiting = True
                return False
        if stored != facts:
            self.catalog.dependencies.store(table.id, facts)
            self._known[table.id] = facts
            self._compared.discard(table.id)
        self.sources.add(facts)
        self._tables[table.id] = table
        return True

    @property
    def _known(self) -> dict[int, DependencyFacts]:
        if self._facts is None:
            raise AssertionError("the facts are read by the first look")
        return self._facts

    def _forget(self, existing: set[int]) -> None:
        for pgt_id in self._known.keys() - existing:
            del self._known[pgt_id]
            self._tables.pop(pgt_id, None)
