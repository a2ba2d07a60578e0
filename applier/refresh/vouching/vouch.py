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
from applier.errors import PublicationChanged, SourceBusy, SourceChanged
from applier.plan.nodes import StreamPlan
from applier.plan.stream_table import PostgresQuery, StreamTable
from applier.refresh.method.refresh import Refresh
from applier.refresh.method.strategy import RefreshMethod
from applier.refresh.planning.plan_stream_table import StreamTablePlanner, text_digest
from applier.refresh.planning.plans import StreamTablePlans
from applier.refresh.stream_tables import RefusedRow
from applier.refresh.vouching.captured_sources import CapturedSources
from applier.refresh.vouching.evolution import Recompute, Replan, Suspend, Transparent, Verdict, judge
from applier.refresh.vouching.server_history import ServerHistory
from applier.unexpected import to_own_error
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
    _ids: tuple[list[DependencyFacts], ObjectIds] = ([], ids_of([]))
    """The facts of the last look, and their objects."""
    _altered: set[int] = field(default_factory=set)
    """The stream tables whose query is about to be another one."""
    _frontier: Lsn = ORIGIN
    _begun: dict[int, str] = field(default_factory=dict)
    """The digest of what each query rested on when PostgreSQL began to run it."""
    has_waiting: bool = False
    """Whether a stream table waits for a commit that is under way: it ends soon."""

    @property
    def is_unsettled(self) -> bool:
        """Whether a commit is under way that may alter something, or the server lacks published changes."""
        known = self._ids[1].all
        return self.has_lost_history or any(session.concerns(known) for session in self._committing)

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
        ids = self._find_objects()
        self._committing = find_commits(store.sessions_at_work, self._committing)
        found = ids, store.digest(ids)
        if found != self._look:
            self._look, self._present = None, store.read(ids)
            self._compared.clear()
            self.sources.compare(self._present)
            # Only now: a comparison that failed is made again.
            self._look = found

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
        self._altered = self._find_altered(rows)
        for row in rows:
            try:
                if not row.in_service or self._may_go_on(row):
                    admitted.append(row)
            except SourceBusy:
                self.has_waiting = True
            except Exception as error:
                own = to_own_error(row.table, error)
                if self._is_look_outdated():
                    # Its cause may be mended, and the stream table resumed, since then: the next look tells.
                    self.has_waiting = True
                else:
                    refused.append((row, own))
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
        # Those that were stored may be of other relations.
        self._check_publications(facts)
        if self._committing:
            objects = ids_of([facts]).all
            if any(session.concerns(objects) for session in self._committing):
                self.has_waiting = True
                return False
        return self.sources.are_current(facts, self._frontier)

    def begin(self, refreshes: Sequence[Refresh]) -> None:
        """Note what the queries rest on that PostgreSQL is about to run.

        It reads them at a position after the frontier, with the catalog of that moment.
        """
        for refresh in refreshes:
            if refresh.strategy.method is RefreshMethod.IN_POSTGRES:
                objects = ids_of([refresh.table.facts or NOTHING])
                self._begun[refresh.table.id] = self.catalog.dependencies.digest(objects)

    def confirms(self, refresh: Refresh) -> bool:
        """Whether the rows of a finished refresh may be shown at their position; the last look was after its end.

        A query that PostgreSQL ran is not, unless nothing that it rests on was altered from its planning until now. It
        is run again, or suspended.
        """
        if self.has_lost_history:
            return False
        if refresh.strategy.method is not RefreshMethod.IN_POSTGRES:
            return True
        facts = refresh.table.facts or NOTHING
        objects = ids_of([facts])
        if (
            isinstance(self._judge(refresh.row, facts, facts.of_now(self._present)), Transparent)
            and not any(session.concerns(objects.all) for session in self._committing)
            and self.catalog.dependencies.digest(objects) == self._begun.get(refresh.table.id)
        ):
            return True
        log.info("what a query reads was altered while it ran", extra={"table": str(refresh.table)})
        self.has_waiting = True
        return False

    def _find_objects(self) -> ObjectIds:
        """Return the objects of all facts: those that are stored, and those of plans that are not accepted yet."""
        planned = (table.facts for table in self.plans.tables.values())
        facts = [*self._known.values(), *(fact for fact in planned if fact is not None)]
        before, ids = self._ids
        if len(before) != len(facts) or any(one is not other for one, other in zip(before, facts, strict=True)):
            ids = ids_of(facts)
            self._ids = facts, ids
        return ids

    def _may_go_on(self, row: StreamTableRow) -> bool:
        if self.plans.has_own_rows(row.pgt_id):
            # Altered in this tick: its facts are those of the new query.
            return True
        stored = self._stored(row)
        if stored is None:
            return True
        self._check_publications(stored)
        if row.pgt_id in self._compared:
            return True
        present = stored.of_now(self._present)
        if row.reinitializes:
            self._keep_plan_if_same(row, stored)
            return True
        verdict = self._judge(row, stored, present)
        if row.pgt_id in self._altered and not isinstance(verdict, Transparent):
            # It waits for the new query, which is planned with the present facts.
            return False
        return self._follow(row, stored, present, verdict)

    def _is_look_outdated(self) -> bool:
        """Whether something was altered since the last look."""
        return self._look is not None and self.catalog.dependencies.read(self._look[0]) != self._present

    def _find_altered(self, rows: Sequence[StreamTableRow]) -> set[int]:
        """Return the stream tables with a new query that waits to be adopted, and those that read them."""
        altered = {row.pgt_id: row for row in rows if row.altered}
        readers = (self.catalog.stream_tables.readers(row.pgt_relid) for row in altered.values())
        return altered.keys() | {pgt_id for found in readers for pgt_id in found}

    def _stored(self, row: StreamTableRow) -> DependencyFacts | None:
        """Return the facts that its rows were computed with; None when its rows are to be those of another query."""
        stored, text = (self._facts or {}).get(row.pgt_id), text_digest(row.defining_query)
        if stored is not None and stored.text != text:
            # It was altered, and the commit was in doubt: then these are stored too.
            stored = self.catalog.dependencies.load_one(row.pgt_id) or stored
            self._known[row.pgt_id] = stored
        if stored is None or stored.text == text:
            return stored
        # Another text of the same query: what it reads has other names. Analysed again on request, it may read others.
        return None if row.reinitializes else stored

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
                return self._plan_again(row, stored, present, verdict)
            case Replan():
                if self.planner.restate(row, stored, present) == row.defining_query:
                    return self._plan_again(row, stored, present, verdict)
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
                if not (may_evolve and verdict.only_functions):
                    raise
            else:
                if not verdict.rewritten and self._means_the_same(row.pgt_id, planned):
                    return self._use_plan(row, stored, planned, verdict.seen)
        if verdict.changes_rows and not may_evolve:
            raise SourceChanged(
                "; ".join(verdict.seen),
                hint=f"SELECT pgtrickle.reinitialize_stream_table('{row.table}') takes it over; with auto_evolve it is "
                "followed by itself",
            )
        self.sources.copy_again(verdict.retyped)
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

    def _keep_plan_if_same(self, row: StreamTableRow, stored: DependencyFacts) -> None:
        """Forget the plan of a stream table that is computed as a whole, if it is not that of the present facts.

        What changes no plan, such as a TRUNCATE, must not begin a long computation again.
        """
        table = self.plans.tables.get(row.pgt_id)
        facts = stored if table is None or table.facts is None else table.facts
        if not isinstance(self._judge(row, facts, facts.of_now(self._present)), Transparent):
            self.plans.forget(row.pgt_id)

    def _plan_again(
        self, row: StreamTableRow, stored: DependencyFacts, present: DependencyFacts, verdict: Replan
    ) -> bool:
        """Plan a stream table whose rows are right; with another key all of it is computed, which fits its index."""
        old, planned = self.plans.tables.get(row.pgt_id), self.planner(row)
        if old is not None and old.key != planned.key:
            self._restate(row, stored, present, verdict.seen, whole=True)
            return False
        return self._use_plan(row, stored, planned, verdict.seen if verdict.is_noted else ())

    def _use_plan(
        self, row: StreamTableRow, stored: DependencyFacts, planned: StreamTable, seen: tuple[str, ...]
    ) -> bool:
        """Go on with a new plan that leads to the rows of the old one; what was `seen` is in the history.

        Not if something changed between the look and the planning: the next look sees it.
        """
        facts = planned.facts or NOTHING
        if not facts.agrees_with(self._present):
            self.has_waiting = True
            return False
        log.info("stream table is planned again", extra={"table": str(row.table), "seen": "; ".join(seen)})
        self.plans.adopt(row, planned)
        self._store(row.pgt_id, stored, facts, seen)
        if seen:
            metrics.SCHEMA_EVOLUTIONS.inc()
        return True

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
        detail, facts = "; ".join(seen), present.with_text(text_digest(query))
        log.info("stream table follows", extra={"table": str(row.table), "seen": detail, "whole": whole})
        self.catalog.dependencies.follow(row.pgt_id, query, detail, facts, whole=whole, relabelled=relabelled)
        self.plans.forget(row.pgt_id)
        self._known[row.pgt_id] = facts
        self._compared.add(row.pgt_id)
        metrics.SCHEMA_EVOLUTIONS.inc()

    def _store(
        self, pgt_id: int, stored: DependencyFacts, present: DependencyFacts, followed: tuple[str, ...] = ()
    ) -> None:
        if stored != present:
            self.catalog.dependencies.store(pgt_id, present, "; ".join(followed))
            self._known[pgt_id] = present
        self._compared.add(pgt_id)

    def _accept(self, row: StreamTableRow, table: StreamTable, facts: DependencyFacts) -> bool:
        """Take over the facts of a new plan, unless they differ from those that the rows were computed with."""
        stored, followed = self._stored(row), ""
        is_judged = row.reinitializes or self.plans.has_own_rows(table.id)
        if stored is not None and row.lsn and not is_judged:
            verdict = self._judge(row, stored, stored.of_now(facts))
            if not isinstance(verdict, Transparent | Replan):
                # Something changed between the look and the planning: the next look sees it.
                self.plans.forget(table.id)
                self.has_waiting = True
                return False
            if isinstance(verdict, Replan) and verdict.is_noted:
                followed = "; ".join(verdict.seen)
        if stored != facts:
            self.catalog.dependencies.store(table.id, facts, followed)
            self._known[table.id] = facts
            self._compared.discard(table.id)
        self.sources.add(facts)
        self._tables[table.id] = table
        self.plans.take_note(table.id)
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
            self._begun.pop(pgt_id, None)
