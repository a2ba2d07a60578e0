"""Every function that may stand in a plan, by its exact pg_proc signature."""

from __future__ import annotations

from applier.expressions import (
    arrays,
    calendar,
    datetimes,
    extremes,
    floats,
    formats,
    formatted,
    integers,
    joined,
    json_members,
    json_paths,
    json_texts,
    json_words,
    jsonb,
    keys,
    letters,
    numeric_functions,
    numerics,
    plain,
    ranges,
    rows,
    same_texts,
    spans,
    strings,
    text,
)
from applier.expressions.entry import Entry

ENTRIES: dict[str, Entry] = {}
for _family in (
    integers,
    floats,
    numerics,
    numeric_functions,
    text,
    letters,
    strings,
    datetimes,
    calendar,
    plain,
    extremes,
    spans,
    arrays,
    jsonb,
    json_members,
    json_paths,
    json_texts,
    json_words,
    joined,
    formats,
    formatted,
    keys,
    rows,
    same_texts,
    ranges,
):
    for _entry in _family.ENTRIES:
        if _entry.signature in ENTRIES:
            raise AssertionError(f"{_entry.signature} is listed twice")
        ENTRIES[_entry.signature] = _entry
