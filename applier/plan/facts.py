"""Turns a plan into JSON for programs, with the same nodes and the same words as the text of `explain`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from applier.plan.depth import ExceededThreshold, Thresholds, exceeded_thresholds
from applier.plan.explain import delta_strategy, describe, explain, full_recompute_reason, named_nodes_of, summarize
from applier.plan.keys import row_key
from applier.plan.lineage import lineage
from applier.plan.naming import NamedNode, name_columns
from applier.plan.nodes import Aggregate, Join, Node, OuterJoin, SemiJoin, StreamPlan, TopK, Window, fields, scans, walk

CHANGES, MATCHES, AFFECTED, WHOLE = "changes", "matches", "touched_keys", "whole_input"
"""What the cost of a refresh grows with, from cheap to expensive: the change rows; the change rows and their join
matches; all rows that share a key with a change row; the whole input."""

_ORDER = (CHANGES, MATCHES, AFFECTED, WHOLE)


def complexity(node: Node, stateful: Sequence[Node]) -> str:
    """Return what the cost of one node in a refresh grows with."""
    if full_recompute_reason(node, stateful) is not None:
        return WHOLE
    match node:
        case Join():
            return MATCHES
        case OuterJoin() | SemiJoin() | Aggregate() | TopK() | Window():
            return AFFECTED
        case _:
            return CHANGES


def report(plan: StreamPlan, stateful: Sequence[Node]) -> str:
    """Return the text for people: the plan and the cost of maintaining it."""
    read = dict.fromkeys(part for node in walk(plan.root) for part in _list_reads(node, stateful))
    reads = ", ".join(["the rows that changed", *read])
    return f"{explain(plan, stateful)}{summarize(plan, stateful)}a refresh reads: {reads}\n"


def _list_reads(node: Node, stateful: Sequence[Node]) -> Iterator[str]:
    """Yield what a refresh reads for a node in addition to the change rows."""
    if full_recompute_reason(node, stateful) is not None:
        yield "the whole input of what is recomputed in full"
        return
    match node:
        case Join():
            yield "their matches by join key"
        case OuterJoin():
            yield from ("their matches by join key", "the rows of affected join keys")
        case SemiJoin():
            yield "the rows of affected join keys"
        case Aggregate() if node not in stateful:
            yield "the rows of affected groups"
        case TopK() | Window() if node not in stateful:
            yield "the rows of affected partitions"
        case _:
            return


def _highest_complexity(plan: StreamPlan, stateful: Sequence[Node]) -> str:
    return max((complexity(node, stateful) for node in walk(plan.root)), key=_ORDER.index)


def plan_facts(plan: StreamPlan, thresholds: Thresholds, stateful: Sequence[Node]) -> dict[str, Any]:
    """Return everything that the text says, and the lineage of the columns."""
    exceeded = exceeded_thresholds(plan, thresholds)
    key = row_key(plan.root)
    origins = lineage(plan.root)
    columns = zip(plan.names, fields(plan.root), origins, strict=True)
    read: dict[str, dict[str, None]] = {}
    for scan in scans(plan.root):
        read.setdefault(str(scan.table), {}).update(dict.fromkeys(scan.columns))
    shown = name_columns(plan)
    reasons = [(found, full_recompute_reason(found.node, stateful)) for found in shown.walk()]
    in_full = [_full_recompute_fact(found, reason) for found, reason in reasons if reason is not None]
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
        "complexity": _highest_complexity(plan, stateful),
        "in_full": in_full,
        "crossed": [asdict(one) for one in exceeded],
        "suggestions": _suggest(plan, in_full, exceeded),
        "keeps": [describe(found) for found in named_nodes_of(shown, stateful)],
        "plan": _node_facts(shown, stateful),
        "text": report(plan, stateful),
    }


def facts_without_plan(refusal: str) -> dict[str, Any]:
    """Return the same facts for a query that PostgreSQL runs itself."""
    return {
        "complexity": WHOLE,
        "in_full": [{"node": "the query", "reason": refusal, "code": "run_by_postgres"}],
        "suggestions": ["rewrite what cannot be maintained incrementally, and only the changes are computed"],
        "text": f"PostgreSQL runs the query itself, in full: {refusal}\n",
    }


def _full_recompute_fact(shown: NamedNode, reason: str) -> dict[str, str]:
    code = re.search(r"\[(\w+)\]", reason)
    return {"node": describe(shown), "reason": reason, "code": code[1] if code else ""}


def _suggest(plan: StreamPlan, in_full: list[dict[str, str]], exceeded: list[ExceededThreshold]) -> list[str]:
    found = [f"{one.threshold} is {one.limit}, here it is {one.value}: {one.suggestion}" for one in exceeded]
    found += [f"{found['node']}: {found['reason'].rpartition('; ')[2]}" for found in in_full]
    if row_key(plan.root) is None:
        found.append("select the columns of a key: equal rows have to be counted without one")
    return list(dict.fromkeys(found))


def _node_facts(shown: NamedNode, stateful: Sequence[Node]) -> dict[str, Any]:
    return {
        "operator": type(shown.node).__name__,
        "describe": describe(shown),
        "delta": delta_strategy(shown, stateful),
        "complexity": complexity(shown.node, stateful),
        "row_key": row_key(shown.node),
        "inputs": [_node_facts(below, stateful) for below in shown.inputs],
    }
