"""The refreshes that are due, with deadlines and predicted costs, in; those of this tick, in their order, out. Pure.

Earliest deadline first, where the deadline is when a refresh must start: what takes longer starts earlier. If not all
of them fit into the tick, hot ones go first, and who has waited CYCLES_AT_MOST ticks goes before all others. What takes
longer than a tick runs beside the ticks, where the colder ones leave a place for hot ones. And since nothing that has
begun is put off, colder ones only begin where they end before a hotter one must start.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from applier.refresh.timing.tiers import Tier

TICK_BUDGET_MS = 2_000.0
"""How long the refreshes of one tick take by prediction, where there are more of them to do."""

SHARE_OF_SLA = 0.2
"""A tick takes at most this share of the shortest SLA: who is due meanwhile waits for its end, and for the next one."""

LEAST_BUDGET_MS = 250.0
"""A tick costs something itself."""

WARNS_AT = 0.9
"""The share of an SLA from which on somebody is told: a refresh in time is visible before it (`tiers.USABLE`)."""

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
    """What it adds to the tick by prediction: 0 for what runs beside the ticks."""
    waited: int = 0
    """Ticks that it has given way to others."""
    reads: frozenset[int] = frozenset()
    """The stream tables that it reads: where they are due too, they go with it."""
    is_requested: bool = False
    """Whether somebody waits for it."""
    runs_beside: bool = False
    """Whether it is computed beside the ticks."""

    @property
    def is_starved(self) -> bool:
        """Whether it has given way for so long that nobody goes before it any more."""
        return self.waited >= CYCLES_AT_MOST


def order(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Return the candidates in the order in which they get their place in a tick."""
    return sorted(candidates, key=_urgency)


def _urgency(candidate: Candidate) -> tuple[bool, int, int, float, int]:
    starved = candidate.waited if candidate.is_starved else 0
    rank = 0 if candidate.is_requested else _RANK[candidate.tier]
    return not candidate.is_requested, -starved, rank, candidate.start_in_s, candidate.table_id


def choose(
    candidates: Sequence[Candidate],
    capacity_ms: float,
    places: float = inf,
    slack_ms: Mapping[Tier, float] | None = None,
) -> list[int]:
    """Return the stream tables to refresh in this tick, what they read before them: all where they fit, else the most
    urgent ones. Of those beside the ticks, hot ones go whenever they are due and the others while there are `places`.
    Those of a tier together cost no more than its slack, by which they may delay the hotter ones.

    The most urgent one that has slack or has waited long goes whatever it costs, so that everybody's turn comes.
    """
    slack_ms = slack_ms or {}
    due = {candidate.table_id: candidate for candidate in candidates}
    readers = _find_equal_readers(due)
    chosen: dict[int, None] = {}
    left_ms, colder_ms, is_first = capacity_ms, 0.0, True
    for candidate in order(candidates):
        if candidate.table_id in chosen:
            continue
        family = _find_family(candidate, due, readers, chosen)
        cost_ms = sum(due[table_id].cost_ms for table_id in family)
        beside = sum(due[table_id].runs_beside for table_id in family)
        has_place = not beside or places > 0 or candidate.tier is Tier.HOT
        in_time = candidate.is_starved or colder_ms + cost_ms <= slack_ms.get(candidate.tier, inf)
        if candidate.is_requested or (has_place and in_time and (is_first or cost_ms <= left_ms)):
            is_first = is_first and candidate.is_requested
            chosen |= dict.fromkeys(family)
            left_ms -= cost_ms
            colder_ms += 0.0 if candidate.tier is Tier.HOT else cost_ms
            places -= beside
    return list(chosen)


def _find_equal_readers(due: Mapping[int, Candidate]) -> dict[int, list[int]]:
    """Return per stream table those of its own tier that read it: what is refreshed as often stays at one frontier."""
    readers: dict[int, list[int]] = {}
    for candidate in due.values():
        for read in candidate.reads:
            if read in due and due[read].tier is candidate.tier:
                readers.setdefault(read, []).append(candidate.table_id)
    return readers


def _find_family(
    candidate: Candidate, due: Mapping[int, Candidate], readers: Mapping[int, list[int]], chosen: Container[int]
) -> list[int]:
    """Return what goes with a stream table: those that it reads and its equal readers, if they are due and not chosen.

    Each is placed after those that it reads.
    """
    family, left = {candidate.table_id}, [candidate.table_id]
    while left:
        table_id = left.pop()
        for other in (*due[table_id].reads, *readers.get(table_id, ())):
            if other in due and other not in family and other not in chosen:
                family.add(other)
                left.append(other)
    ordered: dict[int, None] = {}

    def place(table_id: int, visited: set[int]) -> None:
        if table_id not in visited:
            visited.add(table_id)
            for read in sorted(due[table_id].reads & family):
                place(read, visited)
            ordered[table_id] = None

    visited: set[int] = set()
    for table_id in sorted(family):
        place(table_id, visited)
    return list(ordered)


def slack_of_tiers(starts: Iterable[tuple[Tier, float]]) -> dict[Tier, float]:
    """Return how many seconds the refreshes of each tier may delay the hotter ones, for the seconds until those must
    start; none once that has passed."""
    slack: dict[Tier, float] = {}
    for tier, start_in_s in starts:
        for colder in (Tier.WARM, Tier.COLD):
            if _RANK[colder] > _RANK[tier]:
                slack[colder] = min(slack.get(colder, inf), max(start_in_s, 0.0))
    return slack


def tick_budget_ms(slas_ms: Iterable[float]) -> float:
    """Return how long the refreshes of one tick may take, for stream tables with these SLAs."""
    return max(LEAST_BUDGET_MS, min([TICK_BUDGET_MS, *(sla_ms * SHARE_OF_SLA for sla_ms in slas_ms)]))


def will_break(sla_ms: float, age_ms: float, remaining_ms: float) -> bool:
    """Whether rows will be older than the SLA, or nearly so, when the refresh that is due can be visible."""
    return age_ms + remaining_ms > sla_ms * WARNS_AT
