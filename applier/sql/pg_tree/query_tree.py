"""The typed form of an analysed query: range table, FROM, target list, GROUP BY and the other clauses. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import count

from applier.sql.pg_tree.tree import RESULT, Expression, SubLink, Var
from applier.sql.pg_tree.walk import set_functions, subqueries, variables


@dataclass(frozen=True, slots=True, kw_only=True)
class _Aliased:
    """A range-table entry with its alias and its column names in the query. Only `explain` reads them."""

    alias: tuple[str, tuple[str, ...]] = field(default=("", ()), compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class TableEntry(_Aliased):
    """A relation or view in FROM; its column names, "" for a dropped one, none at all where the query renames them."""

    name: str
    relation: int
    with_children: bool
    columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SubqueryEntry(_Aliased):
    """A subquery in FROM."""

    name: str
    query: Query
    columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CteEntry(_Aliased):
    """A reference to a CTE, by its name in the query that is `levels_up` queries further out."""

    name: str
    levels_up: int
    columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ValuesEntry(_Aliased):
    """VALUES: its rows, and the type and modifier of each column."""

    rows: tuple[tuple[Expression, ...], ...]
    types: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class FunctionEntry(_Aliased):
    """Functions in FROM whose rows are paired in order, and how many columns each has. A call may be a plain value.

    `records` holds for each call the columns that the query lists for a function of records: name, type and modifier.
    """

    calls: tuple[Expression, ...]
    widths: tuple[int, ...]
    ordinality: bool
    records: tuple[tuple[tuple[str, int, int], ...], ...] = ()


@dataclass(frozen=True, slots=True)
class JoinEntry(_Aliased):
    """The output of a join: the expression of each of its columns."""

    columns: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class GroupEntry(_Aliased):
    """The output of GROUP BY (since 18): the expression of each of its columns."""

    columns: tuple[Expression, ...]


RangeTblEntry = ValuesEntry | FunctionEntry | TableEntry | SubqueryEntry | CteEntry | JoinEntry | GroupEntry


@dataclass(frozen=True, slots=True)
class RangeTblRef:
    """A FROM item by its number in the range table."""

    entry: int


@dataclass(frozen=True, slots=True)
class InnerJoinExpr:
    """`left JOIN right ON condition`; None is CROSS JOIN."""

    left: FromItem
    right: FromItem
    condition: Expression | None


class OuterJoinType(Enum):
    """The values are JoinType's."""

    LEFT = 1
    FULL = 2
    RIGHT = 3


@dataclass(frozen=True, slots=True)
class OuterJoinExpr:
    """`left LEFT | RIGHT | FULL JOIN right ON condition`."""

    kind: OuterJoinType
    left: FromItem
    right: FromItem
    condition: Expression | None


FromItem = RangeTblRef | InnerJoinExpr | OuterJoinExpr


@dataclass(frozen=True, slots=True)
class TargetEntry:
    """An item of the select list; `hidden` ones are for GROUP BY and ORDER BY only."""

    expression: Expression
    name: str | None
    group_reference: int
    hidden: bool


@dataclass(frozen=True, slots=True)
class GroupItem:
    """A GROUP BY key: the target that it refers to and the equality operator that groups."""

    reference: int
    equality: int


@dataclass(frozen=True, slots=True)
class SortItem:
    """An ORDER BY key: the target that it refers to, the operator that sorts, and where NULLs go."""

    reference: int
    operator: int
    nulls_first: bool


@dataclass(frozen=True, slots=True)
class WindowClause:
    """A window by its number: partition, order and frame; `options` are the bits of FRAMEOPTION_*."""

    number: int
    partition: tuple[GroupItem, ...]
    order: tuple[SortItem, ...]
    options: int
    start: Expression | None
    end: Expression | None


@dataclass(frozen=True, slots=True)
class Limit:
    """LIMIT and OFFSET as written; None where the clause is absent."""

    count: Expression | None
    offset: Expression | None
    ties: bool


class SetOperationType(Enum):
    """The values are SetOperation's."""

    UNION = 1
    INTERSECT = 2
    EXCEPT = 3


@dataclass(frozen=True, slots=True)
class SetColumn:
    """A result column of a set operation; `equality` compares rows, 0 where duplicates are kept."""

    type: int
    typmod: int
    collation: int
    equality: int


@dataclass(frozen=True, slots=True)
class SetOperation:
    """UNION, INTERSECT or EXCEPT; a branch is a range-table entry or a set operation itself.

    UNION ALL can have more than two branches, the others have two.
    """

    kind: SetOperationType
    keeps_duplicates: bool
    branches: tuple[int | SetOperation, ...]
    columns: tuple[SetColumn, ...]

    def entries(self) -> Iterator[int]:
        """Yield the range-table entries of all branches, in the order of the text."""
        for branch in self.branches:
            if isinstance(branch, SetOperation):
                yield from branch.entries()
            else:
                yield branch


@dataclass(frozen=True, slots=True)
class MatchCondition:
    """A top-level condition of WHERE: EXISTS (query), or with a test `x IN (query)`; or its negation."""

    query: Query
    test: Expression | None
    negated: bool
    at: int | None


@dataclass(frozen=True, slots=True)
class Search:
    """SEARCH: the positions (from 0) of the columns whose values along the path to a row its new column holds."""

    places: tuple[int, ...]
    breadth_first: bool


@dataclass(frozen=True, slots=True)
class Cycle:
    """CYCLE: the positions of the columns that identify a row. The new column is `mark` in a cycle, else `default`.

    `not_equal` is the operator that compares the two marks.
    """

    places: tuple[int, ...]
    mark: Expression
    default: Expression
    type: int
    typmod: int
    collation: int
    not_equal: int


@dataclass(frozen=True, slots=True)
class SearchCycle:
    """The SEARCH and CYCLE clauses of a recursive CTE."""

    search: Search | None
    cycle: Cycle | None


@dataclass(frozen=True, slots=True)
class Query:
    """One SELECT, or several under set operations."""

    targets: tuple[TargetEntry, ...]
    entries: tuple[RangeTblEntry, ...]
    items: tuple[FromItem, ...]
    where: Expression | None
    groups: tuple[GroupItem, ...]
    having: Expression | None
    distinct: tuple[GroupItem, ...]
    ctes: dict[str, Query]
    """WITH: each CTE by its name."""
    recursive: frozenset[str]
    """The names of the CTEs that read themselves."""
    has_aggregates: bool
    search_cycles: dict[str, SearchCycle] = field(default_factory=dict)
    """SEARCH and CYCLE of CTEs, by name."""
    grouping_sets: tuple[tuple[int, ...], ...] = ()
    """The expanded GROUPING SETS, ROLLUP and CUBE: the key references of each set; none for a plain GROUP BY."""
    union: SetOperation | None = None
    match_conditions: tuple[MatchCondition, ...] = ()
    distinct_on: bool = False
    order: tuple[SortItem, ...] = ()
    limit: Limit | None = None
    windows: tuple[WindowClause, ...] = ()

    @property
    def is_row_wise(self) -> bool:
        """Whether each result row comes from exactly one row of FROM that passes WHERE, independent of other rows."""
        several = self.is_grouped or self.distinct or self.union is not None or self.limit is not None
        return not (several or self.windows or self.has_set_functions)

    @property
    def has_set_functions(self) -> bool:
        """Whether its select list has set-returning functions."""
        return any(any(set_functions(target.expression)) for target in self.targets)

    @property
    def is_grouped(self) -> bool:
        """Whether its rows are grouped; HAVING alone makes one group of all rows."""
        return self.has_aggregates or bool(self.groups) or bool(self.grouping_sets) or self.having is not None


def select_from(
    targets: tuple[TargetEntry, ...], entries: tuple[RangeTblEntry, ...], items: tuple[FromItem, ...]
) -> Query:
    """Return a query with these targets over these FROM items, and no other clause."""
    return Query(
        targets=targets,
        entries=entries,
        items=items,
        where=None,
        groups=(),
        having=None,
        distinct=(),
        ctes={},
        recursive=frozenset(),
        has_aggregates=False,
    )


def expressions(query: Query) -> Iterator[Expression]:
    """Yield every expression of the query itself as a whole, but not those of its subqueries."""
    yield from (target.expression for target in query.targets)
    yield from (e for e in (query.where, query.having) if e is not None)
    yield from _join_conditions(query.items)
    yield from (condition.test for condition in query.match_conditions if condition.test is not None)
    for entry in query.entries:
        match entry:
            case ValuesEntry(rows=rows):
                yield from (value for row in rows for value in row)
            case FunctionEntry(calls=calls):
                yield from calls
            case GroupEntry(columns=columns):
                yield from columns
            case _:
                continue


def _join_conditions(items: tuple[FromItem, ...]) -> Iterator[Expression]:
    for item in items:
        if not isinstance(item, RangeTblRef):
            if item.condition is not None:
                yield item.condition
            yield from _join_conditions((item.left, item.right))


def inner_queries(query: Query) -> Iterator[Query]:
    """Yield the direct subqueries: in FROM, in WITH, and in expressions."""
    yield from query.ctes.values()
    yield from (entry.query for entry in query.entries if isinstance(entry, SubqueryEntry))
    yield from (condition.query for condition in query.match_conditions)
    for expression in expressions(query):
        yield from (subquery.query for subquery in subqueries(expression))


def outer_columns(query: Query, depth: int = 1) -> Iterator[Var]:
    """Yield the columns that the query and its subqueries read of the outer query, as the outer query names them."""
    for expression in expressions(query):
        yield from (replace(v, levels_up=0) for v in variables(expression) if v.levels_up == depth)
    for inner in inner_queries(query):
        yield from outer_columns(inner, depth + 1)


def lateral_columns(entry: RangeTblEntry) -> Iterator[Var]:
    """Yield the columns of other FROM items that a LATERAL entry reads."""
    match entry:
        case FunctionEntry(calls=calls):
            for call in calls:
                yield from (var for var in variables(call) if var.levels_up == 0)
        case SubqueryEntry(query=query):
            yield from outer_columns(query)
        case ValuesEntry(rows=rows):
            for row in rows:
                for value in row:
                    yield from (var for var in variables(value) if var.levels_up == 0)
        case _:
            return


_numbers = count(1)


def next_subquery_number() -> int:
    """Return an unused number for a subquery."""
    return next(_numbers)


def replace_subquery(subquery: SubLink, query: Query, test: Expression | None) -> SubLink:
    """Return the SubLink over another query and test, with the outer columns that these read."""
    own = () if test is None else (v for v in variables(test) if v.entry != RESULT)
    return replace(subquery, query=query, test=test, outer=(*own, *outer_columns(query)))
