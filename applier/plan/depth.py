"""How deep a query is, against the depths at which people want to be told. Pure; nothing is computed differently."""

from __future__ import annotations

from dataclasses import dataclass

from applier.plan.nodes import Join, Node, StreamPlan, scans, walk


@dataclass(frozen=True, slots=True)
class Thresholds:
    """By the names of their settings."""

    deep_join_l0_scan_threshold: int = 4
    """Inputs joined as one product: each that changes costs a term that reads all the others."""
    part3_max_scan_count: int = 5
    """Relations read by the whole query."""


@dataclass(frozen=True, slots=True)
class ExceededThreshold:
    """A threshold that a query is beyond."""

    threshold: str
    limit: int
    value: int
    suggestion: str


def exceeded_thresholds(plan: StreamPlan, thresholds: Thresholds) -> list[ExceededThreshold]:
    """Those that the plan is beyond."""
    product = max((_inputs_of(node) for node in walk(plan.root) if isinstance(node, Join)), default=0)
    read = sum(1 for _ in scans(plan.root))
    found = [
        ExceededThreshold(
            "deep_join_l0_scan_threshold",
            thresholds.deep_join_l0_scan_threshold,
            product,
            "join what changes rarely in a stream table of its own, and that with the rest",
        ),
        ExceededThreshold(
            "part3_max_scan_count",
            thresholds.part3_max_scan_count,
            read,
            "make a part of the query a stream table of its own, and read that",
        ),
    ]
    return [one for one in found if one.value > one.limit]


def _inputs_of(node: Node) -> int:
    return _inputs_of(node.left) + _inputs_of(node.right) if isinstance(node, Join) else 1
