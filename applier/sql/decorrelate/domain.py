"""A correlated query and its outer rows -> the rows of the query for all outer rows, evaluated once. Pure.

The *domain* is every combination of the outer values that the query reads, once. It is one more item of the query's
FROM, and the outer columns become its columns. They are also in the result, and say for which outer values a row is.
Rows are grouped, partitioned, limited and compared by them before anything else. The result is joined to the outer rows
by these columns with null-safe equality.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from applier.plan.expr import Col, Expr
from applier.plan.keys import row_key
from applier.plan.nodes import Aggregate, Node, Values
from applier.sql.bound.columns import OuterCol
from applier.sql.bound.nodes import (
    BoundQuery,
    DependentJoin,
    Distinct,
    ItemRef,
    NodeItem,
    Select,
    SetKind,
    SetOp,
    TopRows,
    ValuesItem,
)
from applier.sql.decorrelate.lowered import bound_columns, project_columns
from applier.sql.decorrelate.null_safe import Pairs, null_safe_pairs
from applier.sql.decorrelate.scope import Decorrelator, Domain, OuterRows


@dataclass(frozen=True, slots=True)
class DomainResult:
    """The rows of a query for each row of the domain: the columns of the query, then those of the domain."""

    node: Node
    width: int
    outer_values: tuple[Expr, ...]
    """One expression over the outer rows for each column of the domain."""
    positions: dict[OuterCol, int]

    @property
    def result_columns(self) -> tuple[Expr, ...]:
        """The columns of the query."""
        return bound_columns(self.node)[: self.width]

    @property
    def domain_columns(self) -> tuple[Expr, ...]:
        """The columns of the domain: they say for which outer values a row is."""
        return bound_columns(self.node)[self.width :]

    @property
    def join_keys(self) -> Pairs:
        """The null-safe join keys between the outer rows and these rows."""
        return null_safe_pairs(zip(self.outer_values, self.domain_columns, strict=True))

    @property
    def has_single_row(self) -> bool:
        """Whether there is at most one row per row of the domain."""
        key = row_key(self.node)
        return key is not None and all(i >= self.width for i in key)


def evaluate(decorrelator: Decorrelator, outer: OuterRows, dependent: DependentJoin) -> DomainResult:
    """Evaluate the inner query of a dependent join over its domain, which also has the columns that its test reads."""
    compared = [OuterCol(outer.scope.select.number, ordinal) for ordinal in dependent.compared]
    return evaluate_query(decorrelator, outer, dependent.inner, (*dependent.correlation.reads, *compared))


def evaluate_query(
    decorrelator: Decorrelator, outer: OuterRows, query: BoundQuery, reads: Sequence[OuterCol]
) -> DomainResult:
    """Evaluate a query over the domain of these outer columns."""
    values: dict[Expr, OuterCol] = {}
    positions: dict[OuterCol, int] = {}
    for read in reads:
        if read not in positions:
            value = outer.scope.read(read)
            values.setdefault(value, read)
            positions[read] = list(values).index(value)
    at = next((read.at for read in values.values() if read.at is not None), None)
    domain = Domain(_distinct_values(outer.base, tuple(values)), positions, at)
    lowered = decorrelator.query(query, domain)
    node = project_columns(lowered.node, (*lowered.exprs, *lowered.domain))
    return DomainResult(node, len(lowered.exprs), tuple(values), positions)


def join_rows(
    decorrelator: Decorrelator, outer: OuterRows, query: BoundQuery, reads: Sequence[OuterCol]
) -> Node | None:
    """Join each outer row with the query's rows for it; the columns of the query follow those of the outer row.

    The outer rows themselves are the domain. That is possible only where the query neither groups nor compares its
    rows; otherwise the result is None.
    """
    if not _is_row_by_row(query):
        return None
    positions: dict[OuterCol, int] = {}
    for read in reads:
        value = outer.scope.read(read)
        if not isinstance(value, Col):
            return None
        positions[read] = value.ordinal
    lowered = decorrelator.query(query, Domain(outer.base, positions, None), 0)
    return project_columns(lowered.node, (*lowered.domain, *lowered.exprs))


def _distinct_values(node: Node, values: tuple[Expr, ...]) -> Node:
    """Return every combination of these values once: the domain."""
    key = row_key(node)
    is_unique = key is not None and set(key) <= {value.ordinal for value in values if isinstance(value, Col)}
    return project_columns(node, values) if is_unique else Aggregate(node, values, ())


def _is_row_by_row(query: BoundQuery) -> bool:
    """Whether the result for one row of the domain does not depend on the other rows."""
    match query:
        case Select():
            return query.group is None and not query.has_windows
        case SetOp():
            keeps = query.kind is SetKind.UNION and query.keeps_duplicates
            return keeps and all(_is_row_by_row(branch.query) for branch in query.branches)
        case Distinct() | TopRows():
            return False


def is_never_empty(query: BoundQuery) -> bool:
    """Whether the query has at least one row for all outer values."""
    match query:
        case Select():
            if query.where or query.matches or query.group is not None or query.set_functions or query.set_keys:
                return False
            return all(isinstance(table, ItemRef) and _is_values(query, table) for table in query.tables)
        case SetOp():
            return query.kind is SetKind.UNION and is_never_empty(query.branches[0].query)
        case Distinct():
            return is_never_empty(query.input)
        case TopRows():
            return not query.limited and is_never_empty(query.input)


def _is_values(select: Select, table: ItemRef) -> bool:
    item = select.items[table.item]
    return isinstance(item, ValuesItem) or (isinstance(item, NodeItem) and isinstance(item.node, Values))
