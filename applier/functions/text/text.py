"""Entries for text, varchar, char(n): equality under deterministic collations, order under byte-wise ones, functions.

char(n) is stored trimmed, as its comparisons, its length and its casts to text see it. Functions that see the padding
(LIKE, octet_length) are not listed for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from applier.functions.entry import (
    CollationNeed,
    Entry,
    Fixed,
    FuzzArg,
    UnsuitableArguments,
    fixed_physical_type,
    literal_int,
    template,
)
from applier.functions.literals import quote_text
from applier.plan.expr import Call, Const, Expr
from shared_schema.pg_types import VARHDRSZ

_TEXT = "string"
_COMPARISONS = {
    "=": ("texteq", "bpchareq"),
    "<>": ("textne", "bpcharne"),
    "<": ("text_lt", "bpcharlt"),
    "<=": ("text_le", "bpcharle"),
    ">": ("text_gt", "bpchargt"),
    ">=": ("text_ge", "bpcharge"),
}


def _comparisons() -> Iterator[Entry]:
    for sign, functions in _COMPARISONS.items():
        for function, name, fuzz in zip(functions, ("text", "bpchar"), ("text", "char(6)"), strict=True):
            yield Entry(
                signature=f"{function}({name},{name})",
                physical_type=fixed_physical_type([_TEXT, _TEXT], "boolean"),
                sql=template(f"({{0}} {sign} {{1}})"),
                fuzz=((fuzz, fuzz),),
                collation=CollationNeed.EQUALITY if sign in ("=", "<>") else CollationNeed.ORDER,
                hash_equal=sign == "=",
            )


def _functions() -> Iterator[Entry]:
    yield Entry(
        signature="textcat(text,text)",
        physical_type=fixed_physical_type([_TEXT, _TEXT], _TEXT),
        sql=template("concat({0}, {1})"),
        fuzz=(("text", "text"),),
    )
    for function in ("length", "char_length", "character_length"):
        for name, fuzz in (("text", "text"), ("bpchar", "char(6)")):
            yield Entry(
                signature=f"{function}({name})",
                physical_type=fixed_physical_type([_TEXT], "int"),
                sql=template("char_length({0})"),
                fuzz=((fuzz,),),
            )
    yield Entry(
        signature="octet_length(text)",
        physical_type=fixed_physical_type([_TEXT], "int"),
        sql=template("octet_length({0})"),
        fuzz=(("text",),),
    )
    yield Entry(
        signature="starts_with(text,text)",
        physical_type=fixed_physical_type([_TEXT, _TEXT], "boolean"),
        sql=template("startswith({0}, {1})"),
        fuzz=(("text", "text"),),
        collation=CollationNeed.EQUALITY,
    )
    yield Entry(
        signature="text(bpchar)",
        physical_type=fixed_physical_type([_TEXT], _TEXT),
        sql=template("{0}"),
        fuzz=(("char(6)",),),
    )


def _length_cast_physical_type(args: tuple[Expr, ...]) -> str:
    if args[0].type.spark != _TEXT:
        raise UnsuitableArguments(f"values held as {args[0].type.spark}")
    explicit = args[2]
    if not isinstance(explicit, Const) or explicit.value is not True or literal_int(args[1]) <= VARHDRSZ:
        raise UnsuitableArguments("a length that is assigned, not cast", hint="write an explicit cast")
    return _TEXT


def _write_length_cast(form: str, call: Call, args: Sequence[str]) -> str:
    return form.format(args[0], literal_int(call.args[1]) - VARHDRSZ)


def _length_casts() -> Iterator[Entry]:
    for name, form, fuzz in (
        ("varchar", "substring({0}, 1, {1})", "varchar(10)"),
        ("bpchar", "rtrim(' ', substring({0}, 1, {1}))", "char(6)"),
    ):
        yield Entry(
            signature=f"{name}({name},int4,bool)",
            physical_type=_length_cast_physical_type,
            sql=partial(_write_length_cast, form),
            fuzz=((fuzz, Fixed(str(3 + VARHDRSZ)), Fixed("true")), (fuzz, Fixed(str(40 + VARHDRSZ)), Fixed("true"))),
        )


def _simple_pattern(pattern: Expr) -> str | None:
    """Return the same pattern for Spark; None if it is not a literal or ends with an escape.

    Spark accepts an escape only before a wildcard or another escape.
    """
    if not isinstance(pattern, Const) or not isinstance(pattern.value, str):
        return None
    out: list[str] = []
    characters = iter(pattern.value)
    for character in characters:
        if character != "\\":
            out.append(character)
            continue
        escaped = next(characters, None)
        if escaped is None:
            return None
        out.append("\\" + escaped if escaped in "\\%_" else escaped)
    return "".join(out)


def _write_like(negation: str, call: Call, args: Sequence[str]) -> str:
    pattern = _simple_pattern(call.args[1])
    if pattern is not None:
        return f"({args[0]} {negation}LIKE {quote_text(pattern)})"
    return f"({negation}pg_text_like({args[0]}, {args[1]}))"


def _write_ilike(negation: str, call: Call, args: Sequence[str]) -> str:
    return f"({negation}pg_text_like(pg_text_lower({args[0]}), pg_text_lower({args[1]})))"


_PATTERNS = (
    "'%'", "'a%'", "'%b'", "'_b%'", "'%a_'", r"'a\%%'", r"'\a_'", r"'%\\%'", "''", "'ab'", "'%é%'", "'_'", "'%A%b'",
)  # fmt: skip


def _likes() -> Iterator[Entry]:
    fuzz: tuple[tuple[FuzzArg, ...], ...] = (
        *(("text", Fixed(p)) for p in _PATTERNS),
        ("text", "text"),
        ("text", Fixed("'a\\'")),
    )
    for functions, negation in ((("textlike", "like"), ""), (("textnlike", "notlike"), "NOT ")):
        for function in functions:
            yield Entry(
                signature=f"{function}(text,text)",
                physical_type=fixed_physical_type([_TEXT, _TEXT], "boolean"),
                sql=partial(_write_like, negation),
                fuzz=fuzz,
                raises=True,
                collation=CollationNeed.EQUALITY,
            )
    for function, negation in (("texticlike", ""), ("texticnlike", "NOT ")):
        yield Entry(
            signature=f"{function}(text,text)",
            physical_type=fixed_physical_type([_TEXT, _TEXT], "boolean"),
            sql=partial(_write_ilike, negation),
            fuzz=fuzz,
            raises=True,
            collation=CollationNeed.LETTERS,
        )
    yield Entry(
        signature="like_escape(text,text)",
        physical_type=fixed_physical_type([_TEXT, _TEXT], _TEXT),
        sql=template("pg_text_like_escape({0}, {1})"),
        fuzz=(("text", Fixed("'a'")), ("text", Fixed("''")), ("text", Fixed("'\\'")), ("text", "text")),
        raises=True,
    )
    # LIKE sees the padding blanks of char(n); the physical type has none.
    for function, negation in (("bpcharlike", ""), ("bpcharnlike", "NOT ")):
        yield Entry(
            signature=f"{function}(bpchar,text)",
            physical_type=_padded_physical_type,
            sql=partial(_write_padded_like, negation),
            fuzz=tuple(("char(6)", Fixed(p)) for p in (*_PATTERNS, "'ab    '", "'%  '")),
            collation=CollationNeed.EQUALITY,
        )


def pad_blanks(arg: Expr, sql: str) -> str:
    """Return Spark SQL for char(n) with its blanks; raise UnsuitableArguments if n is unknown."""
    length = arg.type.pg.typmod - VARHDRSZ
    if length < 1:
        raise UnsuitableArguments("a char(n) of unknown length", hint="cast it to char(n) or to text")
    return f"rpad({sql}, {length}, ' ')"


def _padded_physical_type(args: tuple[Expr, ...]) -> str:
    pad_blanks(args[0], "")
    if _simple_pattern(args[1]) is None:
        raise UnsuitableArguments(
            "a pattern that is not a literal, or ends with its escape character", hint="write the pattern itself"
        )
    return fixed_physical_type([_TEXT, _TEXT], "boolean")(args)


def _write_padded_like(negation: str, call: Call, args: Sequence[str]) -> str:
    return f"({pad_blanks(call.args[0], args[0])} {negation}LIKE {quote_text(_simple_pattern(call.args[1]) or '')})"


def _identifiers() -> Iterator[Entry]:
    # PostgreSQL prints a uuid in one form only, so equal values have equal texts, and they sort by their bytes.
    for suffix, sign in (("eq", "="), ("ne", "<>"), ("lt", "<"), ("le", "<="), ("gt", ">"), ("ge", ">=")):
        yield Entry(
            signature=f"uuid_{suffix}(uuid,uuid)",
            physical_type=fixed_physical_type([_TEXT, _TEXT], "boolean"),
            sql=template(f"({{0}} {sign} {{1}})"),
            fuzz=(("uuid", "uuid"),),
            hash_equal=suffix == "eq",
        )


ENTRIES: tuple[Entry, ...] = (*_comparisons(), *_functions(), *_length_casts(), *_likes(), *_identifiers())
