"""Groups that answers are made from, and the answers beside the rows that ask."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from applier.functions.aggregates.aggregates import COUNT
from applier.plan.expr import (
    BOOL,
    AggregateCall,
    BoolOp,
    Call,
    Case,
    Const,
    Expr,
    IsNull,
    Logic,
    columns_read,
    renumber,
)
from applier.plan.nodes import Aggregate, Join, Node, OuterJoin, fields
from applier.sql.bind.bound import bound_columns
from applier.sql.bind.grouping import result_of_no_rows
from applier.sql.bind.joins import split_condition
from applier.sql.decorrelate.domain import DomainResult
from applier.sql.decorrelate.null_safe import null_safe_pairs


@dataclass(frozen=True, slots=True)
class DomainGroups:
    """What answers are grouped from: a node, its keys, and for each the expression the rows around it ask with."""

    node: Node
    keys: tuple[Expr, ...]
    asked_with: tuple[Expr, ...]
    width: int
    """How many columns stand in front of those of the subquery's rows."""


def test_groups(node: Node, groups: DomainGroups, test: Expr, *, every: bool) -> tuple[Node, Expr]:
    """ANY, or with `every` ALL, of a test of each row of a group."""
    decisive = BoolOp(Logic.NOT, (test,), BOOL) if every else test
    calls = (replace(COUNT, filter=decisive), replace(COUNT, filter=IsNull(test, False, BOOL)))
    node, (decided, unknown_) = join_results(node, groups, calls)
    branches = (
        (more_than_one_row(decided, 0), Const(not every, BOOL)),
        (more_than_one_row(unknown_, 0), Const(None, BOOL)),
    )
    return node, Case(branches, Const(every, BOOL), BOOL)


def domain_groups(answers: DomainResult) -> DomainGroups:
    """The rows of a query by the given rows they are for."""
    return DomainGroups(answers.node, answers.given, answers.asked_with, max(answers.width, 1))


def domain_values(node: Node, rows: Node, conditions: Sequence[Expr], asked: Sequence[Expr]) -> DomainGroups:
    """The distinct values the rows around ask with, each beside the rows of the subquery it sees."""
    width = len(fields(node))
    ordinals = sorted({i for expr in asked for i in columns_read(expr) if i < width})
    shown = bound_columns(node)
    keys = tuple(shown[i] for i in ordinals)
    domain = Aggregate(node, keys, ())
    place = {old: new for new, old in enumerate(ordinals)}
    place |= {width + i: len(ordinals) + i for i in range(len(fields(rows)))}
    equi, residual = split_condition([renumber(c, place.__getitem__) for c in conditions], len(ordinals))
    seen = Join(domain, rows, equi, residual)
    return DomainGroups(seen, bound_columns(seen)[: len(ordinals)], keys, len(ordinals))


def join_results(node: Node, groups: DomainGroups, calls: tuple[AggregateCall, ...]) -> tuple[Node, list[Expr]]:
    """The rows around, each with the results of its group: NULL, or 0 for a count, where there is no group."""
    width, answers = len(fields(node)), Aggregate(groups.node, groups.keys, calls)
    beside: Node
    if not groups.keys:
        beside = Join(node, answers, (), None)
        return beside, list(bound_columns(beside)[width:])
    shown = bound_columns(answers)
    pairs: list[tuple[Expr, Expr]] = []
    for ours, theirs in zip(groups.asked_with, shown, strict=False):
        # Values asked with are rows of the query around, and NULL is one of them; other keys are never NULL and equal.
        pairs += null_safe_pairs([(ours, theirs)]) if groups.width else [(ours, theirs)]
    beside = OuterJoin(node, answers, tuple(pairs), None, full=False)
    found = bound_columns(beside)[width + len(groups.keys) :]
    return beside, [result_of_no_rows(call, column) for call, column in zip(calls, found, strict=True)]


def more_than_one_row(count: Expr, number: int = 0) -> Expr:
    """Whether a count is larger than that."""
    return Call("int8gt(int8,int8)", (count, Const(number, count.type)), BOOL)
