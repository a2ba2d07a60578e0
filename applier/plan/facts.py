"""A plan as JSON for programs: the same nodes and the same words as the text of `explain`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from applier.plan.depth import ExceededThreshold, Thresholds, exceeded_thresholds
from applier.plan.explain import computed_in_full, delta_strategy, describe, explain, named_nodes_of, summary
from applier.plan.keys import row_key
from applier.plan.lineage import lineage
from applier.plan.naming import NamedNode, name_columns
from applier.plan.nodes import Aggregate, Join, Node, OuterJoin, SemiJoin, StreamPlan, TopK, Window, fields, scans, walk

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


def report(plan: StreamPlan, kept: Sequence[Node]) -> str:
    """The text for people: the plan, and what it takes to maintain it."""
    read = dict.fromkeys(part for node in walk(plan.root) for part in _read(node, kept))
    return f"{explain(plan, kept)}{summary(plan, kept)}a refresh reads: {', '.join(['the rows that changed', *read])}\n"


def _read(node: Node, kept: Sequence[Node]) -> Iterator[str]:
    """What a refresh reads for a node besides what changed."""
    if computed_in_full(node, kept) is not None:
        yield "the whole input of what is recomputed in full"
        return
    match node:
        case Join():
            yield "their matches by join key"
        case OuterJoin():
            yield from ("their matches by join key", "the rows of affected join keys")
        case SemiJoin():
            yield "the rows of affected join keys"
        case Aggregate() if node not in kept:
            yield "the rows of affected groups"
        case TopK() | Window() if node not in kept:
            yield "the rows of affected partitions"
        case _:
            return


def _dearest(plan: StreamPlan, kept: Sequence[Node]) -> str:
    return max((complexity(node, kept) for node in walk(plan.root)), key=_ORDER.index)


def plan_facts(plan: StreamPlan, thresholds: Thresholds, kept: Sequence[Node]) -> dict[str, Any]:
    """Everything the text says, and the lineage of the columns."""
    beyond = exceeded_thresholds(plan, thresholds)
    key = row_key(plan.root)
    origins = lineage(plan.root)
    columns = zip(plan.names, fields(plan.root), origins, strict=True)
    read: dict[str, dict[str, None]] = {}
    for scan in scans(plan.root):
        read.setdefault(str(scan.table), {}).update(dict.fromkeys(scan.columns))
    shown = name_columns(plan)
    reasons = [(found, computed_in_full(found.node, kept)) for found in shown.walk()]
    in_full = [_in_full(found, reason) for found, reason in reasons if reason is not None]
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
        "complexity": _dearest(plan, kept),
        "in_full": in_full,
        "crossed": [asdict(one) for one in beyond],
        "suggestions": _suggestions(plan, in_full, beyond),
        "keeps": [describe(found) for found in named_nodes_of(shown, kept)],
        "plan": _tree(shown, kept),
        "text": report(plan, kept),
    }


def facts_without_plan(refusal: str) -> dict[str, Any]:
    """The same of a query that PostgreSQL runs itself."""
    return {
        "complexity": WHOLE,
        "in_full": [{"node": "the query", "reason": refusal, "code": "run_by_postgres"}],
        "suggestions": ["rewrite what cannot be maintained incrementally, and only the changes are computed"],
        "text": f"PostgreSQL runs the query itself, in full: {refusal}\n",
    }


def _in_full(shown: NamedNode, reason: str) -> dict[str, str]:
    code = re.search(r"\[(\w+)\]", reason)
    return {"node": describe(shown), "reason": reason, "code": code[1] if code else ""}


def _suggestions(plan: StreamPlan, in_full: list[dict[str, str]], beyond: list[ExceededThreshold]) -> list[str]:
    found = [f"{one.threshold} is {one.limit}, here it is {one.value}: {one.suggestion}" for one in beyond]
    found += [f"{found['node']}: {found['reason'].rpartition('; ')[2]}" for found in in_full]
    if row_key(plan.root) is None:
        found.append("select the columns of a key: equal rows have to be counted without one")
    return list(dict.fromkeys(found))


def _tree(shown: NamedNode, kept: Sequence[Node]) -> dict[str, Any]:
    return {
        "operator": type(shown.node).__name__,
        "describe": describe(shown),
        "delta": delta_strategy(shown, kept),
        "complexity": complexity(shown.node, kept),
        "row_key": row_key(shown.node),
        "inputs": [_tree(below, kept) for below in shown.inputs],
    }
