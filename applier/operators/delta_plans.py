"""Holds the plans of the deltas of one stream table, so that later LSN ranges use them again.

A plan is used again where every question that was asked while it was made has the same answer: the same relations
changed, the same state exists, and the inputs of each join have the same order of size. The text is then written too,
except for the names of what it reads.
"""

from __future__ import annotations

from dataclasses import dataclass

from applier.operators.execute import WrittenPlan
from applier.operators.planner import plan_delta
from applier.operators.statistics import Fact, Statistics
from applier.plan.nodes import Node

MAX_PLANS = 8
"""Most plans of one node: a stream table has about one for each relation that changes alone, and few for several."""


@dataclass(frozen=True, slots=True)
class _PlanEntry:
    node: Node
    empty: frozenset[Node]
    facts: tuple[Fact, ...]
    plan: WrittenPlan | None


class DeltaPlans:
    """The plans of some nodes; those that were used last are kept. Used by one thread at a time."""

    def __init__(self) -> None:
        self._entries: dict[int, list[_PlanEntry]] = {}
        """By the identity of the node, the last used first."""

    def plan(self, node: Node, statistics: Statistics) -> WrittenPlan | None:
        """Return the plan of the node's delta over an LSN range; None when the delta is proven empty."""
        entries = self._entries.setdefault(id(node), [])
        for place, entry in enumerate(entries):
            if entry.empty == statistics.empty and statistics.agree_with(entry.facts):
                if place:
                    entries.insert(0, entries.pop(place))
                return entry.plan
        planned, facts = plan_delta(node, statistics)
        written = None if planned is None else WrittenPlan(planned)
        entries.insert(0, _PlanEntry(node, statistics.empty, facts, written))
        del entries[MAX_PLANS:]
        return written
