"""Entries for text functions in Java: case, padding, characters by code; regular expressions that Java matches alike.

Case conversion and letter classes in patterns follow the C collation, which knows ASCII letters only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from applier.functions.entry import (
    CollationNeed,
    Entry,
    Fixed,
    FuzzArg,
    UnsuitableArguments,
    fixed_physical_type,
    literal_text,
    simple,
)
from applier.functions.literals import quote_text
from applier.functions.text.regex import Regex, translate
from applier.plan.expr import Call, Expr

_TEXT = "string"
_INTEGER = "int"
Fuzz = tuple[tuple[FuzzArg, ...], ...]
MATCHES = "regexp_match_list(text,text)"
MATCHES_BY_FLAGS = "regexp_match_list(text,text,text)"
"""Not PostgreSQL functions: the rows of regexp_matches as an array."""


def _cases() -> Iterator[Entry]:
    for function in ("upper", "lower", "initcap"):
        yield simple(
            f"{function}(text)",
            _TEXT,
            _TEXT,
            f"pg_text_{function}({{0}})",
            ("text",),
            ("text:words",),
            collation=CollationNeed.LETTERS,
        )


def _padding() -> Iterator[Entry]:
    small: Fuzz = (
        ("text", "int2:small", "text"),
        ("text", Fixed("7"), Fixed("'xy'")),
        ("text", Fixed("-1"), Fixed("'x'")),
    )
    for function in ("lpad", "rpad"):
        yield simple(
            f"{function}(text,int4,text)",
            "string int string",
            _TEXT,
            f"pg_text_{function}({{0}}, {{1}}, {{2}})",
            *small,
        )
        yield simple(
            f"{function}(text,int4)",
            "string int",
            _TEXT,
            f"pg_text_{function}({{0}}, {{1}}, ' ')",
            ("text", "int2:small"),
        )
    yield simple("repeat(text,int4)", "string int", _TEXT, "pg_text_repeat({0}, {1})", ("text", "int2:small"))
    yield simple("overlay(text,text,int4)", "string string int", _TEXT, "pg_text_overlay({0}, {1}, {2})",
                 ("text", "text", "int2:small"), raises=True)  # fmt: skip
    yield simple("overlay(text,text,int4,int4)", "string string int int", _TEXT, "pg_text_overlay({0}, {1}, {2}, {3})",
                 ("text", "text", "int2:small", Fixed("2")), ("text", "text", Fixed("2"), "int2:small"),
                 raises=True)  # fmt: skip
    yield simple("ascii(text)", _TEXT, _INTEGER, "pg_text_ascii({0})", ("text",))
    yield simple("chr(int4)", _INTEGER, _TEXT, "pg_text_chr({0})", ("int4",), ("int2:year",), raises=True)
    yield simple("to_hex(int4)", _INTEGER, _TEXT, "pg_text_to_hex4({0})", ("int4",))
    yield simple("to_hex(int8)", "bigint", _TEXT, "pg_text_to_hex({0})", ("int8",))
    yield simple("quote_literal(text)", _TEXT, _TEXT, "pg_text_quote_literal({0})", ("text",))
    yield simple("encode(bytea,text)", "binary string", _TEXT, "pg_text_encode({0}, {1})",
                 *(("bytea", Fixed(f"'{f}'")) for f in ("hex", "base64", "escape")))  # fmt: skip


# Regular expressions. The pattern is a literal, checked and rewritten when the stream table is defined.


def _translate_pattern(arg: Expr, flags: Expr | None = None, ignore_case: bool = False) -> tuple[Regex, bool]:
    """Return the pattern in Java's dialect, and whether the flags ask for all matches."""
    written = "" if flags is None else literal_text(flags)
    if set(written) - set("gi"):
        raise UnsuitableArguments(f"the flags {written!r}", hint="use g and i only")
    return translate(literal_text(arg), c_collation=True, ignore_case=ignore_case or "i" in written), "g" in written


def _test_physical_type(ignore_case: bool, args: tuple[Expr, ...]) -> str:
    _translate_pattern(args[1], ignore_case=ignore_case)
    return fixed_physical_type([_TEXT, _TEXT], "boolean")(args)


def _require_certain_extent(regex: Regex) -> Regex:
    if not regex.plain:
        hint = "leave out *?, groups that repeat, and | beside groups"
        raise UnsuitableArguments("a regular expression whose match has an uncertain extent", hint=hint)
    return regex


def _with_pattern(
    result: str, write: Callable[[Regex, bool, Sequence[str]], str], flags_at: int | None, takes_every: bool
) -> tuple[Callable[[tuple[Expr, ...]], str], Callable[[Call, Sequence[str]], str]]:
    def parts(args: Sequence[Expr]) -> tuple[Regex, bool]:
        regex, every = _translate_pattern(args[1], None if flags_at is None else args[flags_at])
        if every and flags_at == 2 and not takes_every:
            raise UnsuitableArguments("the flag g", hint="leave it out")
        return _require_certain_extent(regex), every

    def physical_type(args: tuple[Expr, ...]) -> str:
        parts(args)
        if any(arg.type.spark != _TEXT for arg in args):
            raise UnsuitableArguments("values that are not text")
        return result

    def sql(call: Call, args: Sequence[str]) -> str:
        regex, every = parts(call.args)
        return write(regex, every, args)

    return physical_type, sql


_TESTS = (
    "'a'", "'^a'", "'b$'", "'a.b'", "'[ab]+c'", "'^(a|b)*$'", "'[^a-c]'", r"'\\d'", "'a{2,3}'", "'(a|é)b?'", "''",
    r"'\\w\\s'",
    r"'\\mb'", "'[[:alpha:]]+'", r"'[\\]a%]'", "'.'", "'^$'",
)  # fmt: skip
_EXTENTS = (
    "'a'",
    "'a+'",
    "'b(.)'",
    "'a?(?:ab)?'",
    "'a|ab|é'",
    "'[^a]*'",
    "'(.)(b)'",
    "'^a*'",
    "'x*'",
    "'$'",
    "'(?:a|b)+'",
)


def _tests() -> Iterator[Entry]:
    for function, negation, ignore_case in (
        ("textregexeq", "", False),
        ("textregexne", "NOT ", False),
        ("texticregexeq", "", True),
        ("texticregexne", "NOT ", True),
    ):

        def write(call: Call, args: Sequence[str], negation: str = negation, ignore_case: bool = ignore_case) -> str:
            regex, _ = _translate_pattern(call.args[1], ignore_case=ignore_case)
            return f"({negation}pg_regex_matches({args[0]}, {quote_text(regex.java)}))"

        def physical_type(args: tuple[Expr, ...], ignore_case: bool = ignore_case) -> str:
            return _test_physical_type(ignore_case, args)

        patterns = tuple(p.replace("\\\\", "\\") for p in _TESTS)
        yield Entry(
            signature=f"{function}(text,text)",
            physical_type=physical_type,
            sql=write,
            fuzz=tuple(("text", Fixed(p)) for p in patterns if p.isascii() or not ignore_case),
            collation=CollationNeed.LETTERS,
        )


def _extents() -> Iterator[Entry]:
    one: Fuzz = tuple(("text", Fixed(p)) for p in _EXTENTS)
    for signature, flags_at, write, fuzz in (
        ("substring(text,text)", None, lambda r, _, a: f"pg_regex_substring({a[0]}, {quote_text(r.java)})", one),
        ("regexp_match(text,text)", None, lambda r, _, a: f"pg_regex_match({a[0]}, {quote_text(r.java)})", one),
        (
            "regexp_split_to_array(text,text,text)", 2,
            lambda r, _, a: f"pg_regex_split({a[0]}, {quote_text(r.java)})",
            (("text", Fixed("'A'"), Fixed("'i'")), ("text", Fixed("'b+'"), Fixed("''"))),
        ),
        (
            "regexp_match(text,text,text)", 2,
            lambda r, _, a: f"pg_regex_match({a[0]}, {quote_text(r.java)})",
            (("text", Fixed("'A(.)'"), Fixed("'i'")), ("text", Fixed("'b+'"), Fixed("''"))),
        ),
        (
            MATCHES, None, lambda r, _, a: f"pg_regex_match_list({a[0]}, {quote_text(r.java)}, FALSE)", (),
        ),
        (
            MATCHES_BY_FLAGS, 2,
            lambda r, every, a: f"pg_regex_match_list({a[0]}, {quote_text(r.java)}, {str(every).upper()})", (),
        ),
        (
            "regexp_split_to_array(text,text)", None,
            lambda r, _, a: f"pg_regex_split({a[0]}, {quote_text(r.java)})", one,
        ),
        (
            "regexp_replace(text,text,text)", None,
            lambda r, _, a: f"pg_regex_replace({a[0]}, {quote_text(r.java)}, {a[2]}, FALSE)",
            tuple(("text", Fixed(p), Fixed(w)) for p in _EXTENTS for w in ("'<\\1\\&>'",)),
        ),
        (
            "regexp_replace(text,text,text,text)", 3,
            lambda r, every, a: f"pg_regex_replace({a[0]}, {quote_text(r.java)}, {a[2]}, {str(every).upper()})",
            (*(("text", Fixed(p), Fixed("'-\\1\\\\'"), Fixed("'g'")) for p in _EXTENTS),
             ("text", Fixed("'A'"), Fixed("'x'"), Fixed("'gi'"))),
        ),
    ):  # fmt: skip
        physical_type, sql = _with_pattern(_TEXT, write, flags_at, signature == MATCHES_BY_FLAGS)
        entry = Entry(
            signature=signature, physical_type=physical_type, sql=sql, fuzz=fuzz, collation=CollationNeed.LETTERS
        )
        yield replace(entry, internal=not fuzz)


ENTRIES: tuple[Entry, ...] = (*_cases(), *_padding(), *_tests(), *_extents())
