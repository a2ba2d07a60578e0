"""Writes Spark SQL that turns any value into jsonb, or into json that keeps its text, from its output text."""

from __future__ import annotations

from collections.abc import Sequence

from applier.functions.arrays.composites import ROW_OF, fields_of
from applier.functions.entry import FuzzArg, UnsuitableArguments
from applier.functions.literals import quote_text
from applier.functions.output_text import output_text_sql
from applier.plan.expr import Call, Expr

_KINDS = {
    **dict.fromkeys(("int2", "int4", "int8", "numeric", "float4", "float8"), "n"),
    **dict.fromkeys(("text", "unknown", "varchar", "bpchar", "uuid", "time", "date", "interval", "bytea"), "t"),
    "bool": "b",
    "json": "j",
    "jsonb": "j",
    "timestamp": "d",
    "timestamptz": "z",
}
KINDS_TRIED: tuple[tuple[FuzzArg, ...], ...] = (
    ("int4",), ("numeric",), ("numeric(10,2)",), ("text",), ("bool",), ("date",), ("jsonb",), ("uuid",), ("float8",),
    ("float4",), ("char(6)",), ("time",), ("interval",), ("bytea",), ("timestamp",), ("timestamptz",),
    ("int4[]",), ("text[]",), ("numeric[]",), ("bool[]",),
)  # fmt: skip
"""The argument types of the fuzz tests."""


def json_kind(arg: Expr) -> str:
    """Return the kind of JSON value (see JsonTextFunctions.java); raise UnsuitableArguments for an unknown type."""
    name = arg.type.pg.name
    if isinstance(arg, Call) and arg.signature == ROW_OF:
        names, values = fields_of(arg)
        return "\x00".join(["r", *(part for pair in zip(names, map(json_kind, values), strict=True) for part in pair)])
    element = name.removeprefix("_")
    if element not in _KINDS:
        raise UnsuitableArguments(f"values of type {arg.type.pg.display}", hint="cast the value to text")
    return _KINDS[name] if name == element else f"a{_KINDS[element]}"


def as_key(arg: Expr, sql: str) -> str:
    """Return the value as an object key, as printed; raise UnsuitableArguments if JSON writes the type differently."""
    if json_kind(arg) not in ("n", "t"):
        raise UnsuitableArguments(f"keys of type {arg.type.pg.display}", hint="cast the key to text")
    return output_text_sql(arg, sql)


def check_pairs(args: Sequence[Expr]) -> None:
    """Raise UnsuitableArguments unless the arguments are alternating keys and values."""
    if len(args) % 2:
        raise UnsuitableArguments("an odd number of arguments")
    for key in args[::2]:
        as_key(key, "")


def as_jsonb(arg: Expr, sql: str) -> str:
    """Return Spark SQL for to_jsonb() of a value."""
    if arg.type.pg.name == "jsonb":
        return sql
    return f"pg_json_of({quote_text(json_kind(arg))}, {output_text_sql(arg, sql)})"


def as_json(arg: Expr, sql: str) -> str:
    """Return Spark SQL for to_json() of a value."""
    if arg.type.pg.name in ("json", "jsonb"):
        return sql
    return f"pg_jsontext_of({quote_text(json_kind(arg))}, {output_text_sql(arg, sql)})"
