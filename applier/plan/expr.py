"""Expressions of a plan: resolved by PostgreSQL, evaluated by Spark, over the ordinals of a node's input.

A closed union: no other expression can be in a plan, so nothing is evaluated by guessing. Spark is not imported here;
its types are names, written as in Spark SQL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import assert_never

from shared_schema.change_row import Value
from shared_schema.pg_types import PgType


@dataclass(frozen=True, slots=True)
class ValueType:
    """The PostgreSQL type of a value, and the Spark type (DDL text) that represents it exactly inside the engine."""

    pg: PgType
    spark: str

    @classmethod
    def of_column(cls, pg: PgType) -> ValueType:
        """Return the type of a captured column, in its physical type."""
        return cls(pg, pg.spark_ddl)


BOOL = ValueType(PgType(16, -1, "bool", "boolean"), "boolean")
INT4 = ValueType(PgType(23, -1, "int4", "integer"), "int")
INT8 = ValueType(PgType(20, -1, "int8", "bigint"), "bigint")
TEXT = ValueType(PgType(25, -1, "text", "text"), "string")
JSONB = ValueType(PgType(3802, -1, "jsonb", "jsonb"), "string")


@dataclass(frozen=True, slots=True)
class Col:
    """The input's column at this ordinal."""

    ordinal: int
    type: ValueType
    nullable: bool = True


@dataclass(frozen=True, slots=True)
class Const:
    """A literal in its physical type."""

    value: Value
    type: ValueType


@dataclass(frozen=True, slots=True)
class Call:
    """A function or operator by its exact pg_proc signature, e.g. `int4pl(int4,int4)`."""

    signature: str
    args: tuple[Expr, ...]
    type: ValueType


class Logic(Enum):
    """SQL's three-valued connectives."""

    AND = "and"
    OR = "or"
    NOT = "not"


@dataclass(frozen=True, slots=True)
class BoolOp:
    """AND, OR or NOT over truth values."""

    logic: Logic
    args: tuple[Expr, ...]
    type: ValueType


@dataclass(frozen=True, slots=True)
class IsNull:
    """`arg IS NULL`, or `arg IS NOT NULL` when negated."""

    arg: Expr
    negated: bool
    type: ValueType


@dataclass(frozen=True, slots=True)
class Case:
    """The result of the first branch whose condition is true, else the default; later branches are not evaluated."""

    branches: tuple[tuple[Expr, Expr], ...]
    default: Expr
    type: ValueType


@dataclass(frozen=True, slots=True)
class Coalesce:
    """The first argument that is not NULL; later ones are not evaluated."""

    args: tuple[Expr, ...]
    type: ValueType


@dataclass(frozen=True, slots=True)
class Widen:
    """The same value in a wider physical type, so that both sides of an operation have one type."""

    arg: Expr
    type: ValueType


Expr = Col | Const | Call | BoolOp | IsNull | Case | Coalesce | Widen


def children(expr: Expr) -> tuple[Expr, ...]:
    """Return the direct arguments."""
    match expr:
        case Col() | Const():
            return ()
        case Call(args=args) | BoolOp(args=args) | Coalesce(args=args):
            return args
        case IsNull(arg=arg) | Widen(arg=arg):
            return (arg,)
        case Case(branches=branches, default=default):
            return (*(part for branch in branches for part in branch), default)
        case _:
            assert_never(expr)


def cols_read(expr: Expr) -> Iterator[Col]:
    """Yield every input column that the expression reads, with repetitions."""
    if isinstance(expr, Col):
        yield expr
    for child in children(expr):
        yield from cols_read(child)


def columns_read(expr: Expr) -> Iterator[int]:
    """Yield every input ordinal that the expression reads, with repetitions."""
    return (col.ordinal for col in cols_read(expr))


def nullable(expr: Expr) -> bool:
    """Whether the value may be NULL; True when in doubt."""
    match expr:
        case Col():
            return expr.nullable
        case Const():
            return expr.value is None
        case IsNull():
            return False
        case BoolOp():
            return any(nullable(arg) for arg in expr.args)
        case Coalesce():
            return all(nullable(arg) for arg in expr.args)
        case Widen():
            return nullable(expr.arg)
        case Case():
            return any(nullable(result) for _, result in expr.branches) or nullable(expr.default)
        case Call():
            return True
        case _:
            assert_never(expr)


@dataclass(frozen=True, slots=True)
class SortKey:
    """One key of ORDER BY."""

    expr: Expr
    descending: bool
    nulls_first: bool


@dataclass(frozen=True, slots=True)
class Fold:
    """How a user-defined aggregate processes rows one by one: `step` computes a new state from the old one and a row.

    Column 0 is the state, columns 1 … are the arguments. `initial` is the state before the first row, as text of its
    type; with `seeded` it is the first argument of the first row. With `strict` rows with a NULL do not count, and a
    state that is NULL stays NULL. `any_order`: the order of the rows makes no difference. `final` reads the last state.
    """

    state: ValueType
    initial: str | None
    seeded: bool
    strict: bool
    any_order: bool
    step: Expr
    final: Expr
    null_of_none: bool
    """Whether the result is NULL where no row counts."""


@dataclass(frozen=True, slots=True)
class AggregateCall:
    """One aggregate of an Aggregate node by its exact pg_proc signature, e.g. `sum(int4)`.

    Only rows for which `filter` is true count, with `distinct` equal arguments once; `order` is the order of the rows,
    for aggregates to which it matters; `direct` are the arguments in front of WITHIN GROUP. `distinct_by` are the
    expressions that compare arguments where equal ones may look different; of those the one that sorts first counts.
    `fold` describes a user-defined aggregate.
    """

    signature: str
    args: tuple[Expr, ...]
    type: ValueType
    nullable: bool = True
    distinct: bool = False
    filter: Expr | None = None
    order: tuple[SortKey, ...] = ()
    direct: tuple[Expr, ...] = ()
    distinct_by: tuple[Expr, ...] = ()
    fold: Fold | None = None


def shift(expr: Expr, by: int) -> Expr:
    """Return the same expression over an input whose columns moved up by that many places."""
    return renumber(expr, lambda ordinal: ordinal + by)


def renumber(expr: Expr, place: Callable[[int], int]) -> Expr:
    """Return the same expression over an input whose columns have other places."""
    return map_columns(expr, lambda column: replace(column, ordinal=place(column.ordinal)))


def substitute(expr: Expr, columns: Sequence[Expr]) -> Expr:
    """Return the same expression with its columns replaced by the expressions that compute them."""
    return map_columns(expr, lambda column: columns[column.ordinal])


def map_columns(expr: Expr, of: Callable[[Col], Expr]) -> Expr:
    """Return the same expression with each column replaced by what `of` returns for it."""
    match expr:
        case Col():
            return of(expr)
        case Const():
            return expr
        case Call() | BoolOp() | Coalesce():
            return replace(expr, args=tuple(map_columns(arg, of) for arg in expr.args))
        case IsNull() | Widen():
            return replace(expr, arg=map_columns(expr.arg, of))
        case Case():
            branches = tuple((map_columns(when, of), map_columns(then, of)) for when, then in expr.branches)
            return replace(expr, branches=branches, default=map_columns(expr.default, of))
        case _:
            assert_never(expr)
