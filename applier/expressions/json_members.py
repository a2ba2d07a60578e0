"""Members of a json, which keeps the text it was written with; all members of a jsonb as an array."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from applier.expressions.entry import Entry, Fixed, FuzzArg, simple

_TEXT = "string"
_KEYS: tuple[FuzzArg, ...] = (Fixed("'a'"), Fixed("'b'"), "text")
_PLACES: tuple[FuzzArg, ...] = (Fixed("0"), Fixed("-1"), "int2:small")
_LISTED = ("keys", "values", "value_texts", "element_texts")


def listing(what: str) -> str:
    """The name under which the array of such members of a jsonb stands in the allow-list."""
    return f"jsonb_{what}(jsonb)"


def _lists() -> Iterator[Entry]:
    for what in _LISTED:
        entry = simple(listing(what), _TEXT, _TEXT, f"pg_json_{what}({{0}})", raises=True)
        yield replace(entry, internal=True)


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
