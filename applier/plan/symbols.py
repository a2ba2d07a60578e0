"""Maps the name of a PostgreSQL function to the operator that it implements: `int84gt` is `>`. Pure.

Most names follow a few patterns; the others are listed. Functions that people call by name although there is an
operator too (abs, sqrt, starts_with) are not included.
"""

from __future__ import annotations

import re

_COMPARISON_SIGNS = {"eq": "=", "ne": "<>", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_ARITHMETIC_SIGNS = {
    "pl": "+",
    "mi": "-",
    "mul": "*",
    "div": "/",
    "mod": "%",
    "and": "&",
    "or": "|",
    "xor": "#",
    "shl": "<<",
    "shr": ">>",
}
_TYPES = (
    "array|bit|bool|bpchar|bytea|date|enum|float4|float48|float8|float84|int2|int24|int28|int4|int42|int48|int8|int82"
    "|int84|interval|jsonb|macaddr|network|numeric|range|text|time|timestamp|timestamptz|uuid|varbit"
)
_COMPARISON = re.compile(rf"(?:{_TYPES})_?(eq|ne|lt|le|gt|ge)(?:_(?:date|timestamp|timestamptz))?")
_NUMBER_OPERATION = re.compile(r"(?:int|float)\d+(pl|mi|mul|div|mod|and|or|xor|shl|shr)")
_TIME_OPERATION = re.compile(r"(?:date|time|timestamp|timestamptz|interval)_(pl|mi)(?:i|_\w+)?")

_IRREGULAR = {
    "+": "numeric_add datetime_pl integer_pl_date",
    "-": "numeric_sub jsonb_delete",
    "*": "numeric_mul interval_mul mul_d_interval",
    "/": "numeric_div interval_div",
    "%": "numeric_mod",
    "^": "numeric_power dpow",
    "||": "textcat anytextcat textanycat array_cat array_append array_prepend jsonb_concat",
    "LIKE": "textlike bpcharlike",
    "NOT LIKE": "textnlike bpcharnlike",
    "ILIKE": "texticlike",
    "NOT ILIKE": "texticnlike",
    "~": "textregexeq",
    "!~": "textregexne",
    "~*": "texticregexeq",
    "!~*": "texticregexne",
    "->": "json_array_element json_object_field jsonb_array_element jsonb_object_field",
    "->>": "json_array_element_text json_object_field_text jsonb_array_element_text jsonb_object_field_text",
    "#>": "jsonb_extract_path",
    "#>>": "jsonb_extract_path_text",
    "@>": "arraycontains jsonb_contains range_contains_elem",
    "<@": "arraycontained jsonb_contained elem_contained_by_range",
    "&&": "arrayoverlap range_overlaps",
    "?": "jsonb_exists",
    "?|": "jsonb_exists_any",
    "?&": "jsonb_exists_all",
    "@?": "jsonb_path_exists_opr",
    "@@": "jsonb_path_match_opr",
}
_IRREGULAR_SIGNS = {name: symbol for symbol, names in _IRREGULAR.items() for name in names.split()}
_PREFIX = re.compile(r"(?:(?:int|float)\d|interval_)(um|up|not)|numeric_(uminus|uplus)")
_PREFIXES = {"um": "-", "uminus": "-", "up": "+", "uplus": "+", "not": "~"}


def infix(function: str) -> str | None:
    """Return the binary operator of a function; None if people call the function by its name."""
    if function in _IRREGULAR_SIGNS:
        return _IRREGULAR_SIGNS[function]
    if found := _COMPARISON.fullmatch(function):
        return _COMPARISON_SIGNS[found[1]]
    if found := _NUMBER_OPERATION.fullmatch(function) or _TIME_OPERATION.fullmatch(function):
        return _ARITHMETIC_SIGNS[found[1]]
    return None


def prefix(function: str) -> str | None:
    """Return the prefix operator of a function with one argument; None if it has none."""
    found = _PREFIX.fullmatch(function)
    return None if found is None else _PREFIXES[found[1] or found[2]]
