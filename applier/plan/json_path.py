"""A jsonpath as people write it, from the JSON in which a plan holds it. Pure; for `explain` alone.

A pattern of like_regex is shown as it is matched, which may be spelled otherwise than in the query.
"""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

Item = dict[str, Any]

_WORDS = {"root": "$", "current": "@", "any_element": "[*]", "any_key": ".*", "last": "last"}
_METHODS = frozenset({"type", "size", "abs", "floor", "ceiling"})
_SIGNS = {"plus": "+", "minus": "-"}
_DEEPEST = 2**32 - 1
_BETWEEN = {"and": "&&", "or": "||", "starts_with": "starts with"}


def json_path_text(held: str) -> str:
    """The path; where it cannot be told, the text that holds it."""
    try:
        found = json.loads(held, parse_float=Decimal)
        return ("" if found["lax"] else "strict ") + _item(found["path"])
    except (ValueError, KeyError, TypeError):
        return held


def _item(item: Item) -> str:
    own = _own(item)
    return own + _item(item["next"]) if "next" in item else own


def _own(item: Item) -> str:
    kind = item["kind"]
    if kind in _WORDS:
        return _WORDS[kind]
    if kind in _METHODS:
        return f".{kind}()"
    if kind in _SIGNS:
        return f"{_SIGNS[kind]}{_item(item['left'])}"
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
            return f"[{', '.join(_places(item['places']))}]"
        case "any":
            return f".**{_levels(item['first'], item['last'])}"
        case "filter":
            return f" ? ({_item(item['left'])})"
        case "exists":
            return f"exists({_item(item['left'])})"
        case "not":
            return f"!({_item(item['left'])})"
        case "is_unknown":
            return f"({_item(item['left'])}) is unknown"
        case "like_regex":
            return f"{_item(item['left'])} like_regex {json.dumps(item['value'], ensure_ascii=False)}"
        case _:
            sides = (f"({_item(side)})" if _is_pair(side) else _item(side) for side in (item["left"], item["right"]))
            return f" {_BETWEEN.get(kind, kind)} ".join(sides)


def _levels(first: int, last: int) -> str:
    """How deep it goes; nothing where it goes all the way."""
    if (first, last) == (0, _DEEPEST):
        return ""
    names = ["last" if level == _DEEPEST else str(level) for level in (first, last)]
    return f"{{{' to '.join(dict.fromkeys(names))}}}"


def _is_pair(item: Item) -> bool:
    return "left" in item and "right" in item


def _places(places: list[Item | None]) -> list[str]:
    """From and to, one after the other; a single place has nothing for the second."""
    pairs = zip(places[::2], places[1::2], strict=True)
    return [_item(first or {}) if last is None else f"{_item(first or {})} to {_item(last)}" for first, last in pairs]
