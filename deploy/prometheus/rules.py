"""Rules of Prometheus and the metrics of the programs in; what is wrong with the rules out.

Whether an expression is PromQL is decided by Prometheus' own grammar (`promql_parser`). A metric or label that no
program has is reported here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import chain
from typing import Any

import promql_parser
from prometheus_client import CollectorRegistry
from promql_parser import (
    AggModifier,
    AggregateExpr,
    BinaryExpr,
    BinModifier,
    Expr,
    MatrixSelector,
    ParenExpr,
    StringLiteral,
    SubqueryExpr,
    VectorSelector,
)

OF_PROMETHEUS: dict[str, frozenset[str]] = {"up": frozenset()}
LABELS_OF_PROMETHEUS = frozenset({"job", "instance"})
SEVERITIES = frozenset({"info", "warning", "critical"})


def read_metrics(registry: CollectorRegistry) -> dict[str, frozenset[str]]:
    """Return the names of the series of a registry, each with its labels."""
    found: dict[str, frozenset[str]] = {}
    # The registry has no public list of its metrics with labels; samples exist only after their first use.
    for collector, names in registry._collector_to_names.items():
        families = list(getattr(collector, "describe", list)())
        labels = getattr(collector, "_labelnames", None)
        if labels is None:
            labels = tuple(name for family in families for name in getattr(family, "_labelnames", ()))
        for name in names:
            found[name] = frozenset(labels) | ({"le"} if name.endswith("_bucket") else frozenset())
    return found


class BadExpression(Exception):
    """Why an expression is refused."""


def check_expression(text: str, metrics: Mapping[str, frozenset[str]]) -> None:
    """Raise BadExpression if Prometheus cannot evaluate an expression, or it reads what no program has."""
    try:
        expression = promql_parser.parse(text)
    except ValueError as error:
        raise BadExpression(str(error)) from error
    known = {**OF_PROMETHEUS, **metrics}
    # Labels of the metrics that are read: only those can be left after an aggregation or be matched on.
    labels = set(LABELS_OF_PROMETHEUS)
    named: list[str] = []

    def visit(part: Expr) -> None:
        match part:
            case VectorSelector():
                labels.update(_check_selector(part, known))
            case AggregateExpr(modifier=AggModifier() as modifier):
                named.extend(modifier.labels)
            case BinaryExpr(modifier=BinModifier() as modifier):
                named.extend(modifier.matching.labels if modifier.matching else [])
                named.extend(modifier.group_labels or [])

    promql_parser.walk(expression, visit)
    if unknown := [name for name in named if name not in labels]:
        raise BadExpression(f"no metric of it has a label {unknown[0]}")
    while isinstance(expression, ParenExpr):
        expression = expression.expr
    if isinstance(expression, MatrixSelector | SubqueryExpr | StringLiteral):
        raise BadExpression("an alert needs a number for each series, not a range or a text")


def _check_selector(selector: VectorSelector, metrics: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """Return the labels of the metric that is read; raise BadExpression for a metric or label that is not there."""
    if selector.name is None or selector.name not in metrics:
        raise BadExpression(f"no program has a metric {selector.name}")
    known = metrics[selector.name] | LABELS_OF_PROMETHEUS
    for matcher in (*selector.matchers.matchers, *chain.from_iterable(selector.matchers.or_matchers)):
        if matcher.name not in known:
            raise BadExpression(f"{selector.name} has no label {matcher.name}")
    return known


def check_rules(document: Mapping[str, Any], metrics: Mapping[str, frozenset[str]]) -> list[str]:
    """Return what is wrong with the rules, one line each."""
    wrong: list[str] = []
    seen: set[str] = set()
    for rule in (rule for group in document["groups"] for rule in group["rules"]):
        name = str(rule.get("alert"))
        if name in seen or unknown_keys(rule):
            wrong.append(f"{name}: twice, or with unknown keys {unknown_keys(rule)}")
        seen.add(name)
        if rule.get("labels", {}).get("severity") not in SEVERITIES or not rule.get("annotations", {}).get("summary"):
            wrong.append(f"{name}: no severity or summary")
        if not re.fullmatch(r"\d+[smhd]", str(rule.get("for", "0s"))):
            wrong.append(f"{name}: bad time")
        try:
            check_expression(str(rule.get("expr", "")), metrics)
        except BadExpression as error:
            wrong.append(f"{name}: {error}")
    return wrong


def unknown_keys(rule: Mapping[str, Any]) -> set[str]:
    """Return the keys of a rule that Prometheus does not know."""
    return set(rule) - {"alert", "expr", "for", "labels", "annotations"}
