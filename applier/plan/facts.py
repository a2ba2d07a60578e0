"""A plan as JSON for programs: the same nodes and the same words as the text of `explain`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from applier.plan.depth import ExceededThreshold, Thresholds, exceeded_thresholds
from applier.plan.explain import computed_in_full, delta_strategy, describe, explain, summary
from applier.plan.lineage import lineage
from applier.plan.nodes import (
    Aggregate,
    Join,
    Node,
    OuterJoin,
    SemiJoin,
    StreamPlan,
    TopK,
    Window,
    fields,
    inputs,
    row_key,
    scans,
    walk,
)

CHANGES, MATCHES, TOUCHED, WHOLE = "changes", "matches", "touched_keys", "whole_input"
"""What a refresh costs, from cheap to dear: as much as changed; as much as changed and what it joins with; as much as
all rows that share a key with what changed; as much as there is."""

_ORDER = (CHANGES, MATCHES, TOUCHED, WHOLE)


def complexity(node: Node, kept: Sequence[Node]) -> str:
    """What one node's share of a refresh grows with."""
    if computed_in_full(node, kept) is not None:
        return WHOLE
    match node:
        case Join():
            return MATCHES
        case OuterJoin() | SemiJoin() | Aggregate() | TopK() | Window():
            return TOUCHED
        case _:
            return CHANGES


def plan_facts(plan: StreamPlan, thresholds: Thresholds, kept: Sequence[Node]) -> dict[str, Any]:
    """Everything the text says, and the lineage of the columns."""
    beyond = exceeded_thresholds(plan, thresholds)
    key = row_key(plan.root)
    origins = lineage(plan.root)
    columns = zip(plan.names, fields(plan.root), origins, strict=True)
    read: dict[str, dict[str, None]] = {}
    for scan in scans(plan.root):
        read.setdefault(str(scan.table), {}).update(dict.fromkeys(scan.columns))
    reasons = [(node, computed_in_full(node, kept)) for node in walk(plan.root)]
    in_full = [_in_full(node, reason) for node, reason in reasons if reason is not None]
    return {
        "columns": [
            {
                "name": name,
                "type": field.type.pg.display,
                "made_of": sorted([t.schema, t.name, column] for t, column in origin),
            }
            for name, field, origin in columns
        ],
        "row_key": None if key is None else [plan.names[i] for i in key],
        "reads": [{"table": table, "columns": list(names)} for table, names in read.items()],
        "complexity": max((complexity(node, kept) for node in walk(plan.root)), key=_ORDER.index),
        "in_full": in_full,
        "crossed": [asdict(one) for one in beyond],
        "suggestions": _suggestions(plan, in_full, beyond),
        "keeps": [describe(node) for node in kept],
        "plan": _tree(plan.root, kept),
        "text": explain(plan) + summary(plan, kept),
    }


def facts_without_plan(refusal: str) -> dict[str, Any]:
    """The same of a query that PostgreSQL runs itself."""
    return {
        "complexity": WHOLE,
        "in_full": [{"node": "the query", "reason": refusal, "code": "run_by_postgres"}],
        "suggestions": ["rewrite what cannot be followed, and only the changes are computed"],
        "text": f"PostgreSQL runs the query itself, in full: {refusal}\n",
    }


def _in_full(node: Node, reason: str) -> dict[str, str]:
    code = re.search(r"\[(\w+)\]", reason)
    return {"node": describe(node), "reason": reason, "code": code[1] if code else ""}


def _suggestions(plan: StreamPlan, in_full: list[dict[str, str]], beyond: list[ExceededThreshold]) -> list[str]:
    found = [f"{one.threshold} is {one.limit}, here it is {one.value}: {one.suggestion}" for one in beyond]
    found += [f"{found['node']}: {found['reason'].rpartition('; ')[2]}" for found in in_full]
    if row_key(plan.root) is None:
        found.append("select the columns of a key: equal rows have to be counted without one")
    return list(dict.fromkeys(found))


def _tree(node: Node, kept: Sequence[Node]) -> dict[str, Any]:
    return {
        "operator": type(node).__name__,
        "describe": describe(node),
        "delta": delta_strategy(node),
        "complexity": complexity(node, kept),
        "row_key": row_key(node),
        "inputs": [_tree(child, kept) for child in inputs(node)],
    }
