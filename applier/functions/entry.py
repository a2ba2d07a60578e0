"""Describes one PostgreSQL function in the allow-list.

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
    """The function is in the allow-list, but not for these arguments."""


class CollationNeed(Enum):
    """What the function requires of the collation that PostgreSQL uses."""

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

    `physical_type` maps the arguments to the Spark type of the result. It raises UnsuitableArguments for physical types
    that are not proven. `sql` writes the Spark expression from the call and the SQL texts of its arguments. `raises`:
    PostgreSQL may report an error for some arguments. `hash_equal`: the function is an equality and equal values have
    equal physical types, so they may be grouped and joined by hash. `fuzz` are the calls that the tests make.
    """

    signature: str
    physical_type: Callable[[tuple[Expr, ...]], str]
    sql: Callable[[Call, Sequence[str]], str]
    fuzz: tuple[tuple[FuzzArg, ...], ...]
    raises: bool = False
    only_out_of_range: bool = False
    """The only error it raises is that the value is out of range for its type."""
    collation: CollationNeed = CollationNeed.NONE
    hash_equal: bool = False
    key_equal: bool = False
    """An equality whose values have keys (see comparison_keys.py) by which they are grouped and joined."""
    ordered_labels: bool = False
    """It has one argument more than the PostgreSQL function: the labels of the enum that it orders."""
    variadic: bool = False
    """The last argument may be repeated or left out."""
    strict: bool = True
    """NULL in any argument makes the result NULL."""
    session: bool = False
    """STABLE in PostgreSQL: it reads settings such as TimeZone and DateStyle, which every definition pins."""
    internal: bool = False
    """No query can call it and PostgreSQL has no equal function. It has its own tests."""
    since: int = 14
    """The first major version of PostgreSQL that has it."""
    runs_in: str = ""
    """The Java function, if the test calls are not written with its arguments."""
    spelling: str = ""
    """The SQL spelling of what is syntax in PostgreSQL and not a function (see io_cast, extreme)."""

    def hashes(self, args: Sequence[Expr]) -> bool:
        """Return whether equal values of these physical types are equal texts or numbers.

        They are not for a numeric stored as text: 1 equals 1.0.
        """
        return self.hash_equal and not any(a.type.pg.name == "numeric" and a.type.spark == "string" for a in args)

    @property
    def written(self) -> str:
        """The SQL call in PostgreSQL, as a format with {all} or {0} for the arguments."""
        return self.spelling or f'pg_catalog."{self.signature.partition("(")[0]}"({{all}})'


_ORDERED_TEXTS = frozenset({"text", "varchar", "bpchar", "uuid", "time"})


def is_ordered_by_physical_type(value: ValueType) -> bool:
    """Return whether Spark sorts the physical type as PostgreSQL sorts the values, if texts are in byte order.

    It does not for most types that are stored as PostgreSQL's text (numeric without a size, interval, jsonb, arrays,
    enums).
    """
    return value.spark != "string" or value.pg.name in _ORDERED_TEXTS


def io_cast(source: str, target: str) -> str:
    """Return the allow-list name of a cast through text (output function, then input function)."""
    return f"io_cast_{target}({source})"


def extreme(function: str, name: str) -> str:
    """Return the allow-list name of GREATEST or LEAST of two values of a type; it skips NULLs."""
    return f"{function.lower()}_of({name},{name})"


def fixed_physical_type(arguments: Sequence[str], result: str) -> Callable[[tuple[Expr, ...]], str]:
    """Return a `physical_type` function that accepts exactly these physical types."""

    def check(args: tuple[Expr, ...]) -> str:
        given = [arg.type.spark for arg in args]
        if given != list(arguments):
            raise UnsuitableArguments(f"values held as {', '.join(given)}")
        return result

    return check


def template(text: str) -> Callable[[Call, Sequence[str]], str]:
    """Return a `sql` function that fills {0}, {1} … with the arguments and {type} with the result's Spark type."""

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
    """Return an entry with fixed physical types, given separated by blanks, and one Spark SQL template."""
    physical_type, sql = fixed_physical_type(physical_types.split(), result), template(form)
    return Entry(signature, physical_type, sql, fuzz, raises=raises, collation=collation)


def decimal_of(expr: Expr) -> tuple[int, int]:
    """Return precision and scale of a decimal physical type; raise UnsuitableArguments for any other."""
    found = _DECIMAL.fullmatch(expr.type.spark)
    if found is None:
        raise UnsuitableArguments("a numeric without precision and scale", hint=BOUNDED_HINT)
    return int(found[1]), int(found[2])


def decimal(precision: int, scale: int) -> str:
    """Return the Spark type of this precision and scale."""
    return f"decimal({precision},{scale})"


def common_decimal(sizes: Sequence[tuple[int, int]]) -> str:
    """Return the narrowest decimal for all values of these sizes; raise UnsuitableArguments beyond 38 digits."""
    scale = max(s for _, s in sizes)
    precision = max(p - s for p, s in sizes) + scale
    if precision > MAX_DECIMAL_DIGITS:
        raise UnsuitableArguments(f"numerics that need {precision} digits together", hint=BOUNDED_HINT)
    return decimal(precision, scale)


def literal_int(arg: Expr) -> int:
    """Return the value of a literal integer argument; raise UnsuitableArguments for anything else."""
    if isinstance(arg, Const) and isinstance(arg.value, int):
        return arg.value
    raise UnsuitableArguments("an argument that is not a literal number", hint="write the number itself")


def literal_text(arg: Expr) -> str:
    """Return the value of a literal text argument; raise UnsuitableArguments for anything else."""
    if isinstance(arg, Const) and isinstance(arg.value, str):
        return arg.value
    raise UnsuitableArguments("an argument that is not a literal text", hint="write the text itself")
