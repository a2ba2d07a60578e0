"""The captured tables and their traces: whether the rows of each trace are those of the table up to a frontier.

A trace is wrong when the rows of its table changed without change rows in the log: a column was rewritten, another one
has its name, a label of an enum has another one. Then the table is copied again, and its readers wait for the copy.
While the publications leave changes out, no copy helps: its readers are suspended.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from applier.arrange.traces import Traces
from applier.catalog.catalog import Catalog
from applier.catalog.dependencies import SourceState
from applier.refresh.holding.readiness import ANY_RELATION
from applier.refresh.vouching.evolution import is_tree_changed
from shared_schema.dependency_facts import DependencyFacts, RelationFact
from shared_schema.lsn import Lsn
from shared_schema.outdated_rows import outdated_rows
from shared_schema.progress import membership_epoch
from shared_schema.table_schema import TableId

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Announced:
    """A partition tree that a message at `at` tells the consumer; it is stored once the frontier has passed it."""

    at: Lsn
    fact: RelationFact
    source: dict[str, Any]


@dataclass
class CapturedSources:
    """Compares the captured tables with what they were like when their traces were last right."""

    catalog: Catalog
    traces: Traces
    sources_elsewhere: bool = False
    _states: dict[int, SourceState] = field(default_factory=dict)
    _announced: dict[int, _Announced] = field(default_factory=dict)
    """Partition trees that the consumer has not followed yet."""
    _latest: dict[int, TableId] = field(default_factory=dict)
    """The name under which each table was captured last."""
    _stopped: Mapping[TableId, str] | None = None
    """The tables that the consumer cannot follow, as they were last stored."""

    def begin(self) -> None:
        """Begin a tick: the traces have what arrived before it."""
        if self._stopped != self.traces.stopped:
            self._stopped = dict(self.traces.stopped)
            self.catalog.dependencies.note_stopped(self._stopped)
        traces = sorted(self.traces, key=lambda trace: trace.captured_at)
        self._latest = {trace.relid: trace.table for trace in traces}

    def compare(self, present: DependencyFacts) -> None:
        """Compare all captured tables with their present facts; request copies where traces are not right."""
        if self.sources_elsewhere:
            return
        self._states = self.catalog.dependencies.sources()
        self.add(present)

    def add(self, present: DependencyFacts) -> None:
        """Compare the captured tables of one plan."""
        if self.sources_elsewhere:
            return
        captured = {
            relid: fact
            for relid, fact in present.relations.items()
            if fact.kind in ("r", "p") and (fact.memberships or fact.publication_problem)
        }
        if captured.keys() - self._states.keys():
            # The creation of a stream table has noted what its sources were like before their copies.
            self._states = self.catalog.dependencies.sources()
        for relid, fact in captured.items():
            self._compare_one(relid, fact, present.source["relations"][str(relid)])

    def copy_again(self, relids: Collection[int]) -> None:
        """Request copies of captured tables that their readers wait for, unless they wait for one already."""
        for relid in relids:
            state = self._states.get(relid)
            if state is not None and state.awaits is None and not self.sources_elsewhere:
                awaits = self.catalog.dependencies.await_recapture(relid)
                self._states[relid] = SourceState(state.fact, state.problem, awaits)
                log.info("source is copied again", extra={"source": str(state.fact.table), "copy": awaits})

    def problem(self, relid: int) -> str | None:
        """Return why the stream does not have all changes of a table."""
        state = self._states.get(relid)
        return state.problem if state is not None else None

    def are_current(self, facts: DependencyFacts, frontier: Lsn) -> bool:
        """Whether the traces of all captured tables are right at the frontier."""
        if self.sources_elsewhere:
            return True
        return all([self._is_current(relid, fact, frontier) for relid, fact in facts.relations.items()])

    def _compare_one(self, relid: int, fact: RelationFact, source: dict[str, Any]) -> None:
        store, state = self.catalog.dependencies, self._states.get(relid)
        if state is None:
            store.note_source(relid, source, fact.publication_problem)
            self._states[relid] = SourceState(fact, fact.publication_problem, None)
            return
        if fact.publication_problem is not None:
            if state.problem != fact.publication_problem:
                store.note_source(relid, source, fact.publication_problem)
                self._states[relid] = SourceState(fact, fact.publication_problem, state.awaits)
            return
        trace = self.traces.get(fact.table)
        known = {column.name for column in trace.columns if column.is_open} if trace is not None else set()
        seen = state.problem or outdated_rows(state.fact, fact, known)
        awaits = state.awaits
        # The new facts are stored last: after a crash before that, the difference is found again.
        if seen is not None:
            awaits = store.await_recapture(relid)
            log.info("source is copied again", extra={"source": str(fact.table), "seen": seen, "copy": awaits})
        if is_tree_changed(state.fact, fact):
            announced = self._announced.get(relid)
            if announced is None or is_tree_changed(announced.fact, fact):
                announced = _Announced(store.announce([relid]), fact, source)
            self._announced[relid] = replace(announced, fact=fact, source=source)
        elif state.fact != fact or state.problem:
            store.note_source(relid, source, None)
        self._states[relid] = SourceState(fact, None, awaits)

    def _is_current(self, relid: int, fact: RelationFact, frontier: Lsn) -> bool:
        state, trace = self._states.get(relid), self.traces.get(fact.table)
        if state is None or trace is None or trace.relid == ANY_RELATION:
            return True
        announced = self._announced.get(relid)
        if announced is not None:
            if announced.at > frontier:
                return False
            self.catalog.dependencies.note_source(relid, announced.source, None)
            del self._announced[relid]
        if self._latest.get(relid, trace.table) != trace.table:
            # It was captured later under another name: its changes are on that topic.
            return False
        if trace.membership and not state.fact.memberships & {
            entry.partition("~")[0] for entry in trace.membership.split(",")
        }:
            # It was removed and added again: the consumer copies it.
            return False
        if state.awaits is None:
            return True
        if membership_epoch(trace.membership) < state.awaits or trace.captured_at >= frontier:
            return False
        self.catalog.dependencies.end_waiting(relid)
        self._states[relid] = SourceState(state.fact, state.problem, None)
        return True
