"""The analysed query around its expressions: range table, FROM, targets, GROUP BY. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import count

from applier.plan.nodes import Node
from applier.sql.pg_tree.tree import RESULT, Expression, SubLink, Var
from applier.sql.pg_tree.walk import set_functions, subqueries, variables


@dataclass(frozen=True, slots=True)
class TableEntry:
    """A relation in FROM, views included; its columns by name, "" for a dropped one, none where they were renamed."""

    name: str
    relation: int
    with_children: bool
    columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SubqueryEntry:
    """A subquery in FROM."""

    name: str
    query: Query
    columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CteEntry:
    """A reference to a member of WITH, by its name in the query `levels_up` queries outwards."""

    name: str
    levels_up: int
    columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ValuesEntry:
    """VALUES: its rows, and type and modifier of each column."""

    rows: tuple[tuple[Expression, ...], ...]
    types: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class FunctionEntry:
    """Functions in FROM, gone through side by side, and how many columns each has; one may be a plain value.

    `records` are, for each call, the columns that the query itself names for a function of records: name, type and
    modifier.
    """

    calls: tuple[Expression, ...]
    widths: tuple[int, ...]
    ordinality: bool
    records: tuple[tuple[tuple[str, int, int], ...], ...] = ()


@dataclass(frozen=True, slots=True)
class JoinEntry:
    """The output of a join: what each of its columns stands for."""

    columns: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class GroupEntry:
    """The output of GROUP BY (since 18): what each of its columns stands for."""

    columns: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class DomainEntry:
    """The rows a query is asked for, of which it reads what it used to read of the query around it."""

    node: Node


RangeTblEntry = (
    ValuesEntry | FunctionEntry | TableEntry | SubqueryEntry | CteEntry | JoinEntry | GroupEntry | DomainEntry
)

SAME = 0
"""In the place of an equality operator: given values are the same where they are held alike."""


@dataclass(frozen=True, slots=True)
class RangeTblRef:
    """A member of FROM by its number in the range table."""

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
    """A member of the target list; `hidden` ones serve GROUP BY and ORDER BY only."""

    expression: Expression
    name: str | None
    group_reference: int
    hidden: bool


@dataclass(frozen=True, slots=True)
class GroupItem:
    """A GROUP BY key: the target it names and the equality operator that groups."""

    reference: int
    equality: int


@dataclass(frozen=True, slots=True)
class SortItem:
    """An ORDER BY key: the target it names, the operator that says what comes first, and where NULLs go."""

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
    """LIMIT and OFFSET as written; None is all, and none."""

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
    """A column the branches of a set operation meet in; `equality` tells rows apart, 0 where duplicates are kept."""

    type: int
    typmod: int
    collation: int
    equality: int


@dataclass(frozen=True, slots=True)
class SetOperation:
    """UNION, INTERSECT or EXCEPT; a branch is a range-table entry or a set operation itself.

    UNION ALL may have more than two branches, the others have two.
    """

    kind: SetOperationType
    keeps_duplicates: bool
    branches: tuple[int | SetOperation, ...]
    columns: tuple[SetColumn, ...]

    def entries(self) -> Iterator[int]:
        """The range-table entries of all branches, in the order of the text."""
        for branch in self.branches:
            if isinstance(branch, SetOperation):
                yield from branch.entries()
            else:
                yield branch


@dataclass(frozen=True, slots=True)
class MatchCondition:
    """A condition of WHERE by itself: EXISTS (query), or with a test `x IN (query)`; or NOT of it."""

    query: Query
    test: Expression | None
    negated: bool
    at: int | None


@dataclass(frozen=True, slots=True)
class Search:
    """SEARCH: the columns, by their places from 0, whose values on the way to a row its new column holds."""

    places: tuple[int, ...]
    breadth_first: bool


@dataclass(frozen=True, slots=True)
class Cycle:
    """CYCLE: the columns that tell rows apart, and what the new column holds where a row was met before, or was not.

    `different` is the operator that tells one from the other.
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
    """What a recursive member of WITH notes about the ways to its rows."""

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
    """WITH: each query by its name."""
    recursive: frozenset[str]
    """The members of WITH that read themselves."""
    has_aggregates: bool
    search_cycles: dict[str, SearchCycle] = field(default_factory=dict)
    """SEARCH and CYCLE of members of WITH."""
    grouping_sets: tuple[tuple[int, ...], ...] = ()
    """GROUPING SETS, ROLLUP and CUBE written out: the references of the keys of each; none for a plain GROUP BY."""
    union: SetOperation | None = None
    match_conditions: tuple[MatchCondition, ...] = ()
    distinct_on: bool = False
    order: tuple[SortItem, ...] = ()
    limit: Limit | None = None
    windows: tuple[WindowClause, ...] = ()
    domain_targets: tuple[int, ...] = ()
    """The targets that say for which of the given rows a row is; none where the query is not asked for any."""

    @property
    def is_row_wise(self) -> bool:
        """Whether its rows are others than those of FROM that WHERE leaves, or know of one another."""
        several = self.is_grouped or self.distinct or self.union is not None or self.limit is not None
        return not (several or self.windows or self.has_set_functions)

    @property
    def has_set_functions(self) -> bool:
        """Whether its select list has functions that make rows."""
        return any(any(set_functions(target.expression)) for target in self.targets)

    @property
    def is_grouped(self) -> bool:
        """Whether rows are grouped: HAVING alone makes one group of all rows."""
        return self.has_aggregates or bool(self.groups) or bool(self.grouping_sets) or self.having is not None


def select_from(
    targets: tuple[TargetEntry, ...], entries: tuple[RangeTblEntry, ...], items: tuple[FromItem, ...]
) -> Query:
    """SELECT these FROM those, and nothing else."""
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
    """Every expression of the query itself, whole; not those of queries inside it."""
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
    """The queries directly inside it: of FROM, of WITH, and those its expressions ask."""
    yield from query.ctes.values()
    yield from (entry.query for entry in query.entries if isinstance(entry, SubqueryEntry))
    yield from (condition.query for condition in query.match_conditions)
    for expression in expressions(query):
        yield from (subquery.query for subquery in subqueries(expression))


def outer_columns(query: Query, depth: int = 1) -> Iterator[Var]:
    """What the query and those inside it read of the query around it, as that one names it."""
    for expression in expressions(query):
        yield from (replace(v, levels_up=0) for v in variables(expression) if v.levels_up == depth)
    for inner in inner_queries(query):
        yield from outer_columns(inner, depth + 1)


def lateral_columns(entry: RangeTblEntry) -> Iterator[Var]:
    """The columns of other members of FROM that an entry looks at."""
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
    """The number of a subquery that has none yet."""
    return next(_numbers)


def replace_subquery(subquery: SubLink, query: Query, test: Expression | None) -> SubLink:
    """The same question of another query: what it reads of the query around it is looked up anew."""
    own = () if test is None else (v for v in variables(test) if v.entry != RESULT)
    return replace(subquery, query=query, test=test, outer=(*own, *outer_columns(query)))
