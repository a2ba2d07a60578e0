"""Entries for aggregates that build one text, array or JSON value from all values in their order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from applier.functions.aggregates.aggregate_entry import AggregateEntry, OfList
from applier.functions.entry import Fixed, FuzzArg, UnsuitableArguments, fixed_physical_type, literal_text
from applier.functions.json.to_json import as_json, as_jsonb, as_key, json_kind
from applier.functions.literals import quote_text
from applier.functions.output_text import output_text_sql
from applier.plan.expr import AggregateCall, Const, Expr

SAME_KEY = "values of jsonb_object_agg with the same key differ"
"""PostgreSQL keeps the last value that it reads, and the order is undefined."""


def _string_physical_type(args: tuple[Expr, ...]) -> str:
    literal_text(args[1])
    return fixed_physical_type(["string", "string"], "string")(args)


def _bytes_separator(args: tuple[Expr, ...]) -> str:
    separator = args[-1]
    if not isinstance(separator, Const) or not isinstance(separator.value, bytes):
        raise UnsuitableArguments("a separator that is not a literal", hint="write it itself")
    return f"unhex('{separator.value.hex()}')"


def _bytes_physical_type(args: tuple[Expr, ...]) -> str:
    _bytes_separator(args)
    return fixed_physical_type(["binary", "binary"], "binary")(args)


def _join_bytes(call: AggregateCall) -> str:
    step = f"if(s IS NULL, x.a0, concat(s, {_bytes_separator(call.args)}, x.a0))"
    return f"aggregate({{list}}, CAST(NULL AS binary), (s, x) -> {step})"


def _strings() -> Iterator[AggregateEntry]:
    yield AggregateEntry(
        signature="string_agg(text,text)",
        physical_type=_string_physical_type,
        form=OfList(
            lambda call: f"array_join(transform({{list}}, x -> x.a0), {quote_text(literal_text(call.args[1]))})"
        ),
        fuzz=(("text", Fixed("', '")), ("text", Fixed("''"))),
    )
    yield AggregateEntry(
        signature="string_agg(bytea,bytea)",
        physical_type=_bytes_physical_type,
        form=OfList(_join_bytes),
        fuzz=(("bytea", Fixed(r"'\x00ff'::bytea")), ("bytea", Fixed("''::bytea"))),
    )


def _check_printable(arg: Expr) -> None:
    # Weights are consolidated before rows are listed, and -0 becomes 0 there.
    if arg.type.spark in ("double", "float"):
        raise UnsuitableArguments(f"values of type {arg.type.pg.display}", hint="cast the value to numeric or text")
    output_text_sql(arg, "")


def _array_physical_type(args: tuple[Expr, ...]) -> str:
    _check_printable(args[0])
    return "string"


def _write_texts(write: Callable[[Expr, str], str], call: AggregateCall, place: int = 0) -> str:
    """Return Spark SQL for the array of all values in order, each written by `write`."""
    return f"CAST(transform({{list}}, x -> {write(call.args[place], f'x.a{place}')}) AS array<string>)"


def _arrays() -> Iterator[AggregateEntry]:
    types = ("int4", "text", "date", "numeric(10,2)", "uuid", "bool", "numeric", "timestamptz", "jsonb")
    yield AggregateEntry(
        signature="array_agg(anynonarray)",
        physical_type=_array_physical_type,
        form=OfList(lambda call: f"pg_arrays_make({_write_texts(output_text_sql, call)})"),
        fuzz=tuple((t,) for t in types),
        skips_null=False,
    )
    yield AggregateEntry(
        signature="array_agg(anyarray)",
        physical_type=_array_physical_type,
        form=OfList(lambda call: f"pg_arrays_stack({_write_texts(output_text_sql, call)})"),
        # NULL, empty arrays and arrays of different sizes are errors.
        fuzz=((Fixed("ARRAY[n, n + 1]"),), (Fixed("ARRAY[coalesce(texta, '{'), n::text]"),)),
        skips_null=False,
        takes_distinct=False,
    )


def _element_physical_type(args: tuple[Expr, ...]) -> str:
    _check_printable(args[0])
    json_kind(args[0])
    return "string"


def _member_physical_type(args: tuple[Expr, ...]) -> str:
    as_key(args[0], "")
    _check_printable(args[1])
    json_kind(args[1])
    return "string"


def _jsonb_array(call: AggregateCall) -> str:
    return f"pg_json_array({_write_texts(as_jsonb, call)})"


def _json_array(call: AggregateCall) -> str:
    structured = json_kind(call.args[0])[0] in "ar"
    return (
        f"pg_jsontext_array({_write_texts(as_json, call)}, {quote_text(', ' + chr(10) + ' ' if structured else ', ')})"
    )


def _json_object(call: AggregateCall) -> str:
    return f"pg_jsontext_object({_write_texts(as_key, call)}, {_write_texts(as_json, call, 1)}, ' ')"


def _jsonb_object(call: AggregateCall) -> str:
    decided = "true" if call.order else "false"
    keys, values = _write_texts(as_key, call), _write_texts(as_jsonb, call, 1)
    return f"pg_json_object_agg({keys}, {values}, {decided}, {quote_text(SAME_KEY)})"


def _skip_nulls(form: Callable[[AggregateCall], str], call: AggregateCall) -> str:
    """Write the form without NULL values; if all values are NULL the result is an empty array."""
    return form(call).replace("{list}", "filter({list}, x -> x.a0 IS NOT NULL)")


def _skip_null_members(form: Callable[[AggregateCall], str], call: AggregateCall) -> str:
    """Write the form without NULL values, for jsonb also without JSON null. A NULL key stays: it is an error."""
    value = call.args[1]
    own = f" AND {as_jsonb(value, 'x.a1')} <> 'null'" if form is _jsonb_object else ""
    return form(call).replace("{list}", f"filter({{list}}, x -> x.a0 IS NULL OR (x.a1 IS NOT NULL{own}))")


def _reject_duplicate_keys(form: Callable[[AggregateCall], str], call: AggregateCall) -> str:
    """Write the form with an error for duplicate keys."""
    keys = _write_texts(as_key, call)
    twice = f"size(array_distinct({keys})) < size({{list}})"
    return f"if({twice}, raise_error({quote_text('duplicate JSON object key value')}), {form(call)})"


def _json() -> Iterator[AggregateEntry]:
    values: tuple[tuple[FuzzArg, ...], ...] = tuple(
        (t,) for t in ("int4", "text", "numeric(10,2)", "jsonb", "bool", "timestamp", "int4[]")
    )
    for name, write in (("jsonb_agg", _jsonb_array), ("json_agg", _json_array)):
        for suffix, result in (("", write), ("_strict", partial(_skip_nulls, write))):
            yield AggregateEntry(
                signature=f"{name}{suffix}(anyelement)",
                physical_type=_element_physical_type,
                form=OfList(result),
                fuzz=values if not suffix else values[1:4],
                skips_null=False,
            )
    for name, write in (("jsonb_object_agg", _jsonb_object), ("json_object_agg", _json_object)):
        without_nulls = partial(_skip_null_members, write)
        forms: dict[str, Callable[[AggregateCall], str]] = {"": write, "_strict": without_nulls}
        forms |= {f"_unique{suffix}": partial(_reject_duplicate_keys, form) for suffix, form in forms.items()}
        for suffix, write_object in forms.items():
            yield AggregateEntry(
                signature=f"{name}{suffix}(any,any)",
                physical_type=_member_physical_type,
                form=OfList(write_object, default_order=name.startswith("jsonb")),
                # A NULL key is an error, so only values may be NULL.
                fuzz=((Fixed("coalesce(texta, '') || n"), "text"), (Fixed("n"), "int4"), (Fixed("n"), "jsonb")),
                skips_null=False,
                takes_distinct=False,
            )


def list_entries() -> Iterator[AggregateEntry]:
    """Yield all entries of this module."""
    for family in (_strings, _arrays, _json):
        yield from family()
