"""text, varchar, char(n): equality under deterministic collations, order under byte-wise ones, plain functions.

char(n) is held trimmed, as its comparisons, its length and its casts to text see it. What would look at the padding
(LIKE, octet_length) is not listed for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from applier.expressions.entry import (
    CollationNeed,
    Entry,
    Fixed,
    Unfit,
    fixed_carrier,
    literal_int,
    literal_text,
    template,
)
from applier.expressions.literals import quote
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
                carrier=fixed_carrier([_TEXT, _TEXT], "boolean"),
                sql=template(f"({{0}} {sign} {{1}})"),
                fuzz=((fuzz, fuzz),),
                collation=CollationNeed.EQUALITY if sign in ("=", "<>") else CollationNeed.ORDER,
                hash_equal=sign == "=",
            )


def _functions() -> Iterator[Entry]:
    yield Entry(
        signature="textcat(text,text)",
        carrier=fixed_carrier([_TEXT, _TEXT], _TEXT),
        sql=template("concat({0}, {1})"),
        fuzz=(("text", "text"),),
    )
    for function in ("length", "char_length", "character_length"):
        for name, fuzz in (("text", "text"), ("bpchar", "char(6)")):
            yield Entry(
                signature=f"{function}({name})",
                carrier=fixed_carrier([_TEXT], "int"),
                sql=template("char_length({0})"),
                fuzz=((fuzz,),),
            )
    yield Entry(
        signature="octet_length(text)",
        carrier=fixed_carrier([_TEXT], "int"),
        sql=template("octet_length({0})"),
        fuzz=(("text",),),
    )
    yield Entry(
        signature="starts_with(text,text)",
        carrier=fixed_carrier([_TEXT, _TEXT], "boolean"),
        sql=template("startswith({0}, {1})"),
        fuzz=(("text", "text"),),
        collation=CollationNeed.EQUALITY,
    )
    yield Entry(
        signature="text(bpchar)",
        carrier=fixed_carrier([_TEXT], _TEXT),
        sql=template("{0}"),
        fuzz=(("char(6)",),),
    )


def _shortened(args: tuple[Expr, ...]) -> str:
    if args[0].type.spark != _TEXT:
        raise Unfit(f"values held as {args[0].type.spark}")
    explicit = args[2]
    if not isinstance(explicit, Const) or explicit.value is not True or literal_int(args[1]) <= VARHDRSZ:
        raise Unfit("a length that is assigned, not cast", hint="write an explicit cast")
    return _TEXT


def _shorten(form: str, call: Call, args: Sequence[str]) -> str:
    return form.format(args[0], literal_int(call.args[1]) - VARHDRSZ)


def _length_casts() -> Iterator[Entry]:
    for name, form, fuzz in (
        ("varchar", "substring({0}, 1, {1})", "varchar(10)"),
        ("bpchar", "rtrim(' ', substring({0}, 1, {1}))", "char(6)"),
    ):
        yield Entry(
            signature=f"{name}({name},int4,bool)",
            carrier=_shortened,
            sql=partial(_shorten, form),
            fuzz=((fuzz, Fixed(str(3 + VARHDRSZ)), Fixed("true")), (fuzz, Fixed(str(40 + VARHDRSZ)), Fixed("true"))),
        )


def _like_carrier(args: tuple[Expr, ...]) -> str:
    if args[0].type.spark != _TEXT:
        raise Unfit(f"values held as {args[0].type.spark}")
    _pattern(literal_text(args[1]))
    return "boolean"


def _pattern(pattern: str) -> str:
    """The same pattern for Spark, which takes an escape only before a wildcard or another escape."""
    out: list[str] = []
    characters = iter(pattern)
    for character in characters:
        if character != "\\":
            out.append(character)
            continue
        escaped = next(characters, None)
        if escaped is None:
            raise Unfit("a LIKE pattern that ends with its escape character", hint="double the last backslash")
        out.append("\\" + escaped if escaped in "\\%_" else escaped)
    return "".join(out)


def _like(negation: str, call: Call, args: Sequence[str]) -> str:
    return f"({args[0]} {negation}LIKE {quote(_pattern(literal_text(call.args[1])))})"


def _likes() -> Iterator[Entry]:
    patterns = ("'%'", "'a%'", "'%b'", "'_b%'", "'%a_'", r"'a\%%'", r"'\a_'", r"'%\\%'", "''", "'ab'", "'%é%'", "'_'")
    fuzz = tuple(("text", Fixed(p)) for p in patterns)
    for functions, negation in ((("textlike", "like"), ""), (("textnlike", "notlike"), "NOT ")):
        for function in functions:
            yield Entry(
                signature=f"{function}(text,text)",
                carrier=_like_carrier,
                sql=partial(_like, negation),
                fuzz=fuzz,
                collation=CollationNeed.EQUALITY,
            )


def _identifiers() -> Iterator[Entry]:
    # PostgreSQL prints a uuid in one form only, so equal values are equal texts, and their order is that of the bytes.
    for suffix, sign in (("eq", "="), ("ne", "<>"), ("lt", "<"), ("le", "<="), ("gt", ">"), ("ge", ">=")):
        yield Entry(
            signature=f"uuid_{suffix}(uuid,uuid)",
            carrier=fixed_carrier([_TEXT, _TEXT], "boolean"),
            sql=template(f"({{0}} {sign} {{1}})"),
            fuzz=(("uuid", "uuid"),),
            hash_equal=suffix == "eq",
        )


ENTRIES: tuple[Entry, ...] = (*_comparisons(), *_functions(), *_length_casts(), *_likes(), *_identifiers())
