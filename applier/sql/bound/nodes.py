"""The bound plan: queries with resolved names and types, and dependent joins for their subqueries. Pure.

A closed union, like the plan nodes. It keeps what a query says, and does not yet decide how it is computed: the inner
joins of a FROM are one list, and a subquery stays where it was written. Nothing outside `sql` sees it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from applier.plan.expr import AggregateCall, Col, Const, Expr, SortKey, nullable
from applier.plan.nodes import Field, Node, TableFunction
from applier.plan.window import WindowCall
from applier.sql.bound.columns import BoundColumn, OuterCol
from applier.sql.refusal import Refused
from shared_schema.table_schema import TableId

Alias = tuple[str, tuple[str, ...]]
"""The name of a FROM item and of its columns in the query. Only `explain` shows them."""


@dataclass(frozen=True, slots=True)
class GroupKey:
    """A grouping value, and the expression by which Spark groups: the value itself or its comparison key."""

    value: Expr
    by: Expr


@dataclass(frozen=True, slots=True)
class Correlation:
    """Which columns of outer queries a query reads, in the order of the text, and in which of its clauses."""

    reads: tuple[OuterCol, ...] = ()
    only_in_where: bool = True
    """Only conditions of its own WHERE read them, and none of these conditions has a subquery."""
    in_targets: bool = False
    """Its select list reads them."""
    only_in_where_or_targets: bool = True
    """The same with its select list, where no target that reads them has a subquery."""


class DependentKind(Enum):
    """How an expression uses a subquery."""

    VALUE = "value"
    ARRAY = "array"
    ROW = "row"
    """A comparison with its only row."""
    EXISTS = "exists"
    ANY = "any"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class DependentJoin:
    """A join of the rows of a Select, the outer rows, with an inner query that may read their columns.

    It adds one column to the outer rows: the result of the subquery. `test` is the comparison of ANY, ALL and ROW, over
    the outer columns and the columns of the inner query; `compared` are the outer columns that it reads, in the order
    of the text. EXISTS that is `limited` by LIMIT or OFFSET needs more than `skipped` rows.
    """

    kind: DependentKind
    inner: BoundQuery
    correlation: Correlation
    test: Expr | None
    compared: tuple[int, ...]
    limited: bool
    skipped: int
    at: int | None


@dataclass(frozen=True, slots=True)
class MatchJoin:
    """A condition of WHERE that is EXISTS or IN alone, or its negation: a semi-join or an anti-join.

    `limited` says whether it was written with LIMIT or OFFSET. `test` is the result of the same subquery as a value,
    for where no semi-join can compute it.
    """

    subquery: int
    negated: bool
    limited: bool
    test: Expr


@dataclass(frozen=True, slots=True)
class NodeItem:
    """A FROM item that is a plan node: a relation or VALUES; `ordinals` has its columns by their numbers."""

    node: Node
    ordinals: dict[int, int]
    alias: Alias


@dataclass(frozen=True, slots=True)
class QueryItem:
    """A query in FROM with the numbers of the columns that are read. It is LATERAL where it reads the items before it.

    `view` is the view whose query it is.
    """

    query: BoundQuery
    reads: tuple[int, ...]
    correlation: Correlation
    alias: Alias
    view: TableId | None = None


@dataclass(frozen=True, slots=True)
class FunctionItem:
    """Functions in FROM whose rows are paired in order; `as_query` is SELECT * FROM them, to join on a condition."""

    functions: tuple[TableFunction, ...]
    ordinality: bool
    alias: Alias
    as_query: QueryItem | None = None


@dataclass(frozen=True, slots=True)
class ValuesItem:
    """VALUES that read other columns. `as_query` is SELECT * FROM them, for an outer join."""

    rows: tuple[tuple[Expr, ...], ...]
    reads: tuple[int, ...]
    fields: tuple[Field, ...]
    alias: Alias
    as_query: QueryItem | None = None


@dataclass(frozen=True, slots=True)
class RecursionItem:
    """A recursive WITH query: the base, the step, and the casts of their columns to common types."""

    number: int
    base: CastQuery
    step: CastQuery
    distinct: bool
    reads: tuple[int, ...]
    correlation: Correlation
    alias: Alias


@dataclass(frozen=True, slots=True)
class WorkTableItem:
    """The rows of the last round of the recursion with that number."""

    recursion: int
    fields: tuple[Field, ...]
    reads: tuple[int, ...]
    alias: Alias


SelectItem = NodeItem | QueryItem | FunctionItem | ValuesItem | RecursionItem | WorkTableItem


@dataclass(frozen=True, slots=True)
class ItemRef:
    """A FROM item by its number."""

    item: int


@dataclass(frozen=True, slots=True)
class InnerJoinTree:
    """`left JOIN right ON on`; the conditions are split at AND."""

    left: FromTree
    right: FromTree
    on: tuple[Expr, ...]


class OuterJoinKind(Enum):
    """Which rows without a match stay."""

    LEFT = "left"
    RIGHT = "right"
    FULL = "full"


@dataclass(frozen=True, slots=True)
class OuterJoinTree:
    """`left LEFT | RIGHT | FULL JOIN right ON on`; the conditions are split at AND."""

    kind: OuterJoinKind
    left: FromTree
    right: FromTree
    on: tuple[Expr, ...]
    at: tuple[int | None, ...]
    """The position of each condition in the text."""


FromTree = ItemRef | InnerJoinTree | OuterJoinTree


@dataclass(frozen=True, slots=True)
class OrderCheck:
    """An aggregate of a list: rows that are equal in its order must have the same arguments, or it is refused."""

    order: tuple[SortKey, ...]
    args: tuple[Expr, ...]
    any_of_equals: bool
    refusal: Refused


@dataclass(frozen=True, slots=True)
class BoundCall:
    """An aggregate, and what must be true of its order."""

    call: AggregateCall
    check: OrderCheck | None


@dataclass(frozen=True, slots=True)
class GroupBy:
    """GROUP BY and aggregates: the keys as written, then the columns that depend on a primary key among them.

    `sets` has for each grouping set the indexes of its keys; None for a plain GROUP BY. `grouping` has for each
    GROUPING() the indexes of the keys that it names.
    """

    keys: tuple[GroupKey, ...]
    dependent: tuple[GroupKey, ...]
    calls: tuple[BoundCall, ...]
    sets: tuple[tuple[int, ...], ...] | None
    grouping: tuple[tuple[int, ...], ...]
    having: Expr | None
    subqueries: tuple[int, ...]
    """The dependent joins of keys and aggregates, in the order of the text."""
    having_subqueries: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BoundWindow:
    """A window function, and the refusal where its order has ties that matter."""

    call: WindowCall
    refusal: Refused


@dataclass(frozen=True, slots=True)
class Select:
    """One SELECT without DISTINCT, ORDER BY and LIMIT. Its expressions are over `columns`."""

    number: int
    columns: tuple[BoundColumn, ...]
    items: dict[int, SelectItem]
    tables: tuple[FromTree, ...]
    """FROM."""
    where: tuple[Expr, ...]
    """The conditions of WHERE, split at AND, without the match conditions."""
    matches: tuple[MatchJoin, ...]
    subqueries: tuple[DependentJoin, ...]
    group: GroupBy | None
    set_keys: tuple[TableFunction, ...]
    """The set-returning functions of the select list that are grouping keys."""
    set_functions: tuple[TableFunction, ...]
    """The other ones."""
    windows: tuple[BoundWindow, ...]
    has_windows: bool
    """Whether it has windows at all, also where no target that is read uses them."""
    targets: tuple[Expr, ...]
    target_subqueries: tuple[int, ...]
    """The dependent joins of the targets and of their windows, in the order of the text."""

    @property
    def is_row_wise(self) -> bool:
        """Whether each result row comes from exactly one row of FROM that passes WHERE, independent of other rows."""
        return self.group is None and not self.has_windows and not self.set_functions and not self.set_keys


class SetKind(Enum):
    """The set operations."""

    UNION = "UNION"
    INTERSECT = "INTERSECT"
    EXCEPT = "EXCEPT"


@dataclass(frozen=True, slots=True)
class CastQuery:
    """A query, and expressions over its columns that give them other types."""

    query: BoundQuery
    casts: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class SetOp:
    """UNION, INTERSECT or EXCEPT. `keys` compare the rows of a UNION; `output` are the columns that are read."""

    kind: SetKind
    keeps_duplicates: bool
    branches: tuple[CastQuery, ...]
    keys: tuple[GroupKey, ...]
    output: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Distinct:
    """SELECT DISTINCT: the keys compare the columns of the input; a refusal if Spark cannot compare one of them."""

    input: BoundQuery
    keys: tuple[GroupKey, ...] | Refused
    output: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopRows:
    """DISTINCT ON, then ORDER BY with LIMIT and OFFSET. The expressions are over the columns of the input.

    The first `width` columns of the input are the result. `limited` is False where there is only DISTINCT ON.
    """

    input: BoundQuery
    width: int
    distinct_on: tuple[Expr, ...] | None
    order: tuple[SortKey, ...]
    limited: bool
    limit: int | None
    offset: int
    ties: bool

    @property
    def is_first_row(self) -> bool:
        """Whether it is LIMIT 1."""
        return self.distinct_on is None and self.limit == 1 and not self.offset and not self.ties


BoundQuery = Select | SetOp | Distinct | TopRows


def result_columns(query: BoundQuery) -> tuple[Expr, ...]:
    """Return the columns of a query as expressions over its result; a literal of a plain SELECT is itself."""
    match query:
        case Select():
            return tuple(t if isinstance(t, Const) else _column(i, t) for i, t in enumerate(query.targets))
        case SetOp():
            columns = list(zip(*(branch.casts for branch in query.branches), strict=True))
            output = [Col(0, c[0].type, any(nullable(e) for e in c)) for c in (columns[i] for i in query.output)]
        case Distinct():
            below = result_columns(query.input)
            output = [_column(0, below[i]) for i in query.output]
        case TopRows():
            output = [_column(0, expr) for expr in result_columns(query.input)[: query.width]]
    return tuple(_column(i, expr) for i, expr in enumerate(output))


def _column(ordinal: int, expr: Expr) -> Col:
    return Col(ordinal, expr.type, nullable(expr))
