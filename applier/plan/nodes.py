"""Relational nodes: the closed union of which plans consist, with the output columns of each. Pure.

Columns are positional: a node's output is c0..cn-1, whatever the user calls them. The names that users see belong to
the StreamPlan, which is outermost.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import assert_never

from applier.plan.expr import INT8, AggregateCall, Expr, ValueType, nullable
from applier.plan.sort import SortKey
from applier.plan.window import WindowCall
from applier.zset import ZSet
from shared_schema.table_schema import TableId


@dataclass(frozen=True, slots=True)
class Field:
    """One output column of a node."""

    type: ValueType
    nullable: bool


@dataclass(frozen=True, slots=True)
class ColumnName:
    """The name of a column in the query: the FROM item it belongs to ("" for none) and its own name."""

    member: str
    column: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Named:
    """A node with the names that the query has for its columns. Only `explain` reads them."""

    names: tuple[ColumnName | None, ...] = field(default=(), compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Scan(_Named):
    """A captured relation. `columns` are the names of the columns that are read, in output order."""

    table: TableId
    relid: int
    columns: tuple[str, ...]
    fields: tuple[Field, ...]
    key: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class Filter(_Named):
    """The rows for which the predicate is true (not null, not false)."""

    input: Node
    predicate: Expr


@dataclass(frozen=True, slots=True)
class Project(_Named):
    """One output column per expression."""

    input: Node
    exprs: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Join(_Named):
    """Inner join. Output: the left columns, then the right ones.

    `equi` pairs an expression over the left input with one over the right; `residual` is over the joined output.
    No pair and no residual is a cross join.
    """

    left: Node
    right: Node
    equi: tuple[tuple[Expr, Expr], ...]
    residual: Expr | None


@dataclass(frozen=True, slots=True)
class OuterJoin(_Named):
    """Join, and the left rows without a match, with NULLs on the right; `full`: also the right rows without a match."""

    left: Node
    right: Node
    equi: tuple[tuple[Expr, Expr], ...]
    residual: Expr | None
    full: bool


@dataclass(frozen=True, slots=True)
class SemiJoin(_Named):
    """The left rows that have a match on the right, or with `anti` those that have none; each as often as it occurs."""

    left: Node
    right: Node
    equi: tuple[tuple[Expr, Expr], ...]
    residual: Expr | None
    anti: bool


@dataclass(frozen=True, slots=True)
class Aggregate(_Named):
    """Group by `keys`; output: the keys, then one column per call. Without keys there is always exactly one row."""

    input: Node
    keys: tuple[Expr, ...]
    calls: tuple[AggregateCall, ...]


@dataclass(frozen=True, slots=True)
class UnionAll(_Named):
    """The rows of all branches, with duplicates. All branches have the same column types."""

    branches: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class TopK(_Named):
    """The rows at places offset+1 to offset+limit of the order, among those with equal `keys`; limit None: all.

    With `ties` also the rows that are equal to the last of them in the order. Duplicates count as separate rows.
    """

    input: Node
    keys: tuple[Expr, ...]
    order: tuple[SortKey, ...]
    limit: int | None
    offset: int
    ties: bool


@dataclass(frozen=True, slots=True)
class Repeat(_Named):
    """Every row with its weight multiplied by `times`, which is never negative or NULL."""

    input: Node
    times: Expr


@dataclass(frozen=True, slots=True)
class Window(_Named):
    """The input's columns, then one column per call.

    `keys` are in the PARTITION BY of every call: rows with other values of the keys do not affect a row.
    """

    input: Node
    keys: tuple[Expr, ...]
    calls: tuple[WindowCall, ...]


@dataclass(frozen=True, slots=True)
class Values(_Named):
    """Rows that are written in the query: expressions without columns. One row without columns is an empty FROM."""

    rows: tuple[tuple[Expr, ...], ...]
    fields: tuple[Field, ...]


class SetReturningFunction(Enum):
    """A function that returns a set of values for one row."""

    SERIES = "generate_series"
    """Integers from the first argument to the second, in steps of the third or 1; none when an argument is NULL."""
    MOMENTS = "generate_series of timestamps"
    """Timestamps from the first argument to the second, in steps of the third, a literal number of microseconds."""
    CALENDAR = "generate_series by months"
    """The same in steps of a literal interval whose length depends on the month."""
    LISTED = "unnest of a list"
    """The arguments, one by one."""
    ELEMENTS = "unnest"
    """The elements of an array."""
    MEMBERS = "jsonb_array_elements"
    """The elements of a JSON array; an error for anything else."""


@dataclass(frozen=True, slots=True)
class TableFunction:
    """A call of a set-returning function: its arguments and the type of its members."""

    function: SetReturningFunction
    args: tuple[Expr, ...]
    type: ValueType


@dataclass(frozen=True, slots=True)
class Unnest(_Named):
    """Every input row once per member of its set, followed by the member; with `ordinality` also its number from 1.

    Several sets are read in parallel, with NULL where one is shorter. With `outer` a row whose sets are empty stays,
    with NULLs.
    """

    input: Node
    sets: tuple[TableFunction, ...]
    ordinality: bool
    outer: bool


@dataclass(frozen=True, slots=True)
class WorkTable(_Named):
    """Inside a step: the rows of the previous round of the Recursion with that number.

    During the computation `rows` holds them, or `delta` their delta.
    """

    number: int
    fields: tuple[Field, ...]
    rows: ZSet | None = None
    delta: ZSet | None = None


@dataclass(frozen=True, slots=True)
class Recursion(_Named):
    """The rows of `base`, the rows that `step` derives from them, and so on until there are no more.

    With `distinct` every row counts once, and only rows that were not seen before go into the next round.
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
    """The whole query of a stream table: its plan and the names of its columns."""

    root: Node
    names: tuple[str, ...]
    only_small_deltas: bool = False
    """Whether a delta over many change rows would be too long as a text, so that only small ones are computed."""


def named(node: Node, names: Mapping[int, ColumnName]) -> Node:
    """Return the node with names for the columns at these ordinals."""
    before = node.names or (None,) * len(fields(node))
    return replace(node, names=tuple(names.get(i, name) for i, name in enumerate(before)))


def inputs(node: Node) -> tuple[Node, ...]:
    """Return the direct inputs, left to right."""
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
    """Yield the node and everything below it, parents first."""
    yield node
    for child in inputs(node):
        yield from walk(child)


def scans(node: Node) -> Iterator[Scan]:
    """Return every Scan at or below the node."""
    return (n for n in walk(node) if isinstance(n, Scan))


def is_derived(node: Node) -> bool:
    """Whether a row of the node depends on more than a single row of one relation."""
    match node:
        case Scan():
            return False
        case Filter() | Project() | Unnest():
            return is_derived(node.input)
        case _:
            return True


def fields(node: Node) -> tuple[Field, ...]:
    """Return the output columns."""
    match node:
        case Scan() | Values() | WorkTable():
            return node.fields
        case Recursion():
            pairs = zip(fields(node.base), fields(node.step), strict=True)
            return tuple(Field(a.type, a.nullable or b.nullable) for a, b in pairs)
        case Unnest():
            return fields(node.input) + _unnested_fields(node)
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


def _unnested_fields(node: Unnest) -> tuple[Field, ...]:
    members = tuple(Field(s.type, node.outer or len(node.sets) > 1 or _has_null_members(s)) for s in node.sets)
    number = Field(INT8, node.outer)
    return (*members, number) if node.ordinality else members


def _has_null_members(function: TableFunction) -> bool:
    listed = function.function is SetReturningFunction.LISTED and any(nullable(arg) for arg in function.args)
    return listed or function.function is SetReturningFunction.ELEMENTS
