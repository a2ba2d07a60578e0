"""Entries for format() with a literal text and for its quoting functions; values are written as output texts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from applier.functions.entry import Entry, Fixed, FuzzArg, UnsuitableArguments, literal_text, simple
from applier.functions.literals import quote_text
from applier.functions.output_text import output_text_sql
from applier.plan.expr import Call, Expr

_PLACEHOLDER = re.compile(r"%(?:%|(?:(\d+)\$)?(-*)(\d*)([sLI]))")
_HINT = "write the format itself, with %s, %L, %n$s and widths that are numbers"
_MAX_WIDTH = 1000


@dataclass(frozen=True, slots=True)
class _Placeholder:
    """One placeholder: the argument number from 1, whether it is quoted, its minimal width, and left alignment."""

    place: int
    as_literal: bool
    width: int
    left: bool


def _split_format(text: str) -> Iterator[str | _Placeholder]:
    at, following = 0, 1
    for found in _PLACEHOLDER.finditer(text):
        yield text[at : found.start()]
        at = found.end()
        if found[0] == "%%":
            yield "%"
            continue
        place = int(found[1]) if found[1] else following
        width = int(found[3] or "0")
        if found[4] == "I" or not place or width > _MAX_WIDTH:
            raise UnsuitableArguments(f"the format {found[0]}", hint=_HINT)
        following = place + 1
        yield _Placeholder(place, found[4] == "L", width, "-" in found[2])
    yield text[at:]
    if "%" in _PLACEHOLDER.sub("", text):
        raise UnsuitableArguments("this format", hint=_HINT)


def _physical_type(args: tuple[Expr, ...]) -> str:
    parts = list(_split_format(literal_text(args[0])))
    for part in parts:
        if isinstance(part, _Placeholder) and part.place >= len(args):
            raise UnsuitableArguments("a format of more values than are given")
    for arg in args[1:]:
        output_text_sql(arg, "")
    return "string"


def _write_format(call: Call, args: Sequence[str]) -> str:
    found = []
    for part in _split_format(literal_text(call.args[0])):
        if isinstance(part, str):
            found += [quote_text(part)] if part else []
            continue
        value = output_text_sql(call.args[part.place], args[part.place])
        shown = f"coalesce(pg_text_quote_literal({value}), 'NULL')" if part.as_literal else f"coalesce({value}, '')"
        found.append(f"pg_text_wide({shown}, {part.width}, {str(part.left).lower()})" if part.width else shown)
    return f"concat({', '.join(found)})" if found else "''"


def _formats() -> Iterator[Entry]:
    calls: tuple[tuple[FuzzArg, ...], ...] = (
        (Fixed("'a %s b%%%s'"), "text", "int4"),
        (Fixed("'%2$s %1$10s|%-4s|'"), "text", "numeric", "bool"),
        (Fixed("'%L, %L'"), "text", "date"),
        (Fixed("'%2$-8L%s'"), "int4", "text", "timestamp"),
    )
    yield Entry(
        "format(text,any)", _physical_type, _write_format, calls, session=True, strict=False, variadic=True,
    )  # fmt: skip


def _quotes() -> Iterator[Entry]:
    literal = "pg_text_quote_literal({0})"
    nullable = simple("quote_nullable(text)", "string", "string", f"coalesce({literal}, 'NULL')", ("text",))
    yield Entry(nullable.signature, nullable.physical_type, nullable.sql, nullable.fuzz, strict=False)


ENTRIES: tuple[Entry, ...] = (*_formats(), *_quotes())
