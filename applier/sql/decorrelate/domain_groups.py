"""Groups that answers are made from, and the answers beside the rows that ask. Pure."""

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
from applier.sql.bind.bound import columns
from applier.sql.bind.grouping import of_no_rows
from applier.sql.bind.joins import split
from applier.sql.decorrelate.domain import Answers
from applier.sql.decorrelate.null_safe import same


@dataclass(frozen=True, slots=True)
class Groups:
    """What answers are grouped from: a node, its keys, and for each the expression the rows around it ask with."""

    node: Node
    keys: tuple[Expr, ...]
    asked_with: tuple[Expr, ...]
    width: int
    """How many columns stand in front of those of the subquery's rows."""


def tested(node: Node, groups: Groups, test: Expr, *, every: bool) -> tuple[Node, Expr]:
    """ANY, or with `every` ALL, of a test of each row of a group."""
    decisive = BoolOp(Logic.NOT, (test,), BOOL) if every else test
    calls = (replace(COUNT, filter=decisive), replace(COUNT, filter=IsNull(test, False, BOOL)))
    node, (decided, unknown_) = joined(node, groups, calls)
    branches = ((more_than(decided, 0), Const(not every, BOOL)), (more_than(unknown_, 0), Const(None, BOOL)))
    return node, Case(branches, Const(every, BOOL), BOOL)


def groups_of(answers: Answers) -> Groups:
    """The rows of a query by the given rows they are for."""
    return Groups(answers.node, answers.given, answers.asked_with, max(answers.width, 1))


def asked_values(node: Node, rows: Node, conditions: Sequence[Expr], asked: Sequence[Expr]) -> Groups:
    """The distinct values the rows around ask with, each beside the rows of the subquery it sees."""
    width = len(fields(node))
    ordinals = sorted({i for expr in asked for i in columns_read(expr) if i < width})
    shown = columns(node)
    keys = tuple(shown[i] for i in ordinals)
    domain = Aggregate(node, keys, ())
    place = {old: new for new, old in enumerate(ordinals)}
    place |= {width + i: len(ordinals) + i for i in range(len(fields(rows)))}
    equi, residual = split([renumber(c, place.__getitem__) for c in conditions], len(ordinals))
    seen = Join(domain, rows, equi, residual)
    return Groups(seen, columns(seen)[: len(ordinals)], keys, len(ordinals))


def joined(node: Node, groups: Groups, calls: tuple[AggregateCall, ...]) -> tuple[Node, list[Expr]]:
    """The rows around, each with the results of its group: NULL, or 0 for a count, where there is no group."""
    width, answers = len(fields(node)), Aggregate(groups.node, groups.keys, calls)
    beside: Node
    if not groups.keys:
        beside = Join(node, answers, (), None)
        return beside, list(columns(beside)[width:])
    shown = columns(answers)
    pairs: list[tuple[Expr, Expr]] = []
    for ours, theirs in zip(groups.asked_with, shown, strict=False):
        # Values asked with are rows of the query around, and NULL is one of them; other keys are never NULL and equal.
        pairs += same([(ours, theirs)]) if groups.width else [(ours, theirs)]
    beside = OuterJoin(node, answers, tuple(pairs), None, full=False)
    found = columns(beside)[width + len(groups.keys) :]
    return beside, [of_no_rows(call, column) for call, column in zip(calls, found, strict=True)]


def more_than(count: Expr, number: int = 0) -> Expr:
    """Whether a count is larger than that."""
    return Call("int8gt(int8,int8)", (count, Const(number, count.type)), BOOL)
