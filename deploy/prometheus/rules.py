"""Rules of Prometheus and the metrics of the programs in; what is wrong with the rules out. A strict part of PromQL.

An expression is made of selectors, ranges, the functions and aggregations below, numbers and binary operators. What is
not in this list is reported, and so is a metric or label that no program has.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from prometheus_client import CollectorRegistry

FUNCTIONS = frozenset({"increase", "rate", "max_over_time", "min_over_time", "absent"})
RANGED = FUNCTIONS - {"absent"}
AGGREGATIONS = frozenset({"sum", "max", "min", "count"})
OF_PROMETHEUS: dict[str, frozenset[str]] = {"up": frozenset()}
LABELS_OF_PROMETHEUS = frozenset({"job", "instance"})
SEVERITIES = frozenset({"info", "warning", "critical"})

_TOKEN = re.compile(
    r"\s*(?:(?P<string>\"[^\"\\]*\")|(?P<range>\[\d+[smhd]\])|(?P<number>\d+(?:\.\d+)?)|(?P<name>[A-Za-z_:][\w:]*)"
    r"|(?P<sign>==|!=|>=|<=|=~|!~|[-+*/<>={}(),]))"
)
_BINARY = frozenset({"==", "!=", ">=", "<=", ">", "<", "+", "-", "*", "/", "and", "or", "unless"})


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


class _Parser:
    def __init__(self, text: str, metrics: Mapping[str, frozenset[str]]) -> None:
        self._tokens = list(_tokenize(text))
        self._at = 0
        self._metrics = metrics

    def parse(self) -> None:
        self._expression()
        if self._at < len(self._tokens):
            raise BadExpression(f"unexpected {self._tokens[self._at][1]}")

    def _next(self) -> tuple[str, str]:
        if self._at == len(self._tokens):
            raise BadExpression("it ends too early")
        self._at += 1
        return self._tokens[self._at - 1]

    def _takes(self, text: str) -> bool:
        if self._at < len(self._tokens) and self._tokens[self._at][1] == text:
            self._at += 1
            return True
        return False

    def _expect(self, text: str) -> None:
        if (found := self._next()[1]) != text:
            raise BadExpression(f"{text} expected, {found} found")

    def _expression(self) -> None:
        self._operand()
        while self._at < len(self._tokens) and self._tokens[self._at][1] in _BINARY:
            self._at += 1
            self._operand()

    def _operand(self) -> None:
        kind, text = self._next()
        if kind == "number":
            return
        if text == "(":
            self._expression()
            self._expect(")")
        elif kind != "name":
            raise BadExpression(f"unexpected {text}")
        elif text in AGGREGATIONS:
            if self._takes("by"):
                self._labels()
            self._expect("(")
            self._expression()
            self._expect(")")
        elif self._takes("("):
            self._call(text)
        elif self._selector(text):
            raise BadExpression(f"the range of {text} is in no function")

    def _call(self, function: str) -> None:
        if function not in FUNCTIONS:
            raise BadExpression(f"unknown function {function}")
        kind, name = self._next()
        if kind != "name":
            raise BadExpression(f"{function} of {name}")
        if self._selector(name) != (function in RANGED):
            raise BadExpression(f"{function} and the range do not fit")
        self._expect(")")

    def _labels(self) -> None:
        self._expect("(")
        while not self._takes(")"):
            name = self._next()[1]
            if not any(name in labels for labels in (*self._metrics.values(), LABELS_OF_PROMETHEUS)):
                raise BadExpression(f"no metric has a label {name}")
            self._takes(",")

    def _selector(self, metric: str) -> bool:
        """Read the matchers and the range of a metric; return whether it has a range."""
        if metric not in self._metrics:
            raise BadExpression(f"no program has a metric {metric}")
        if self._takes("{"):
            while not self._takes("}"):
                name, operator, value = (self._next() for _ in range(3))
                if name[1] not in self._metrics[metric] | LABELS_OF_PROMETHEUS:
                    raise BadExpression(f"{metric} has no label {name[1]}")
                if operator[1] not in ("=", "!=", "=~", "!~") or value[0] != "string":
                    raise BadExpression(f"bad matcher of {name[1]}")
                self._takes(",")
        if self._at < len(self._tokens) and self._tokens[self._at][0] == "range":
            self._at += 1
            return True
        return False


def _tokenize(text: str) -> Iterable[tuple[str, str]]:
    at = 0
    while at < len(text.rstrip()):
        if (found := _TOKEN.match(text, at)) is None or found.lastgroup is None:
            raise BadExpression(f"unknown sign at {text[at : at + 10]!r}")
        yield found.lastgroup, found[found.lastgroup]
        at = found.end()


def check_expression(text: str, metrics: Mapping[str, frozenset[str]]) -> None:
    """Raise BadExpression if an expression cannot be parsed or reads what no program has."""
    _Parser(text, {**OF_PROMETHEUS, **metrics}).parse()


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
