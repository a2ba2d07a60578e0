"""The bytes of a jsonpath literal -> the JSON in which the Java functions read it; what they do not know is refused.

The bytes are the server's own: a header, then items one behind the other. An item is its type in one byte, padding, the
distance to the item after it, and what its type adds; distances count from the item itself, 0 is nothing.
"""

from __future__ import annotations

import json
import struct
from decimal import Decimal
from typing import Any

from applier.functions.entry import UnsuitableArguments
from applier.functions.text.regex import translate
from applier.plan.expr import TEXT, Const
from applier.sql.pg_tree import tree, walk
from applier.sql.refusal import Reason, Refused
from applier.sql.typing.constants import body_of, decode_numeric

_VERSION, _LAX, _VERSION_MASK = 1, 0x80000000, 0x0FFFFFFF
_HINT = "use keys, subscripts, wildcards, filters, comparisons, arithmetic, .type(), .size(), .abs() and their like"
_OF_TWO = {
    4: "and", 5: "or", 8: "==", 9: "<>", 10: "<", 11: ">", 12: "<=", 13: ">=",
    14: "+", 15: "-", 16: "*", 17: "/", 18: "%", 41: "starts_with",
}  # fmt: skip
_OF_ONE = {6: "not", 7: "is_unknown", 19: "plus", 20: "minus", 29: "filter", 30: "exists"}
_ALONE = {
    21: "any_element", 22: "any_key", 26: "current", 27: "root", 31: "type", 32: "size", 33: "abs", 34: "floor",
    35: "ceiling", 40: "last",
}  # fmt: skip
_DOT_ALL = 2

Item = dict[str, Any]


def json_path(path: tree.Expression) -> Const:
    """A path of the query, which must be a literal."""
    if not isinstance(path, tree.Constant) or path.datum is None:
        construct, hint = "a jsonpath that is no literal", "write the path itself"
        raise Refused(Reason.CONSTRUCT, construct, hint=hint, token=walk.place_of(path))
    try:
        return Const(path_text(path.datum), TEXT)
    except (UnsuitableArguments, struct.error, ValueError) as error:
        construct, hint = (
            f"a jsonpath with {error.problem}" if isinstance(error, UnsuitableArguments) else "this jsonpath",
            _HINT,
        )
        raise Refused(Reason.CONSTANT, construct, hint=hint, token=path.at) from error


def path_text(datum: bytes) -> str:
    """The path in JSON, the same text for the same path."""
    body = body_of(datum)
    (head,) = struct.unpack_from("<I", body)
    if head & _VERSION_MASK != _VERSION:
        raise UnsuitableArguments("another version", hint=_HINT)
    return _json({"lax": bool(head & _LAX), "path": _item(body[4:], 0)})


def _json(value: Any) -> str:
    """Numbers with all their digits, which the module of that name does not keep."""
    match value:
        case dict():
            return "{" + ", ".join(f"{json.dumps(key)}: {_json(inner)}" for key, inner in value.items()) + "}"
        case list():
            return "[" + ", ".join(map(_json, value)) + "]"
        case Decimal():
            return f"{value:f}"
        case _:
            return json.dumps(value, ensure_ascii=False)


def _item(data: bytes, at: int) -> Item:
    start = (at + 4) & ~3
    (after,) = struct.unpack_from("<i", data, start)
    own = _own(data[at], data, at, start + 4)
    return own | ({"next": _item(data, at + after)} if after else {})


def _own(kind: int, data: bytes, at: int, start: int) -> Item:
    """What the item says itself; the bytes its type adds begin at `start`."""
    if kind in _OF_TWO:
        left, right = struct.unpack_from("<ii", data, start)
        return {"kind": _OF_TWO[kind], "left": _item(data, at + left), "right": _item(data, at + right)}
    if kind in _OF_ONE:
        (inner,) = struct.unpack_from("<i", data, start)
        return {"kind": _OF_ONE[kind], "left": _item(data, at + inner)}
    if kind in _ALONE:
        return {"kind": _ALONE[kind]}
    match kind:
        case 0:
            return {"kind": "value", "value": None}
        case 1:
            return {"kind": "value", "value": _string(data, start)}
        case 2:
            (size,) = struct.unpack_from("<I", data, start)
            return {"kind": "value", "value": decode_numeric(data[start + 4 : start + (size >> 2)])}
        case 3:
            return {"kind": "value", "value": bool(data[start])}
        case 23:
            (count,) = struct.unpack_from("<i", data, start)
            bounds = struct.unpack_from(f"<{2 * count}i", data, start + 4)
            return {"kind": "elements", "places": [_item(data, at + bound) if bound else None for bound in bounds]}
        case 24:
            first, last = struct.unpack_from("<II", data, start)
            return {"kind": "any", "first": first, "last": last}
        case 25:
            return {"kind": "key", "value": _string(data, start)}
        case 28:
            return {"kind": "variable", "value": _string(data, start)}
        case 42:
            return _like_regex(data, at, start)
        case _:
            raise UnsuitableArguments("another method", hint=_HINT)


def _like_regex(data: bytes, at: int, start: int) -> Item:
    flags, inner = struct.unpack_from("<Ii", data, start)
    if flags & ~_DOT_ALL:
        # Which letters are the same but for their case is a matter of the database's collation.
        raise UnsuitableArguments("these flags of like_regex", hint="leave all flags but s out")
    pattern = translate(_string(data, start + 8), c_collation=False, newline_apart=not flags & _DOT_ALL)
    return {"kind": "like_regex", "left": _item(data, at + inner), "value": pattern.java}


def _string(data: bytes, start: int) -> str:
    (size,) = struct.unpack_from("<i", data, start)
    return data[start + 4 : start + 4 + size].decode()
