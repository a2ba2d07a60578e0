"""What the columns of a bound query are over a node. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from applier.plan.expr import Col, Expr, columns_read
from applier.plan.nodes import Filter, Node, fields
from applier.sql.bound.columns import BoundColumn, ComputedCol, ItemCol, OuterCol, SetCol, SubqueryCol
from applier.sql.bound.conditions import conjunction
from applier.sql.bound.nodes import BoundQuery, Select
from applier.sql.decorrelate.lowered import Lowered, bound_columns, resolve_columns
from applier.sql.refusal import Reason, Refused

DOMAIN_ITEM = 0
"""The number of the FROM item that is the domain; other items are numbered from 1."""


@dataclass(frozen=True, slots=True)
class Domain:
    """The rows for which a query is evaluated at once, and the column of the domain for each outer column."""

    node: Node
    positions: dict[OuterCol, int]
    at: int | None
    """Where the query reads an outer column, for refusals."""


@dataclass(frozen=True, slots=True)
class Scope:
    """Resolves the expressions of a Select over a node; `domain_columns` are the columns of its domain there."""

    select: Select
    find: Callable[[BoundColumn], Expr | None]
    domain: Domain | None
    domain_columns: tuple[Expr, ...]

    def column(self, ordinal: int) -> Expr:
        """Return a column of the Select."""
        column = self.select.columns[ordinal]
        match column:
            case ComputedCol(expr=expr):
                return self.resolve(expr)
            case OuterCol():
                found = self._domain_column(column)
            case _:
                found = self.find(column)
        if found is None:
            raise _missing(column, self.select)
        return found

    def resolve(self, expr: Expr) -> Expr:
        """Return an expression of the Select over the node."""
        return resolve_columns(expr, lambda column: self.column(column.ordinal))

    def read(self, outer: OuterCol) -> Expr:
        """Return a column that a query inside the Select reads: of the Select itself, or of its domain."""
        found = self.column(outer.ordinal) if outer.select == self.select.number else self._domain_column(outer)
        if found is None:
            raise _missing(outer, self.select)
        return found

    def _domain_column(self, outer: OuterCol) -> Expr | None:
        position = None if self.domain is None else self.domain.positions.get(outer)
        return None if position is None or not self.domain_columns else self.domain_columns[position]


@dataclass(frozen=True, slots=True)
class Rows:
    """A node over some FROM items, and for each column (item, number) the ordinal among the node's columns."""

    select: Select
    domain: Domain | None
    node: Node
    ordinals: dict[tuple[int, int], int]
    items: frozenset[int]
    results: dict[int, Expr] = field(default_factory=dict)
    """The results of dependent joins that are already joined, by index."""
    sets: tuple[Expr, ...] = ()
    """The results of set-returning functions that are already unnested."""

    @property
    def scope(self) -> Scope:
        """The scope of expressions over these rows."""
        # The columns of a deep node are computed when the first one is read: many scopes are not used.
        columns: list[Col] = []

        def shown(ordinal: int) -> Col:
            if not columns:
                columns.extend(bound_columns(self.node))
            return columns[ordinal]

        def find(column: BoundColumn) -> Expr | None:
            match column:
                case ItemCol(item=item, number=number):
                    ordinal = self.ordinals.get((item, number))
                    return None if ordinal is None else shown(ordinal)
                case SubqueryCol(subquery=subquery):
                    return self.results.get(subquery)
                case SetCol(number=number):
                    return self.sets[number] if number < len(self.sets) else None
                case _:
                    return None

        width = 0 if self.domain is None or DOMAIN_ITEM not in self.items else len(fields(self.domain.node))
        domain_columns = tuple(shown(self.ordinals[DOMAIN_ITEM, i]) for i in range(width))
        return Scope(self.select, find, self.domain, domain_columns)

    def filter(self, conditions: Sequence[Expr]) -> Rows:
        """Keep only the rows that satisfy all conditions."""
        return replace(self, node=Filter(self.node, conjunction(conditions))) if conditions else self


@dataclass(frozen=True, slots=True)
class OuterRows:
    """The outer rows of a dependent join; `base` has the same rows before other dependent joins added columns."""

    node: Node
    base: Node
    scope: Scope


class Decorrelator(Protocol):
    """Decorrelates queries; one object for a whole query."""

    def query(self, query: BoundQuery, domain: Domain | None = None, domain_at: int | None = None) -> Lowered:
        """Decorrelate a query for all rows of the domain, which read its outer columns."""
        ...

    def rows(self, select: Select, domain: Domain | None, where: Sequence[Expr]) -> Rows:
        """Join the FROM items of a Select, with these conditions of its WHERE."""
        ...

    def join_result(self, outer: OuterRows, subquery: int) -> tuple[Node, Expr]:
        """Join the result of a dependent join of the outer Select; return the node and the result over it."""
        ...

    def next_recursion(self) -> int:
        """Return an unused number for a recursion."""
        ...

    work_tables: dict[int, int]
    """The number of each recursion in the plan, by its number in the bound plan."""


def has_subquery(select: Select, expr: Expr) -> bool:
    """Whether the expression reads the result of a dependent join."""
    return any(True for _ in subqueries_in(select, expr))


def subqueries_in(select: Select, expr: Expr) -> list[int]:
    """Return the dependent joins whose results the expression reads, in the order of the text."""
    columns = [select.columns[i] for i in dict.fromkeys(columns_read(expr))]
    nested = [i for c in columns if isinstance(c, ComputedCol) for i in subqueries_in(select, c.expr)]
    return sorted({*(c.subquery for c in columns if isinstance(c, SubqueryCol)), *nested})


def items_read(select: Select, expr: Expr) -> frozenset[int]:
    """Return the FROM items that the expression and its subqueries read; the domain for outer columns."""
    return frozenset().union(*(_items_of(select, select.columns[i]) for i in dict.fromkeys(columns_read(expr))))


def items_of_subquery(select: Select, subquery: int) -> frozenset[int]:
    """Return the FROM items that a dependent join reads."""
    dependent = select.subqueries[subquery]
    found = frozenset[int]()
    for outer in dependent.correlation.reads:
        own = outer.select == select.number
        found |= _items_of(select, select.columns[outer.ordinal]) if own else {DOMAIN_ITEM}
    return found if dependent.test is None else found | items_read(select, dependent.test)


def _items_of(select: Select, column: BoundColumn) -> frozenset[int]:
    match column:
        case ItemCol(item=item):
            return frozenset({item})
        case OuterCol():
            return frozenset({DOMAIN_ITEM})
        case SubqueryCol(subquery=subquery):
            return items_of_subquery(select, subquery)
        case ComputedCol(expr=expr):
            return items_read(select, expr)
        case _:
            return frozenset()


def has_outer_column(select: Select, expr: Expr) -> bool:
    """Whether the expression itself reads a column of an outer query."""
    columns = [select.columns[i] for i in columns_read(expr)]
    return any(
        isinstance(c, OuterCol) or (isinstance(c, ComputedCol) and has_outer_column(select, c.expr)) for c in columns
    )


def _missing(column: BoundColumn, select: Select) -> Exception:
    match column:
        case SubqueryCol(subquery=subquery):
            construct = "a subquery here"
            hint = "move it into the select list, WHERE, ON or HAVING, or join the subquery in FROM"
            return Refused(Reason.CONSTRUCT, construct, hint=hint, token=select.subqueries[subquery].at)
        case OuterCol(at=at):
            hint = "join the tables instead"
            return Refused(Reason.CONSTRUCT, "a reference to an outer query", hint=hint, token=at)
        case _:
            return AssertionError(f"a column without a source: {column}")
