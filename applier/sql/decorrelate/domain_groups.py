"""The rows of a subquery, grouped by its outer values -> outer rows joined with an aggregate over each group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from applier.functions.aggregates.aggregates import COUNT_CALL
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
from applier.sql.decorrelate.domain import DomainResult
from applier.sql.decorrelate.grouping import default_if_no_group
from applier.sql.decorrelate.key_pairs import split_condition
from applier.sql.decorrelate.lowered import bound_columns
from applier.sql.decorrelate.null_safe import null_safe_pairs


@dataclass(frozen=True, slots=True)
class DomainGroups:
    """The rows of a subquery with their group keys, and for each key the matching expression over the outer rows."""

    node: Node
    keys: tuple[Expr, ...]
    outer_values: tuple[Expr, ...]
    width: int
    """The number of columns before those of the subquery; 0 where the keys are columns of the subquery itself."""


def join_any_or_all(node: Node, groups: DomainGroups, test: Expr, *, every: bool) -> tuple[Node, Expr]:
    """Join the result of ANY, or of ALL with `every`, of a test over the rows of each group."""
    decides = BoolOp(Logic.NOT, (test,), BOOL) if every else test
    calls = (replace(COUNT_CALL, filter=decides), replace(COUNT_CALL, filter=IsNull(test, False, BOOL)))
    node, (decided, nulls) = join_group_results(node, groups, calls)
    branches = (
        (greater_than(decided, 0), Const(not every, BOOL)),
        (greater_than(nulls, 0), Const(None, BOOL)),
    )
    return node, Case(branches, Const(every, BOOL), BOOL)


def group_by_domain(result: DomainResult) -> DomainGroups:
    """Group the rows of a subquery by the columns of the domain."""
    return DomainGroups(result.node, result.domain_columns, result.outer_values, max(result.width, 1))


def group_by_outer_values(
    node: Node, rows: Node, conditions: Sequence[Expr], expressions: Sequence[Expr]
) -> DomainGroups:
    """Join the distinct outer values that the expressions read with the rows of the subquery, and group by them."""
    width = len(fields(node))
    ordinals = sorted({i for expr in expressions for i in columns_read(expr) if i < width})
    shown = bound_columns(node)
    keys = tuple(shown[i] for i in ordinals)
    domain = Aggregate(node, keys, ())
    new_ordinal = {old: new for new, old in enumerate(ordinals)}
    new_ordinal |= {width + i: len(ordinals) + i for i in range(len(fields(rows)))}
    equi, residual = split_condition([renumber(c, new_ordinal.__getitem__) for c in conditions], len(ordinals))
    matched = Join(domain, rows, equi, residual)
    return DomainGroups(matched, bound_columns(matched)[: len(ordinals)], keys, len(ordinals))


def join_group_results(node: Node, groups: DomainGroups, calls: tuple[AggregateCall, ...]) -> tuple[Node, list[Expr]]:
    """Join each outer row with the aggregates of its group: NULL, or 0 for a count, where there is no group."""
    width, results = len(fields(node)), Aggregate(groups.node, groups.keys, calls)
    joined: Node
    if not groups.keys:
        joined = Join(node, results, (), None)
        return joined, list(bound_columns(joined)[width:])
    shown = bound_columns(results)
    pairs: list[tuple[Expr, Expr]] = []
    for ours, theirs in zip(groups.outer_values, shown, strict=False):
        # Outer values may be NULL, so they are joined by null-safe equality. Other keys come from equalities, which
        # never match NULL.
        pairs += null_safe_pairs([(ours, theirs)]) if groups.width else [(ours, theirs)]
    joined = OuterJoin(node, results, tuple(pairs), None, full=False)
    columns = bound_columns(joined)[width + len(groups.keys) :]
    return joined, [default_if_no_group(call, column) for call, column in zip(calls, columns, strict=True)]


def greater_than(count: Expr, number: int = 0) -> Expr:
    """Build the condition that a count is greater than a number."""
    return Call("int8gt(int8,int8)", (count, Const(number, count.type)), BOOL)
