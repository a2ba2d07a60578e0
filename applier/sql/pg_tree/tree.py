"""The typed nodes of PostgreSQL's analysed expressions, under PostgreSQL's names: the readers build them. Pure.

Objects are identified by object id, columns by (range-table entry, attribute number). Positions (`at`) are only for
messages; two expressions are compared without them, exactly as in PostgreSQL.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from applier.sql.pg_tree.query_tree import Query


ARGUMENT = -1
"""The range-table entry of the arguments of a function, inside its body."""

RESULT = 0
"""The range-table entry of the result columns of a subquery, inside its test."""


@dataclass(frozen=True, slots=True)
class Var:
    """A column: attribute `number` of range-table entry `entry` (from 1), `levels_up` queries further out."""

    entry: int
    number: int
    type: int
    typmod: int
    collation: int
    levels_up: int
    at: int | None = field(compare=False)
    never_nulled: bool = field(default=False, compare=False)
    """No outer join replaces its whole row by NULL; known since 16."""


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal as the bytes of its datum; None is NULL."""

    type: int
    typmod: int
    collation: int
    length: int
    by_value: bool
    datum: bytes | None
    at: int | None = field(compare=False)


@dataclass(frozen=True, slots=True)
class FuncExpr:
    """A function call; `operator` is the operator in the text, 0 for a call by name or a cast."""

    function: int
    operator: int
    type: int
    collation: int
    input_collation: int
    args: tuple[Expression, ...]
    at: int | None = field(compare=False)


@dataclass(frozen=True, slots=True)
class DistinctExpr:
    """`IS DISTINCT FROM`, with the equality function that it uses."""

    equality: FuncExpr


@dataclass(frozen=True, slots=True)
class NullIfExpr:
    """NULLIF, with the equality function that it uses."""

    equality: FuncExpr


@dataclass(frozen=True, slots=True)
class RelabelType:
    """The same bytes under another type."""

    arg: Expression
    type: int
    typmod: int
    collation: int
    at: int | None = field(compare=False)


@dataclass(frozen=True, slots=True)
class CoerceViaIO:
    """A cast without a function: the output function of one type, then the input function of the other."""

    arg: Expression
    type: int
    collation: int
    at: int | None = field(compare=False)


@dataclass(frozen=True, slots=True)
class ArrayCoerceExpr:
    """A cast of every element of an array."""

    arg: Expression
    type: int
    typmod: int
    collation: int
    at: int | None = field(compare=False)


class BoolOperator(Enum):
    """The values are outfuncs.c's."""

    AND = "and"
    OR = "or"
    NOT = "not"


@dataclass(frozen=True, slots=True)
class BoolExpr:
    """AND, OR, NOT."""

    connective: BoolOperator
    args: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class NullTest:
    """`IS NULL`, or `IS NOT NULL` when negated; for a row, whether all fields are NULL, or none is."""

    arg: Expression
    negated: bool
    of_row: bool = False


class BoolTestType(Enum):
    """The values are BoolTestType's."""

    IS_TRUE = 0
    IS_NOT_TRUE = 1
    IS_FALSE = 2
    IS_NOT_FALSE = 3
    IS_UNKNOWN = 4
    IS_NOT_UNKNOWN = 5


@dataclass(frozen=True, slots=True)
class BooleanTest:
    """`IS [NOT] TRUE | FALSE | UNKNOWN`."""

    arg: Expression
    test: BoolTestType


@dataclass(frozen=True, slots=True)
class CaseExpr:
    """CASE; with a `subject` the conditions contain CaseTestExpr for it."""

    subject: Expression | None
    branches: tuple[tuple[Expression, Expression], ...]
    default: Expression
    type: int
    collation: int
    at: int | None = field(compare=False)


@dataclass(frozen=True, slots=True)
class CaseTestExpr:
    """A placeholder for the subject of the innermost enclosing CASE."""

    type: int
    typmod: int


@dataclass(frozen=True, slots=True)
class CoalesceExpr:
    """COALESCE."""

    args: tuple[Expression, ...]
    type: int
    collation: int
    at: int | None = field(compare=False)


@dataclass(frozen=True, slots=True)
class MinMaxExpr:
    """GREATEST, or LEAST when not `largest`."""

    largest: bool
    args: tuple[Expression, ...]
    type: int
    collation: int
    input_collation: int
    at: int | None = field(compare=False)


@dataclass(frozen=True, slots=True)
class AnyOfList:
    """`subject op ANY (elements)`, or ALL when `every`."""

    function: int
    operator: int
    every: bool
    input_collation: int
    subject: Expression
    elements: tuple[Expression, ...]
    at: int | None = field(compare=False)


@dataclass(frozen=True, slots=True)
class AggregateSort:
    """One ORDER BY key: the operator that compares rows (`<`, or `>` for DESC), and where NULLs go."""

    expression: Expression
    operator: int
    nulls_first: bool


@dataclass(frozen=True, slots=True)
class ScalarArrayOpExpr:
    """`subject op ANY (array)`, or ALL when `every`, for an array that is not written as ARRAY[…]."""

    function: int
    operator: int
    every: bool
    input_collation: int
    subject: Expression
    array: Expression
    at: int | None = field(compare=False)


@dataclass(frozen=True, slots=True)
class ArrayExpr:
    """`ARRAY[…]` of one dimension."""

    elements: tuple[Expression, ...]
    type: int
    at: int | None = field(compare=False)


@dataclass(frozen=True, slots=True)
class SubscriptingRef:
    """`array[index]`, or `array[lower:index]`."""

    array: Expression
    lower: Expression | None
    index: Expression
    type: int
    collation: int


@dataclass(frozen=True, slots=True)
class RowExpr:
    """`ROW(…)`, or the whole row of a FROM item, which `may_be_missing` if it is the nullable side of an outer join."""

    fields: tuple[Expression, ...]
    names: tuple[str, ...]
    type: int
    may_be_missing: bool
    at: int | None = field(compare=False)


@dataclass(frozen=True, slots=True)
class RowIn:
    """Whether an array of rows contains a row; NULL fields are equal to each other."""

    row: RowExpr
    rows: Expression


@dataclass(frozen=True, slots=True)
class RowCompareExpr:
    """`(a, b) < (c, d)`, also with <=, > and >=: the comparison of each pair. PostgreSQL turns `=` of rows into AND."""

    pairs: tuple[FuncExpr, ...]
    strict: bool


@dataclass(frozen=True, slots=True)
class CollateExpr:
    """`arg COLLATE collation`."""

    arg: Expression
    collation: int


@dataclass(frozen=True, slots=True)
class Aggref:
    """An aggregate; no argument for count(*). `distinct` are the equality operators of DISTINCT, one per argument."""

    function: int
    type: int
    collation: int
    input_collation: int
    args: tuple[Expression, ...]
    direct: tuple[Expression, ...]
    order: tuple[AggregateSort, ...]
    distinct: tuple[int, ...]
    filter: Expression | None
    at: int | None = field(compare=False)


@dataclass(frozen=True, slots=True)
class WindowFunc:
    """A window function or an aggregate over a window; `window` is the number of the window in the query."""

    function: int
    type: int
    collation: int
    input_collation: int
    window: int
    star: bool
    args: tuple[Expression, ...]
    filter: Expression | None
    at: int | None = field(compare=False)


@dataclass(frozen=True, slots=True)
class SetReturningExpr:
    """A call of a set-returning function; for unnest(ARRAY[…]) the arguments are the elements, one by one."""

    function: int
    type: int
    collation: int
    input_collation: int
    args: tuple[Expression, ...]
    at: int | None = field(compare=False)


class JsonExprOp(Enum):
    """Which SQL/JSON query function it is; the values are JsonExprOp's."""

    EXISTS = 0
    QUERY = 1
    VALUE = 2
    ROWS = 3
    """The rows of JSON_TABLE, as an array."""


class JsonWrapper(Enum):
    """The values are JsonWrapper's."""

    UNSPECIFIED = 0
    NEVER = 1
    SEVERAL = 2
    ALWAYS = 3


@dataclass(frozen=True, slots=True)
class JsonExpr:
    """JSON_EXISTS, JSON_QUERY or JSON_VALUE, with the values for ON EMPTY and ON ERROR; None raises an error."""

    op: JsonExprOp
    json: Expression
    path: Expression
    names: tuple[str, ...]
    passing: tuple[Expression, ...]
    on_empty: Expression | None
    on_error: Expression | None
    wrapper: JsonWrapper
    omits_quotes: bool
    type: int
    typmod: int
    collation: int
    at: int | None = field(compare=False)
    of_row: bool = False
    """A column of JSON_TABLE: it is not evaluated for a missing row."""


@dataclass(frozen=True, slots=True)
class JsonConstructorExpr:
    """JSON_ARRAY, or JSON_OBJECT of alternating keys and values; `skips_null` omits NULL values."""

    is_object: bool
    args: tuple[Expression, ...]
    skips_null: bool
    type: int
    at: int | None = field(compare=False)


class JsonShape(Enum):
    """The values are JsonValueType's."""

    ANY = 0
    OBJECT = 1
    ARRAY = 2
    SCALAR = 3


@dataclass(frozen=True, slots=True)
class JsonIsPredicate:
    """`arg IS JSON [OBJECT | ARRAY | SCALAR] [WITH UNIQUE KEYS]`."""

    arg: Expression
    shape: JsonShape
    unique: bool
    at: int | None = field(compare=False)


@dataclass(frozen=True, slots=True)
class GroupingFunc:
    """GROUPING(): which of these GROUP BY keys (by reference) the row is not grouped by."""

    references: tuple[int, ...]
    at: int | None = field(compare=False)


class SubLinkType(Enum):
    """How an expression uses a subquery; the values are SubLinkType's."""

    EXISTS = 0
    ALL = 1
    ANY = 2
    ROW = 3
    """A comparison with its only row."""
    VALUE = 4
    ARRAY = 6


@dataclass(frozen=True, slots=True)
class SubLink:
    """A subquery inside an expression. Two of them are never equal, even with the same text.

    `test` is the comparison of ANY and ALL, with the columns of the subquery as entry 0. `outer` are the columns that
    it reads of its outer query.
    """

    number: int
    kind: SubLinkType = field(compare=False)
    query: Query = field(compare=False)
    test: Expression | None = field(compare=False)
    outer: tuple[Expression, ...] = field(compare=False)
    collation: int = field(compare=False)
    at: int | None = field(compare=False)


Expression = (
    Var
    | Constant
    | FuncExpr
    | DistinctExpr
    | NullIfExpr
    | RelabelType
    | CoerceViaIO
    | ArrayCoerceExpr
    | BoolExpr
    | NullTest
    | BooleanTest
    | CaseExpr
    | CaseTestExpr
    | CoalesceExpr
    | MinMaxExpr
    | AnyOfList
    | ScalarArrayOpExpr
    | ArrayExpr
    | SubscriptingRef
    | RowExpr
    | RowIn
    | RowCompareExpr
    | CollateExpr
    | Aggref
    | JsonExpr
    | JsonConstructorExpr
    | JsonIsPredicate
    | GroupingFunc
    | WindowFunc
    | SetReturningExpr
    | SubLink
)
