"""Members of json and jsonb: one of a json, which keeps the text it was written with, and all of either as an array."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from applier.expressions.entry import Entry, Fixed, FuzzArg, simple

_TEXT = "string"
_KEYS: tuple[FuzzArg, ...] = (Fixed("'a'"), Fixed("'b'"), "text")
_PLACES: tuple[FuzzArg, ...] = (Fixed("0"), Fixed("-1"), "int2:small")
_JAVA = {"json": "pg_jsontext", "jsonb": "pg_json"}
_LISTED = {
    "keys": ("object_keys", "k", "k"),
    "values": ("each", "k, v", "v"),
    "value_texts": ("each_text", "k, v", "v"),
    "elements": ("array_elements", "v", "v"),
    "element_texts": ("array_elements_text", "v", "v"),
}
"""What is listed: by which of PostgreSQL's functions, under which names, and which of them it is."""


def listing(kind: str, what: str) -> str:
    """The name under which the array of such members of a json or jsonb stands in the allow-list."""
    return f"{kind}_{what}({kind})"


def _lists() -> Iterator[Entry]:
    for kind, java in _JAVA.items():
        for what, (function, names, shown) in _LISTED.items():
            if (kind, what) == ("jsonb", "elements"):
                continue
            rows = f"SELECT {shown} FROM {kind}_{function}({{0}}) WITH ORDINALITY AS f({names}, n) ORDER BY n"
            entry = simple(listing(kind, what), _TEXT, _TEXT, f"{java}_{what}({{0}})", (kind,), raises=True)
            yield replace(entry, spelling=f"(CASE WHEN {{0}} IS NOT NULL THEN ARRAY({rows}) END)")


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
