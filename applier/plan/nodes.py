"""Relational nodes: the closed union a stream table's query is made of. Pure; each knows its columns and its row key.

Columns are positional: a node's output is c0..cn-1, whatever the user calls them. The names a user sees belong to the
StreamPlan, the outermost thing.

The *row key* of a node is a set of output ordinals whose values are unique in its result: `()` says that there is at
most one row, None that rows may repeat.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import assert_never

from applier.plan.expr import INT8, AggregateCall, Coalesce, Col, Const, Expr, IsNull, ValueType, Widen, nullable
from applier.plan.sort import SortKey, fixed_columns
from applier.plan.window import WindowCall
from shared_schema.table_schema import TableId


@dataclass(frozen=True, slots=True)
class Field:
    """One output column of a node."""

    type: ValueType
    nullable: bool


@dataclass(frozen=True, slots=True)
class Scan:
    """A captured relation. `columns` are the relation's column names that are read, in output order."""

    table: TableId
    relid: int
    columns: tuple[str, ...]
    fields: tuple[Field, ...]
    key: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class Filter:
    """Rows for which the predicate is true (not null, not false)."""

    input: Node
    predicate: Expr


@dataclass(frozen=True, slots=True)
class Project:
    """One output column per expression."""

    input: Node
    exprs: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Join:
    """Inner join. Output: the left columns, then the right ones.

    `equi` pairs an expression over the left input with one over the right; `residual` is over the joined output.
    No pair and no residual is a cross join.
    """

    left: Node
    right: Node
    equi: tuple[tuple[Expr, Expr], ...]
    residual: Expr | None


@dataclass(frozen=True, slots=True)
class OuterJoin:
    """Join, and every left row without a partner with NULLs on the right; `full`: also the right ones, mirrored."""

    left: Node
    right: Node
    equi: tuple[tuple[Expr, Expr], ...]
    residual: Expr | None
    full: bool


@dataclass(frozen=True, slots=True)
class SemiJoin:
    """The left rows that have a partner on the right, or with `anti` those that have none; each as often as it is."""

    left: Node
    right: Node
    equi: tuple[tuple[Expr, Expr], ...]
    residual: Expr | None
    anti: bool


@dataclass(frozen=True, slots=True)
class Aggregate:
    """Group by `keys`; output: the keys, then one column per call. Without keys there is always exactly one row."""

    input: Node
    keys: tuple[Expr, ...]
    calls: tuple[AggregateCall, ...]


@dataclass(frozen=True, slots=True)
class UnionAll:
    """The rows of every branch, as often as each has them. All branches have the same column types."""

    branches: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class TopK:
    """Of the rows that share the values of `keys` those at places offset+1 to offset+limit of the order; None: all.

    With `ties` also those that the order does not tell from the last of them. A row is taken as often as it is there.
    """

    input: Node
    keys: tuple[Expr, ...]
    order: tuple[SortKey, ...]
    limit: int | None
    offset: int
    ties: bool

    @property
    def decided(self) -> bool:
        """Whether rows at the same place of the order are always the same, so that the result is just one."""
        return (self.ties and not self.offset) or identifies_rows(
            self.input, (*self.keys, *(k.expr for k in self.order))
        )


@dataclass(frozen=True, slots=True)
class Repeat:
    """Every row as many times more as `times` says, which is never negative or NULL."""

    input: Node
    times: Expr


@dataclass(frozen=True, slots=True)
class Window:
    """The input's columns, then one column per call.

    `keys` are in the partition of every call: what happens to rows with other values of them is of no concern.
    """

    input: Node
    keys: tuple[Expr, ...]
    calls: tuple[WindowCall, ...]


@dataclass(frozen=True, slots=True)
class Values:
    """Rows written in the query: expressions without columns. One row of no column is an empty FROM."""

    rows: tuple[tuple[Expr, ...], ...]
    fields: tuple[Field, ...]


class SetReturningFunction(Enum):
    """What makes a set out of one row."""

    SERIES = "generate_series"
    """Integers from the first argument to the second, by the third or 1; none when an argument is NULL."""
    MOMENTS = "generate_series of timestamps"
    """Timestamps from the first argument to the second, by the third, which is a literal of so many microseconds."""
    CALENDAR = "generate_series by months"
    """The same by a literal interval that is longer in some months than in others."""
    LISTED = "unnest of a list"
    """The arguments one by one."""
    ELEMENTS = "unnest"
    """The elements of an array."""
    MEMBERS = "jsonb_array_elements"
    """The elements of a JSON array; an error for anything else."""


_RISING = frozenset({SetReturningFunction.SERIES, SetReturningFunction.MOMENTS, SetReturningFunction.CALENDAR})
"""Those whose members are all different."""


@dataclass(frozen=True, slots=True)
class TableFunction:
    """A set made of one row: by which function, of what, and the type of its members."""

    function: SetReturningFunction
    args: tuple[Expr, ...]
    type: ValueType


@dataclass(frozen=True, slots=True)
class Unnest:
    """Every input row once per member of its own set; then the member, with `ordinality` also its number from 1.

    Several sets are gone through side by side, NULL where one is shorter. With `outer` a row whose sets are empty
    stays, with NULLs.
    """

    input: Node
    sets: tuple[TableFunction, ...]
    ordinality: bool
    outer: bool


@dataclass(frozen=True, slots=True)
class WorkTable:
    """Inside a step: the rows of the round before, of the Recursion of that number.

    While it is computed `text` are those rows, or `changed` the ones that come to them.
    """

    number: int
    fields: tuple[Field, ...]
    text: str | None = None
    changed: str | None = None


@dataclass(frozen=True, slots=True)
class Recursion:
    """The rows of `base`, those `step` makes of them, those it makes of these, and so on until there are no more.

    With `distinct` every row counts once, and only rows not seen before go on.
    """

    number: int
    base: Node
    step: Node
    distinct: bool


Node = (
    Scan
    | WorkTable
    | Recursion
    | Values
    | Unnest
    | Filter
    | Project
    | Join
    | OuterJoin
    | SemiJoin
    | Aggregate
    | UnionAll
    | TopK
    | Window
    | Repeat
)


@dataclass(frozen=True, slots=True)
class StreamPlan:
    """A stream table's whole query: what it computes and how its columns are called."""

    root: Node
    names: tuple[str, ...]


def inputs(node: Node) -> tuple[Node, ...]:
    """The direct inputs, left to right."""
    match node:
        case Scan() | Values() | WorkTable():
            return ()
        case Recursion():
            return (node.base, node.step)
        case Filter() | Project() | Aggregate() | TopK() | Window() | Repeat() | Unnest():
            return (node.input,)
        case Join(left=left, right=right) | OuterJoin(left=left, right=right) | SemiJoin(left=left, right=right):
            return (left, right)
        case UnionAll(branches=branches):
            return branches
        case _:
            assert_never(node)


def walk(node: Node) -> Iterator[Node]:
    """The node and everything below it, parents first."""
    yield node
    for child in inputs(node):
        yield from walk(child)


def scans(node: Node) -> Iterator[Scan]:
    """Every Scan at or below the node."""
    return (n for n in walk(node) if isinstance(n, Scan))


def is_derived(node: Node) -> bool:
    """Whether its rows depend on more than single rows of one relation."""
    match node:
        case Scan():
            return False
        case Filter() | Project() | Unnest():
            return is_derived(node.input)
        case _:
            return True


def fields(node: Node) -> tuple[Field, ...]:
    """The output columns."""
    match node:
        case Scan() | Values() | WorkTable():
            return node.fields
        case Recursion():
            pairs = zip(fields(node.base), fields(node.step), strict=True)
            return tuple(Field(a.type, a.nullable or b.nullable) for a, b in pairs)
        case Unnest():
            return fields(node.input) + _unfolded(node)
        case Filter() | TopK() | Repeat():
            return fields(node.input)
        case Project():
            return tuple(_field(e) for e in node.exprs)
        case Join():
            return fields(node.left) + fields(node.right)
        case SemiJoin():
            return fields(node.left)
        case OuterJoin():
            left = _with_null(fields(node.left)) if node.full else fields(node.left)
            return left + _with_null(fields(node.right))
        case Aggregate():
            return tuple(_field(e) for e in node.keys) + tuple(Field(c.type, c.nullable) for c in node.calls)
        case Window():
            return fields(node.input) + tuple(Field(c.type, c.nullable) for c in node.calls)
        case UnionAll():
            columns = zip(*(fields(branch) for branch in node.branches), strict=True)
            return tuple(Field(column[0].type, any(f.nullable for f in column)) for column in columns)
        case _:
            assert_never(node)


def _with_null(columns: tuple[Field, ...]) -> tuple[Field, ...]:
    return tuple(Field(column.type, True) for column in columns)


def _field(expr: Expr) -> Field:
    return Field(expr.type, nullable(expr))


def row_key(node: Node) -> tuple[int, ...] | None:
    """Output ordinals that identify a row; None when rows may repeat."""
    match node:
        case Scan():
            return node.key
        case Values():
            return () if len(node.rows) == 1 else None
        case WorkTable():
            return None
        case Recursion():
            return tuple(range(len(fields(node)))) if node.distinct else None
        case Unnest():
            return _unfolded_key(node)
        case Filter() | Window():
            return row_key(node.input)
        case Project():
            return _projected_key(row_key(node.input), node.exprs)
        case Join():
            return _joined_key(node)
        case SemiJoin():
            return row_key(node.left)
        case OuterJoin():
            return _outer_key(node)
        case Aggregate():
            return tuple(range(len(node.keys)))
        case UnionAll() | Repeat():
            return None
        case TopK():
            return _top_key(node)
        case _:
            assert_never(node)


def _joined_key(node: Join) -> tuple[int, ...] | None:
    """Of either key what the pairs bind is known from the other row: a side whose key they bind needs none."""
    left, right = row_key(node.left), row_key(node.right)
    if left is None or right is None:
        return None
    width, bound = len(fields(node.left)), _bound(theirs for _, theirs in node.equi)
    if not set(right) <= bound and set(left) <= _bound(ours for ours, _ in node.equi):
        return tuple(width + i for i in right)
    return left + tuple(width + i for i in right if i not in bound)


def _outer_key(node: OuterJoin) -> tuple[int, ...] | None:
    """Both keys: a row without a partner has NULL for the other's, and no second row with it.

    In a full join a left row without a partner and a right one can only be told apart where a key has no NULL itself.
    """
    left, right = row_key(node.left), row_key(node.right)
    if left is None or right is None:
        return None
    columns = fields(node.left), fields(node.right)
    if node.full and all(columns[0][i].nullable for i in left) and all(columns[1][i].nullable for i in right):
        return None
    bound = set() if node.full else _bound(theirs for _, theirs in node.equi)
    return left + tuple(len(columns[0]) + i for i in right if i not in bound)


def _unfolded(node: Unnest) -> tuple[Field, ...]:
    members = tuple(Field(s.type, node.outer or len(node.sets) > 1 or _holds_null(s)) for s in node.sets)
    number = Field(INT8, node.outer)
    return (*members, number) if node.ordinality else members


def _holds_null(made: TableFunction) -> bool:
    listed = made.function is SetReturningFunction.LISTED and any(nullable(arg) for arg in made.args)
    return listed or made.function is SetReturningFunction.ELEMENTS


def _unfolded_key(node: Unnest) -> tuple[int, ...] | None:
    """The input's key and the number of the member, or the member itself where none repeats."""
    key, width = row_key(node.input), len(fields(node.input))
    if key is not None and node.ordinality:
        return (*key, width + len(node.sets))
    rising = len(node.sets) == 1 and node.sets[0].function in _RISING
    return (*key, width) if key is not None and rising else None


def _top_key(node: TopK) -> tuple[int, ...] | None:
    """One row for each combination of the keys, or else whatever tells the input's rows apart."""
    if node.limit == 1 and not node.ties and all(isinstance(key, Col) for key in node.keys):
        return tuple(sorted(fixed_columns(node.keys))) if len(fixed_columns(node.keys)) == len(set(node.keys)) else None
    return row_key(node.input)


def identifies_rows(node: Node, exprs: tuple[Expr, ...]) -> bool:
    """Whether two rows of the node for which all these expressions are equal are always the same row."""
    fixed, key = _known_with(node, frozenset(fixed_columns(exprs))), row_key(node)
    return (key is not None and set(key) <= fixed) or len(fixed) == len(fields(node))


def _known_with(node: Node, fixed: frozenset[int]) -> frozenset[int]:
    """The columns whose values are known where those of some are: what an inner join makes equal to them too."""
    match node:
        case Filter() | Repeat():
            return _known_with(node.input, fixed)
        case Join():
            width = len(fields(node.left))
            left = _known_with(node.left, frozenset(i for i in fixed if i < width))
            right = _known_with(node.right, frozenset(i - width for i in fixed if i >= width))
            equal = _equal_columns(node.equi)
            left |= {ours for ours, theirs in equal if theirs in right}
            right |= {theirs for ours, theirs in equal if ours in left}
            return fixed | left | {width + i for i in right}
        case _:
            return fixed


def _equal_columns(equi: tuple[tuple[Expr, Expr], ...]) -> list[tuple[int, int]]:
    """The columns that the pairs make equal, or both NULL."""
    found = []
    for pair in equi:
        match tuple(map(_unwidened, pair)):
            # Zero and negative zero are equal and not the same.
            case (Col() as mine, Col() as other) if mine.type.spark not in ("float", "double"):
                found.append((mine.ordinal, other.ordinal))
            case (Coalesce(args=(Col() as mine, Const())), Coalesce(args=(Col() as other, Const()))):
                if any(isinstance(a, IsNull) and a.arg == mine for a, _ in equi):
                    found.append((mine.ordinal, other.ordinal))
            case _:
                continue
    return found


def _bound(sides: Iterable[Expr]) -> set[int]:
    """The columns that one side of the pairs fixes; a wider physical type fixes them too.

    A value in place of NULL fixes a column together with whether it is NULL.
    """
    plain = [_unwidened(side) for side in sides]
    found = {side.ordinal for side in plain if isinstance(side, Col)}
    tested = {side.arg for side in plain if isinstance(side, IsNull)}
    for side in plain:
        match side:
            case Coalesce(args=(Col() as column, Const())) if column in tested:
                found.add(column.ordinal)
            case _:
                continue
    return found


def _unwidened(expr: Expr) -> Expr:
    return _unwidened(expr.arg) if isinstance(expr, Widen) else expr


def _projected_key(key: tuple[int, ...] | None, exprs: tuple[Expr, ...]) -> tuple[int, ...] | None:
    if key is None:
        return None
    place = {e.ordinal: i for i, e in reversed(list(enumerate(exprs))) if isinstance(e, Col)}
    return tuple(place[i] for i in key) if all(i in place for i in key) else None
