"""Entries for the members of a json, which keeps its original text, and for all members of a jsonb as an array."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from applier.functions.entry import Entry, Fixed, FuzzArg, simple

_TEXT = "string"
_KEYS: tuple[FuzzArg, ...] = (Fixed("'a'"), Fixed("'b'"), "text")
_PLACES: tuple[FuzzArg, ...] = (Fixed("0"), Fixed("-1"), "int2:small")
_LISTED = ("keys", "values", "value_texts", "element_texts")


MEMBERS_FUNCTION = "jsonb_fields(jsonb,text,text)"
FIELD = "jsonb_field(jsonb,text,text)"
"""Not PostgreSQL functions: the members with a name of all objects, or of the single object, as an array in a type."""
FIELD_TYPES = frozenset(
    {"text", "int2", "int4", "int8", "numeric", "float8", "bool", "jsonb", "uuid", "date", "timestamp", "timestamptz"}
)


def listing(what: str) -> str:
    """Return the allow-list name of the array of these members of a jsonb."""
    return f"jsonb_{what}(jsonb)"


def _lists() -> Iterator[Entry]:
    for what in _LISTED:
        entry = simple(listing(what), _TEXT, _TEXT, f"pg_json_{what}({{0}})", raises=True)
        yield replace(entry, internal=True)
    for signature, form in (
        (MEMBERS_FUNCTION, "pg_jsonpath_column({0}, {1}, {2})"),
        # NULL instead of an object gives one record of NULLs.
        (FIELD, "if({0} IS NULL, '{{NULL}}', pg_jsonpath_column(concat('[', {0}, ']'), {1}, {2}))"),
    ):
        yield replace(simple(signature, "string string string", _TEXT, form), internal=True, raises=True)


def _members() -> Iterator[Entry]:
    for suffix, java in (("", "get"), ("_text", "get_text")):
        yield simple(
            f"json_object_field{suffix}(json,text)", "string string", _TEXT, f"pg_jsontext_{java}({{0}}, {{1}})",
            *(("json", key) for key in _KEYS),
        )  # fmt: skip
        yield simple(
            f"json_array_element{suffix}(json,int4)", "string int", _TEXT, f"pg_jsontext_{java}({{0}}, {{1}})",
            *(("json", place) for place in _PLACES),
        )  # fmt: skip
    yield simple("json_array_length(json)", _TEXT, "int", "pg_jsontext_array_length({0})", ("json",), raises=True)


ENTRIES: tuple[Entry, ...] = (*_members(), *_lists())
