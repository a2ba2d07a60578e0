"""Entries for functions that cut, search and pad text. Positions count characters (code points) in both engines.

PostgreSQL's substring may begin before the first character; Spark counts such positions from the end. left and right
with a negative number drop characters instead of returning them.
"""

from __future__ import annotations

from collections.abc import Iterator

from applier.functions.entry import (
    CollationNeed,
    Entry,
    Fixed,
    FuzzArg,
    UnsuitableArguments,
    fixed_physical_type,
    literal_int,
    simple,
    template,
)
from applier.plan.expr import Expr

_TEXT = "string"

# Only for arguments that are not NULL: greatest and least would skip a NULL.
_SUBSTRING = "substring({0}, greatest({1}, 1))"
_SUBSTRING_WITH_LENGTH = (
    "CASE WHEN {2} < 0 THEN CAST(raise_error('negative substring length not allowed') AS string) "
    "ELSE substring({0}, greatest({1}, 1), CAST(greatest(least(CAST({1} AS bigint) + {2}, 2147483647L) "
    "- greatest({1}, 1), 0L) AS int)) END"
)
_LEFT = (
    "CASE WHEN {1} >= 0 THEN substring({0}, 1, {1}) "
    "ELSE substring({0}, 1, CAST(greatest(CAST(char_length({0}) AS bigint) + {1}, 0L) AS int)) END"
)
_RIGHT = (
    # PostgreSQL cannot negate the smallest integer, so it drops nothing.
    "CASE WHEN {1} = CAST(-2147483648L AS int) THEN {0} "
    "WHEN {1} >= 0 THEN substring({0}, CAST(greatest(CAST(char_length({0}) AS bigint) - {1}, 0L) + 1L AS int)) "
    "ELSE substring({0}, CAST(least(- CAST({1} AS bigint), 2147483646L) + 1L AS int)) END"
)


def _null_if_any_null(form: str, width: int) -> str:
    given = " AND ".join(f"{{{i}}} IS NOT NULL" for i in range(width))
    return f"(CASE WHEN {given} THEN {form} END)"


def _cutting() -> Iterator[Entry]:
    small: tuple[FuzzArg, ...] = tuple(Fixed(str(n)) for n in (-2, 0, 1, 3))
    for function in ("substr", "substring"):
        yield simple(
            f"{function}(text,int4)",
            "string int",
            _TEXT,
            _null_if_any_null(_SUBSTRING, 2),
            ("text", "int4"),
            ("text", small[1]),
        )
        length_calls = [("text", "int4", "int4"), ("text", small[0], "int4"), ("text", small[0], small[3])]
        yield simple(
            f"{function}(text,int4,int4)",
            "string int int",
            _TEXT,
            _null_if_any_null(_SUBSTRING_WITH_LENGTH, 3),
            *length_calls,
            raises=True,
        )
    for function, form in (("left", _LEFT), ("right", _RIGHT)):
        calls = [("text", "int4"), *(("text", n) for n in small)]
        yield simple(f"{function}(text,int4)", "string int", _TEXT, _null_if_any_null(form, 2), *calls)
    yield simple("reverse(text)", "string", _TEXT, "reverse({0})", ("text",))


def _split_part_physical_type(args: tuple[Expr, ...]) -> str:
    # Spark's own split_part fails for the smallest integer, so only sensible literals are accepted.
    if not 0 < abs(literal_int(args[2])) < 1 << 20:
        raise UnsuitableArguments("this number of a part", hint="number the parts from 1, or from -1 at the end")
    return fixed_physical_type([_TEXT, _TEXT, "int"], _TEXT)(args)


def _searching() -> Iterator[Entry]:
    for function in ("strpos", "position"):
        yield simple(
            f"{function}(text,text)",
            "string string",
            "int",
            "instr({0}, {1})",
            ("text", "text"),
            collation=CollationNeed.EQUALITY,
        )
    yield simple(
        "replace(text,text,text)",
        "string string string",
        _TEXT,
        "replace({0}, {1}, {2})",
        ("text", "text", "text"),
        ("text", Fixed("'a'"), Fixed("'xy'")),
        collation=CollationNeed.EQUALITY,
    )
    yield simple(
        "translate(text,text,text)",
        "string string string",
        _TEXT,
        "translate({0}, {1}, {2})",
        ("text", "text", "text"),
        ("text", Fixed("'ab'"), Fixed("'x'")),
    )
    yield Entry(
        signature="split_part(text,text,int4)",
        physical_type=_split_part_physical_type,
        sql=template("split_part({0}, {1}, {2})"),
        fuzz=tuple(("text", second, Fixed(n)) for second in ("text", Fixed("'a'")) for n in ("1", "2", "-1", "-3")),
        collation=CollationNeed.EQUALITY,
    )
    yield simple("md5(text)", "string", _TEXT, "md5(CAST({0} AS binary))", ("text",))


def _trimming() -> Iterator[Entry]:
    for function, side in (("btrim", "BOTH"), ("ltrim", "LEADING"), ("rtrim", "TRAILING")):
        yield simple(f"{function}(text)", "string", _TEXT, f"trim({side} ' ' FROM {{0}})", ("text",))
        yield simple(
            f"{function}(text,text)",
            "string string",
            _TEXT,
            f"trim({side} {{1}} FROM {{0}})",
            ("text", "text"),
            ("text", Fixed("'ab'")),
        )


ENTRIES: tuple[Entry, ...] = (*_cutting(), *_searching(), *_trimming())
