"""Entries for ||, concat and concat_ws over values of any type, and for enums, which sort in declaration order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from applier.functions.entry import Entry, Fixed, fixed_physical_type, io_cast, template
from applier.functions.numeric.integers import COMPARISONS
from applier.functions.output_text import as_cast, output_text_sql
from applier.plan.expr import Call, Expr

_TEXT = "string"
_EMPTY = "''"


def _check_printable(args: tuple[Expr, ...]) -> str:
    for arg in args:
        output_text_sql(arg, "")
    return _TEXT


def _write_outputs(call: Call, args: Sequence[str]) -> list[str]:
    return [output_text_sql(arg, sql) for arg, sql in zip(call.args, args, strict=True)]


def _write_concat(call: Call, args: Sequence[str]) -> str:
    return f"concat({', '.join(f'coalesce({text}, {_EMPTY})' for text in _write_outputs(call, args))})"


def _write_concat_ws(call: Call, args: Sequence[str]) -> str:
    # For an empty list Spark returns the empty text, like PostgreSQL; both skip NULL.
    return f"concat_ws({', '.join(_write_outputs(call, args))})"


def _write_concat_operator(call: Call, args: Sequence[str]) -> str:
    return f"concat({', '.join(as_cast(arg, sql) for arg, sql in zip(call.args, args, strict=True))})"


def _texts() -> Iterator[Entry]:
    others = ("int4", "bool", "numeric", "numeric(10,2)", "date", "timestamp", "float8", "char(6)", "interval", "jsonb")
    yield Entry(
        "textanycat(text,anynonarray)",
        _check_printable,
        _write_concat_operator,
        tuple(("text", t) for t in others),
        session=True,
    )
    yield Entry(
        "anytextcat(anynonarray,text)",
        _check_printable,
        _write_concat_operator,
        tuple((t, "text") for t in others),
        session=True,
    )
    yield Entry(
        "concat(any)", _check_printable, _write_concat,
        (("text",), ("text", "int4", "bool"), ("numeric(10,2)", "date"), ("timestamptz", "float8"),
         ("char(6)", "text")),
        session=True, strict=False, variadic=True,
    )  # fmt: skip
    yield Entry(
        "concat_ws(text,any)", _check_printable, _write_concat_ws,
        ((Fixed("','"), "text", "int4", "bool"), ("text", "text", "numeric"), (Fixed("','"), "text")),
        session=True, strict=False, variadic=True,
    )  # fmt: skip


def _labels(args: tuple[Expr, ...]) -> str:
    return fixed_physical_type([_TEXT, _TEXT], "boolean")(args[:2])


def _enums() -> Iterator[Entry]:
    for suffix, sign in COMPARISONS.items():
        ordered = suffix not in ("eq", "ne")
        place = "pg_casts_place({{{0}}}, {{2}})"
        sides = [place.format(i) if ordered else f"{{{i}}}" for i in (0, 1)]
        yield Entry(
            f"enum_{suffix}(anyenum,anyenum)",
            _labels,
            template(f"({sides[0]} {sign} {sides[1]})"),
            (("fuzz_mood", "fuzz_mood"),),
            hash_equal=suffix == "eq",
            ordered_labels=ordered,
        )
    yield Entry(
        io_cast("anyenum", "text"), fixed_physical_type([_TEXT], _TEXT), template("{0}"), (("fuzz_mood",),),
        spelling="({0})::text",
    )  # fmt: skip


ENTRIES: tuple[Entry, ...] = (*_texts(), *_enums())
