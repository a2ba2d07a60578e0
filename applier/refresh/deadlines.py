"""The refreshes that are due, with deadlines and predicted costs, in; those of this tick, in their order, out. Pure.

Earliest deadline first, where the deadline is when a refresh must start: what takes longer starts earlier. If not all
of them fit into the tick, hot ones go first, and who has waited CYCLES_AT_MOST ticks goes before all others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from applier.refresh.tiers import Tier

TICK_BUDGET_MS = 2_000.0
"""How long the refreshes of one tick take by prediction, where there are more of them to do."""

CYCLES_AT_MOST = 5
"""Ticks that a refresh gives way to hotter ones."""

_RANK = {Tier.HOT: 0, Tier.WARM: 1, Tier.COLD: 2, Tier.FROZEN: 3}


@dataclass(frozen=True, slots=True)
class Candidate:
    """A refresh that is due."""

    table_id: int
    tier: Tier
    start_in_s: float
    """Seconds until it must start at the latest; negative when that has passed."""
    cost_ms: float
    """What it adds to the tick by prediction: 0 when nobody knows, and for what runs beside the ticks."""
    waited: int = 0
    """Ticks that it has given way to others."""
    reads: frozenset[int] = frozenset()
    """The stream tables that it reads: where they are due too, they go with it."""
    is_requested: bool = False
    """Whether somebody waits for it."""


def order(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Return the candidates in the order in which they get their place in a tick."""
    return sorted(candidates, key=_urgency)


def _urgency(candidate: Candidate) -> tuple[bool, int, int, float, int]:
    starved = candidate.waited if candidate.waited >= CYCLES_AT_MOST else 0
    rank = 0 if candidate.is_requested else _RANK[candidate.tier]
    return not candidate.is_requested, -starved, rank, candidate.start_in_s, candidate.table_id


def choose(candidates: Sequence[Candidate], capacity_ms: float) -> list[int]:
    """Return the stream tables to refresh in this tick: all where they fit, else the most urgent ones.

    The most urgent one is always among them, so that everybody's turn comes. A stream table never goes before those
    that it reads.
    """
    if sum(candidate.cost_ms for candidate in candidates) <= capacity_ms:
        return [candidate.table_id for candidate in order(candidates)]
    due = {candidate.table_id: candidate for candidate in candidates}
    chosen: dict[int, None] = {}
    left_ms = capacity_ms
    for candidate in order(candidates):
        family = [table_id for table_id in _with_parents(candidate, due) if table_id not in chosen]
        cost_ms = sum(due[table_id].cost_ms for table_id in family)
        if not chosen or candidate.is_requested or cost_ms <= left_ms:
            chosen |= dict.fromkeys(family)
            left_ms -= cost_ms
    return list(chosen)


def _with_parents(candidate: Candidate, due: Mapping[int, Candidate]) -> list[int]:
    """Return a stream table after all those that it reads and that are due, directly or through others."""
    found: dict[int, None] = {}

    def visit(table_id: int, path: frozenset[int]) -> None:
        for read in sorted(due[table_id].reads & due.keys() - path):
            visit(read, path | {read})
        found[table_id] = None

    visit(candidate.table_id, frozenset({candidate.table_id}))
    return list(found)


def will_break(sla_ms: float, age_ms: float, remaining_ms: float) -> bool:
    """Whether an SLA that is still kept will be broken before the refresh that is due can be visible."""
    return age_ms <= sla_ms < age_ms + remaining_ms
