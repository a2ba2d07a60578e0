"""A plan and thresholds -> the thresholds that the plan exceeds, as warnings. Pure; nothing is computed differently."""

from __future__ import annotations

from dataclasses import dataclass

from applier.plan.limits import DEFAULT_LIMITS, PlanLimits
from applier.plan.nodes import Join, Node, StreamPlan, scans, walk


@dataclass(frozen=True, slots=True)
class Thresholds:
    """The thresholds, by the names of their settings."""

    deep_join_l0_scan_threshold: int = 4
    """Inputs that are joined as one product: each one that changes costs a term that reads all the others."""
    part3_max_scan_count: int = 5
    """Relations that the whole query reads."""
    limits: PlanLimits = DEFAULT_LIMITS
    """What is refused, not only reported."""


@dataclass(frozen=True, slots=True)
class ExceededThreshold:
    """A threshold that a query exceeds."""

    threshold: str
    limit: int
    value: int
    suggestion: str


def exceeded_thresholds(plan: StreamPlan, thresholds: Thresholds) -> list[ExceededThreshold]:
    """Return the thresholds that the plan exceeds."""
    joined_inputs = max((_count_inputs(node) for node in walk(plan.root) if isinstance(node, Join)), default=0)
    read = sum(1 for _ in scans(plan.root))
    found = [
        ExceededThreshold(
            "deep_join_l0_scan_threshold",
            thresholds.deep_join_l0_scan_threshold,
            joined_inputs,
            "join the inputs that change rarely in a stream table of their own, and join that with the rest",
        ),
        ExceededThreshold(
            "part3_max_scan_count",
            thresholds.part3_max_scan_count,
            read,
            "move a part of the query into a stream table of its own, and read that",
        ),
    ]
    return [exceeded for exceeded in found if exceeded.value > exceeded.limit]


def _count_inputs(node: Node) -> int:
    return _count_inputs(node.left) + _count_inputs(node.right) if isinstance(node, Join) else 1
