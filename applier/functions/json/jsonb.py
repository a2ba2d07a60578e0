"""Entries for jsonb, which is stored as PostgreSQL's text and computed in Java. It compares values: 1 equals 1.0."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from applier.functions.entry import Entry, Fixed, FuzzArg, fixed_physical_type, io_cast, simple, template
from applier.functions.json.to_json import KINDS_TRIED, as_jsonb, as_key, check_pairs
from applier.plan.expr import Call, Expr

_TEXT = "string"
_KEYS: tuple[FuzzArg, ...] = (Fixed("'a'"), Fixed("'b'"), "text")
_PATHS: tuple[FuzzArg, ...] = (Fixed("'{a}'"), Fixed("'{b,0}'"), Fixed("'{a,b,-1}'"), Fixed("'{}'"), "text[]")
Fuzz = tuple[tuple[FuzzArg, ...], ...]


def _reading() -> Iterator[Entry]:
    keys: Fuzz = tuple(("jsonb", k) for k in _KEYS)
    places: Fuzz = tuple(("jsonb", p) for p in (Fixed("0"), Fixed("-1"), "int2:small", "int4"))
    paths: Fuzz = tuple(("jsonb", p) for p in _PATHS)
    for suffix, java in (("", "get"), ("_text", "get_text")):
        yield simple(
            f"jsonb_object_field{suffix}(jsonb,text)", "string string", _TEXT, f"pg_json_{java}({{0}}, {{1}})", *keys
        )
        yield simple(
            f"jsonb_array_element{suffix}(jsonb,int4)", "string int", _TEXT, f"pg_json_{java}({{0}}, {{1}})", *places
        )
    for suffix, java, operator in (("", "path_get", "#>"), ("_text", "path_text", "#>>")):
        yield Entry(
            f"jsonb_extract_path{suffix}(jsonb,_text)",
            fixed_physical_type([_TEXT, _TEXT], _TEXT),
            template(f"pg_json_{java}({{0}}, {{1}})"),
            paths,
            spelling=f"({{0}} {operator} {{1}})",
        )
    yield simple("jsonb_typeof(jsonb)", _TEXT, _TEXT, "pg_json_type({0})", ("jsonb",))
    yield simple("jsonb_array_length(jsonb)", _TEXT, "int", "pg_json_array_length({0})", ("jsonb",), raises=True)


def _testing() -> Iterator[Entry]:
    for signature, form in (
        ("jsonb_contains(jsonb,jsonb)", "pg_json_contains({0}, {1})"),
        ("jsonb_contained(jsonb,jsonb)", "pg_json_contains({1}, {0})"),
        ("jsonb_ne(jsonb,jsonb)", "(NOT pg_json_eq({0}, {1}))"),
    ):
        yield simple(signature, "string string", "boolean", form, ("jsonb", "jsonb"))
    equality = simple("jsonb_eq(jsonb,jsonb)", "string string", "boolean", "pg_json_eq({0}, {1})", ("jsonb", "jsonb"))
    yield replace(equality, key_equal=True)
    yield simple(
        "jsonb_exists(jsonb,text)", "string string", "boolean", "pg_json_exists({0}, {1})",
        *(("jsonb", k) for k in _KEYS),
    )  # fmt: skip
    for function in ("exists_any", "exists_all"):
        yield simple(
            f"jsonb_{function}(jsonb,_text)", "string string", "boolean", f"pg_json_{function}({{0}}, {{1}})",
            ("jsonb", Fixed("'{a,b}'")), ("jsonb", "text[]"),
        )  # fmt: skip


def _changing() -> Iterator[Entry]:
    yield simple(
        "jsonb_concat(jsonb,jsonb)",
        "string string",
        _TEXT,
        "pg_json_concat({0}, {1})",
        ("jsonb", "jsonb"),
    )
    yield simple("jsonb_delete(jsonb,text)", "string string", _TEXT, "pg_json_delete({0}, {1})",
                 *(("jsonb", k) for k in _KEYS), raises=True)  # fmt: skip
    yield simple("jsonb_delete(jsonb,int4)", "string int", _TEXT, "pg_json_delete({0}, {1})",
                 ("jsonb", Fixed("0")), ("jsonb", "int2:small"), raises=True)  # fmt: skip
    yield Entry(
        io_cast("jsonb", "text"),
        fixed_physical_type([_TEXT], _TEXT),
        template("{0}"),
        (("jsonb",),),
        spelling="({0})::text",
    )
    yield Entry(
        io_cast("text", "jsonb"), fixed_physical_type([_TEXT], _TEXT), template("pg_json_in({0})"),
        (("text:json",), ("text",)), raises=True, spelling="({0})::jsonb",
    )  # fmt: skip


def _check_values(args: tuple[Expr, ...]) -> str:
    for arg in args:
        as_jsonb(arg, "")
    return _TEXT


def jsonb_object(call: Call, args: Sequence[str]) -> str:
    """Return Spark SQL for an object of alternating keys and values."""
    parts = [
        as_jsonb(arg, sql) if i % 2 else as_key(arg, sql)
        for i, (arg, sql) in enumerate(zip(call.args, args, strict=True))
    ]
    return f"pg_json_object(CAST(array({', '.join(parts)}) AS array<string>))"


def _check_pairs(args: tuple[Expr, ...]) -> str:
    check_pairs(args)
    return _check_values(args)


def jsonb_array(call: Call, args: Sequence[str]) -> str:
    """Return Spark SQL for an array of these values."""
    parts = ", ".join(as_jsonb(arg, sql) for arg, sql in zip(call.args, args, strict=True))
    return f"pg_json_array(CAST(array({parts}) AS array<string>))"


def _building() -> Iterator[Entry]:
    yield Entry(
        "to_jsonb(anyelement)",
        _check_values,
        lambda call, args: as_jsonb(call.args[0], args[0]),
        KINDS_TRIED,
        session=True,
    )
    yield Entry(
        "jsonb_build_object(any)", _check_pairs, jsonb_object,
        ((Fixed("'k'"), "int4", Fixed("'kk'"), "text"), (Fixed("'b'"), "jsonb"),
         (Fixed("'t'"), "timestamp", Fixed("'z'"), "timestamptz"),
         (Fixed("'a'"), "numeric", Fixed("'a'"), "bool")),
        session=True, strict=False, variadic=True,
    )  # fmt: skip
    yield Entry(
        "jsonb_build_array(any)", _check_values, jsonb_array, (("int4", "text", "bool"), ("jsonb",)),
        session=True, strict=False, variadic=True,
    )  # fmt: skip


ENTRIES: tuple[Entry, ...] = (*_reading(), *_testing(), *_changing(), *_building())
