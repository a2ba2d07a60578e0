"""Lists every function that a plan may contain, by its exact pg_proc signature."""

from __future__ import annotations

from applier.functions import bool_bytea, comparison_keys, greatest_least, text_equal_types
from applier.functions.arrays import arrays, composites, ranges
from applier.functions.datetime import calendar, datetimes, formats, intervals
from applier.functions.entry import Entry
from applier.functions.json import json_members, json_text, jsonb, jsonpath, sql_json
from applier.functions.numeric import floats, integers, numeric_functions, numerics
from applier.functions.text import concat, format, java_text, strings, text

ENTRIES: dict[str, Entry] = {}
for _family in (
    integers,
    floats,
    numerics,
    numeric_functions,
    text,
    java_text,
    strings,
    datetimes,
    calendar,
    bool_bytea,
    greatest_least,
    intervals,
    arrays,
    jsonb,
    json_members,
    jsonpath,
    json_text,
    sql_json,
    concat,
    formats,
    format,
    comparison_keys,
    composites,
    text_equal_types,
    ranges,
):
    for _entry in _family.ENTRIES:
        if _entry.signature in ENTRIES:
            raise AssertionError(f"{_entry.signature} is listed twice")
        ENTRIES[_entry.signature] = _entry
