"""How large a query may be in form: limits for its plan, the text that Spark is given and the time of planning. Pure.

A short query can have a large plan: each outer join reads its inputs again in its text, and each correlated subquery
its outer query. Without limits one such query takes the memory of the whole process.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from applier.errors import QueryTooLarge
from applier.plan.nodes import Node, inputs


@dataclass(frozen=True, slots=True)
class PlanLimits:
    """The limits, by the names of their settings."""

    max_plan_nodes: int = 2_000
    max_plan_text: int = 200_000
    """Characters of the longest text that Spark is given: it needs about half a minute for so many."""
    max_planning_s: float = 30.0


DEFAULT_LIMITS = PlanLimits()


class PlanBudget:
    """What one query may still use; checked inside of the passes, so that a pass ends that would never end."""

    def __init__(self, limits: PlanLimits, clock: Callable[[], float] = time.monotonic) -> None:
        self.limits = limits
        self._clock = clock
        self._ends = clock() + limits.max_planning_s

    def check_time(self) -> None:
        """Raise QueryTooLarge when planning takes too long."""
        if self._clock() > self._ends:
            raise QueryTooLarge(
                f"a query that takes more than {self.limits.max_planning_s:g} s to plan (max_planning_s)", hint=SPLIT
            )

    def check(self, node: Node) -> None:
        """Raise QueryTooLarge when the plan has too many nodes, or planning takes too long."""
        self.check_time()
        most = self.limits.max_plan_nodes
        if not _has_at_most(node, most):
            raise QueryTooLarge(f"a query whose plan has more than {most} nodes (max_plan_nodes)", hint=SPLIT)

    def check_text(self, text: str) -> None:
        """Raise QueryTooLarge when a text is too long for Spark, or planning takes too long."""
        self.check_time()
        if len(text) > self.limits.max_plan_text:
            raise text_too_long(self.limits.max_plan_text)


SPLIT = "create a stream table for a part of it, and read that"


def text_too_long(most: int) -> QueryTooLarge:
    """Return the error for a query whose delta is too long as a text."""
    return QueryTooLarge(
        f"a query whose delta is a text of more than {most} characters (max_plan_text)",
        hint=f"{SPLIT}; an outer join of outer joins doubles or triples the text",
    )


def _has_at_most(node: Node, most: int) -> bool:
    """Whether a plan has at most so many nodes; a part that is used twice counts twice, as everywhere else."""
    found, waiting = 0, [node]
    while waiting:
        found += 1
        if found > most:
            return False
        waiting += inputs(waiting.pop())
    return True
