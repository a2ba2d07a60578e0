"""Entries for json, which keeps its original text: to_json, row_to_json and the builders."""

from __future__ import annotations

from collections.abc import Sequence

from applier.functions.entry import Entry, Fixed, UnsuitableArguments, fixed_physical_type, io_cast, template
from applier.functions.json.to_json import KINDS_TRIED, as_json, as_key, check_pairs, json_kind
from applier.plan.expr import Call, Expr


def _check_values(args: tuple[Expr, ...]) -> str:
    for arg in args:
        as_json(arg, "")
    return "string"


def _check_pairs(args: tuple[Expr, ...]) -> str:
    check_pairs(args)
    return _check_values(args)


def _check_row(args: tuple[Expr, ...]) -> str:
    if not json_kind(args[0]).startswith("r"):
        raise UnsuitableArguments("a row that is not written out")
    return "string"


def json_array(call: Call, args: Sequence[str]) -> str:
    """Return Spark SQL for an array of these values."""
    values = ", ".join(as_json(arg, sql) for arg, sql in zip(call.args, args, strict=True))
    return f"pg_jsontext_array(CAST(array({values}) AS array<string>), ', ')"


def json_object(call: Call, args: Sequence[str]) -> str:
    """Return Spark SQL for an object of alternating keys and values."""
    pairs = list(zip(call.args, args, strict=True))
    keys = ", ".join(as_key(arg, sql) for arg, sql in pairs[::2])
    values = ", ".join(as_json(arg, sql) for arg, sql in pairs[1::2])
    return f"pg_jsontext_object(CAST(array({keys}) AS array<string>), CAST(array({values}) AS array<string>), '')"


def _write_one(call: Call, args: Sequence[str]) -> str:
    return as_json(call.args[0], args[0])


ENTRIES: tuple[Entry, ...] = (
    Entry("to_json(anyelement)", _check_values, _write_one, KINDS_TRIED, session=True),
    Entry(
        "row_to_json(record)", _check_row, _write_one,
        (("int4", "text", "bool"), ("numeric", "jsonb", "timestamptz"), ("text[]",)),
        session=True, variadic=True, spelling="row_to_json(ROW({all}))",
    ),
    Entry(
        "json_build_array(any)", _check_values, json_array, (("int4", "text", "bool"), ("jsonb", "int4[]")),
        session=True, strict=False, variadic=True,
    ),
    Entry(
        "json_build_object(any)", _check_pairs, json_object,
        ((Fixed("'k'"), "int4", Fixed("'k'"), "text"), (Fixed("1"), "numeric", Fixed("'a\"b'"), "timestamp")),
        session=True, strict=False, variadic=True,
    ),
    Entry(io_cast("json", "text"), fixed_physical_type(["string"], "string"), template("{0}"),
          (("json",),), spelling="({0})::text"),
)  # fmt: skip
