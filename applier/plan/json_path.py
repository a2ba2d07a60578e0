"""Turns the JSON form of a jsonpath in a plan back into jsonpath text. Pure; only `explain` uses it.

A like_regex pattern is shown in the form that is matched, which may differ from the spelling in the query.
"""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

Item = dict[str, Any]

_WORDS = {"root": "$", "current": "@", "any_element": "[*]", "any_key": ".*", "last": "last"}
_METHODS = frozenset({"type", "size", "abs", "floor", "ceiling"})
_SIGNS = {"plus": "+", "minus": "-"}
_MAX_LEVEL = 2**32 - 1
_BINARY = {"and": "&&", "or": "||", "starts_with": "starts with"}


def json_path_text(stored: str) -> str:
    """Return the jsonpath text; if the stored form cannot be read, return it unchanged."""
    try:
        found = json.loads(stored, parse_float=Decimal)
        return ("" if found["lax"] else "strict ") + _write_item(found["path"])
    except (ValueError, KeyError, TypeError):
        return stored


def _write_item(item: Item) -> str:
    own = _write_own_part(item)
    return own + _write_item(item["next"]) if "next" in item else own


def _write_own_part(item: Item) -> str:
    kind = item["kind"]
    if kind in _WORDS:
        return _WORDS[kind]
    if kind in _METHODS:
        return f".{kind}()"
    if kind in _SIGNS:
        return f"{_SIGNS[kind]}{_write_item(item['left'])}"
    match kind:
        case "key":
            name = item["value"]
            return f".{name}" if name.isidentifier() else f".{json.dumps(name)}"
        case "variable":
            return f"${item['value']}"
        case "value":
            value = item["value"]
            return str(value) if isinstance(value, Decimal) else json.dumps(value, ensure_ascii=False)
        case "elements":
            return f"[{', '.join(_write_subscripts(item['places']))}]"
        case "any":
            return f".**{_write_levels(item['first'], item['last'])}"
        case "filter":
            return f" ? ({_write_item(item['left'])})"
        case "exists":
            return f"exists({_write_item(item['left'])})"
        case "not":
            return f"!({_write_item(item['left'])})"
        case "is_unknown":
            return f"({_write_item(item['left'])}) is unknown"
        case "like_regex":
            return f"{_write_item(item['left'])} like_regex {json.dumps(item['value'], ensure_ascii=False)}"
        case _:
            sides = (
                f"({_write_item(side)})" if _is_binary(side) else _write_item(side)
                for side in (item["left"], item["right"])
            )
            return f" {_BINARY.get(kind, kind)} ".join(sides)


def _write_levels(first: int, last: int) -> str:
    """Write the levels of `.**`; nothing if all levels are included."""
    if (first, last) == (0, _MAX_LEVEL):
        return ""
    names = ["last" if level == _MAX_LEVEL else str(level) for level in (first, last)]
    return f"{{{' to '.join(dict.fromkeys(names))}}}"


def _is_binary(item: Item) -> bool:
    return "left" in item and "right" in item


def _write_subscripts(places: list[Item | None]) -> list[str]:
    """Write subscripts. `places` alternates from and to; for a single subscript `to` is None."""
    pairs = zip(places[::2], places[1::2], strict=True)
    return [
        _write_item(first or {}) if last is None else f"{_write_item(first or {})} to {_write_item(last)}"
        for first, last in pairs
    ]
