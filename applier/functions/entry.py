"""What the allow-list says about one PostgreSQL function.

An entry names the exact pg_proc signature, the physical types it is proven for, its Spark SQL and how the fuzz tests
call it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from applier.plan.expr import Call, Const, Expr, ValueType
from shared_schema.errors import TrickleError
from shared_schema.pg_types import MAX_DECIMAL_DIGITS

_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")


BOUNDED_HINT = "declare or cast the numeric as numeric(p,s) with at most 38 digits"


class UnsuitableArguments(TrickleError):
    """The function is listed, but not for arguments of this form."""


class CollationNeed(Enum):
    """What must hold of the collation PostgreSQL would use."""

    NONE = "none"
    EQUALITY = "deterministic"
    ORDER = "byte order"
    LETTERS = "letters of ASCII"


@dataclass(frozen=True, slots=True)
class Fixed:
    """A literal argument in a fuzz call, as SQL text."""

    sql: str


FuzzArg = str | Fixed
"""A column of this PostgreSQL type filled with random and edge values, or a literal."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One function.

    `physical_type` takes the arguments to the Spark type of the result and raises Unfit for physical types that are
    not proven; `sql` writes the Spark expression from the call and its arguments' texts; `raises` says that
    PostgreSQL may report an error for some arguments; `hash_equal` that it is an equality and equal values have equal
    physical types, so that they may be grouped and joined by hash. `fuzz` are the calls the tests make.
    """

    signature: str
    physical_type: Callable[[tuple[Expr, ...]], str]
    sql: Callable[[Call, Sequence[str]], str]
    fuzz: tuple[tuple[FuzzArg, ...], ...]
    raises: bool = False
    only_out_of_range: bool = False
    """What it raises is only that its type has no such value."""
    collation: CollationNeed = CollationNeed.NONE
    hash_equal: bool = False
    key_equal: bool = False
    """An equality whose values have keys (see keys.py) by which they are grouped and joined."""
    ordered_labels: bool = False
    """Takes one argument more than the function: the labels of the enum it orders."""
    variadic: bool = False
    """The last argument may be repeated, or be left out."""
    strict: bool = True
    """NULL in any argument makes the result NULL."""
    session: bool = False
    """STABLE in PostgreSQL: it looks at TimeZone, DateStyle and their like, which every definition pins."""
    internal: bool = False
    """No query can ask for it, and no call of PostgreSQL is its equal: its own tests say what it is."""
    since: int = 14
    """The major version of PostgreSQL that brought it."""
    runs_in: str = ""
    """The Java function, where the calls of the tests are not written with its arguments."""
    spelling: str = ""
    """For what is no function of PostgreSQL but syntax (see io_cast, extreme): how it is written in SQL."""

    def hashes(self, args: Sequence[Expr]) -> bool:
        """Whether equal values of these physical types are equal texts or numbers; a numeric held as text may be 1 or
        1.0."""
        return self.hash_equal and not any(a.type.pg.name == "numeric" and a.type.spark == "string" for a in args)

    @property
    def written(self) -> str:
        """How PostgreSQL is asked for it: a format with {all} or {0} for the arguments."""
        return self.spelling or f'pg_catalog."{self.signature.partition("(")[0]}"({{all}})'


_ORDERED_TEXTS = frozenset({"text", "varchar", "bpchar", "uuid", "time"})


def is_ordered_by_physical_type(value: ValueType) -> bool:
    """Whether Spark sorts the physical type as PostgreSQL sorts the values, byte order of texts given.

    Most of what is held as PostgreSQL's text (numeric without a size, interval, jsonb, arrays, enums) is not.
    """
    return value.spark != "string" or value.pg.name in _ORDERED_TEXTS


def io_cast(source: str, target: str) -> str:
    """The name under which a cast through text (output function, then input function) stands in the allow-list."""
    return f"io_cast_{target}({source})"


def extreme(function: str, name: str) -> str:
    """The name under which GREATEST or LEAST of two values of a type stands in the allow-list; it skips NULLs."""
    return f"{function.lower()}_of({name},{name})"


def fixed_physical_type(arguments: Sequence[str], result: str) -> Callable[[tuple[Expr, ...]], str]:
    """A function over exactly these physical types."""

    def check(args: tuple[Expr, ...]) -> str:
        given = [arg.type.spark for arg in args]
        if given != list(arguments):
            raise UnsuitableArguments(f"values held as {', '.join(given)}")
        return result

    return check


def template(text: str) -> Callable[[Call, Sequence[str]], str]:
    """Spark SQL with {0}, {1} … for the arguments and {type} for the result's Spark type."""

    def write(call: Call, args: Sequence[str]) -> str:
        return text.format(*args, type=call.type.spark)

    return write


def simple(
    signature: str,
    physical_types: str,
    result: str,
    form: str,
    *fuzz: tuple[FuzzArg, ...],
    raises: bool = False,
    collation: CollationNeed = CollationNeed.NONE,
) -> Entry:
    """An entry over fixed physical types, written with blanks between them, that is one text of Spark SQL."""
    physical_type, sql = fixed_physical_type(physical_types.split(), result), template(form)
    return Entry(signature, physical_type, sql, fuzz, raises=raises, collation=collation)


def decimal_of(expr: Expr) -> tuple[int, int]:
    """Precision and scale of a decimal physical type; Unfit for any other."""
    found = _DECIMAL.fullmatch(expr.type.spark)
    if found is None:
        raise UnsuitableArguments("a numeric without precision and scale", hint=BOUNDED_HINT)
    return int(found[1]), int(found[2])


def decimal(precision: int, scale: int) -> str:
    """The Spark type."""
    return f"decimal({precision},{scale})"


def common_decimal(sizes: Sequence[tuple[int, int]]) -> str:
    """The narrowest decimal that holds every value of these sizes; Unfit beyond 38 digits."""
    scale = max(s for _, s in sizes)
    precision = max(p - s for p, s in sizes) + scale
    if precision > MAX_DECIMAL_DIGITS:
        raise UnsuitableArguments(f"numerics that need {precision} digits together", hint=BOUNDED_HINT)
    return decimal(precision, scale)


def literal_int(arg: Expr) -> int:
    """The value of a literal integer argument; Unfit for anything else."""
    if isinstance(arg, Const) and isinstance(arg.value, int):
        return arg.value
    raise UnsuitableArguments("an argument that is not a literal number", hint="write the number itself")


def literal_text(arg: Expr) -> str:
    """The value of a literal text argument; Unfit for anything else."""
    if isinstance(arg, Const) and isinstance(arg.value, str):
        return arg.value
    raise UnsuitableArguments("an argument that is not a literal text", hint="write the text itself")
