"""The bytes of a jsonpath literal -> the JSON form that the Java functions read; unsupported paths are refused.

The bytes are in the server's own format: a header, then one item after the other. An item has its type in one byte,
padding, the offset of the next item, and fields that depend on the type. Offsets count from the item itself; 0 is none.
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
_HINT = "use keys, subscripts, wildcards, filters, comparisons, arithmetic, .type(), .size(), .abs() and the like"
_BINARY = {
    4: "and", 5: "or", 8: "==", 9: "<>", 10: "<", 11: ">", 12: "<=", 13: ">=",
    14: "+", 15: "-", 16: "*", 17: "/", 18: "%", 41: "starts_with",
}  # fmt: skip
_UNARY = {6: "not", 7: "is_unknown", 19: "plus", 20: "minus", 29: "filter", 30: "exists"}
_NULLARY = {
    21: "any_element", 22: "any_key", 26: "current", 27: "root", 31: "type", 32: "size", 33: "abs", 34: "floor",
    35: "ceiling", 40: "last",
}  # fmt: skip
_DOT_ALL = 2

Item = dict[str, Any]


def compile_json_path(path: tree.Expression) -> Const:
    """Compile a path of the query, which must be a literal."""
    if not isinstance(path, tree.Constant) or path.datum is None:
        construct, hint = "a jsonpath that is not a literal", "write a literal path"
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
    """Return the path in JSON form; the same path always has the same text."""
    body = body_of(datum)
    (head,) = struct.unpack_from("<I", body)
    if head & _VERSION_MASK != _VERSION:
        raise UnsuitableArguments("an unknown version", hint=_HINT)
    return _to_json({"lax": bool(head & _LAX), "path": _read_item(body[4:], 0)})


def _to_json(value: Any) -> str:
    """Print a value as JSON; numbers keep all their digits, which the json module does not do."""
    match value:
        case dict():
            return "{" + ", ".join(f"{json.dumps(key)}: {_to_json(inner)}" for key, inner in value.items()) + "}"
        case list():
            return "[" + ", ".join(map(_to_json, value)) + "]"
        case Decimal():
            return f"{value:f}"
        case _:
            return json.dumps(value, ensure_ascii=False)


def _read_item(data: bytes, at: int) -> Item:
    start = (at + 4) & ~3
    (next_offset,) = struct.unpack_from("<i", data, start)
    item = _item_fields(data[at], data, at, start + 4)
    return item | ({"next": _read_item(data, at + next_offset)} if next_offset else {})


def _item_fields(kind: int, data: bytes, at: int, start: int) -> Item:
    """Read the item itself; the fields that depend on its type begin at `start`."""
    if kind in _BINARY:
        left, right = struct.unpack_from("<ii", data, start)
        return {"kind": _BINARY[kind], "left": _read_item(data, at + left), "right": _read_item(data, at + right)}
    if kind in _UNARY:
        (inner,) = struct.unpack_from("<i", data, start)
        return {"kind": _UNARY[kind], "left": _read_item(data, at + inner)}
    if kind in _NULLARY:
        return {"kind": _NULLARY[kind]}
    match kind:
        case 0:
            return {"kind": "value", "value": None}
        case 1:
            return {"kind": "value", "value": _read_string(data, start)}
        case 2:
            (size,) = struct.unpack_from("<I", data, start)
            return {"kind": "value", "value": decode_numeric(data[start + 4 : start + (size >> 2)])}
        case 3:
            return {"kind": "value", "value": bool(data[start])}
        case 23:
            (count,) = struct.unpack_from("<i", data, start)
            bounds = struct.unpack_from(f"<{2 * count}i", data, start + 4)
            return {"kind": "elements", "places": [_read_item(data, at + bound) if bound else None for bound in bounds]}
        case 24:
            first, last = struct.unpack_from("<II", data, start)
            return {"kind": "any", "first": first, "last": last}
        case 25:
            return {"kind": "key", "value": _read_string(data, start)}
        case 28:
            return {"kind": "variable", "value": _read_string(data, start)}
        case 42:
            return _read_like_regex(data, at, start)
        case _:
            raise UnsuitableArguments("an unsupported method", hint=_HINT)


def _read_like_regex(data: bytes, at: int, start: int) -> Item:
    flags, inner = struct.unpack_from("<Ii", data, start)
    if flags & ~_DOT_ALL:
        # Which letters differ only in case depends on the database's collation.
        raise UnsuitableArguments("these flags of like_regex", hint="use only the flag s")
    pattern = translate(_read_string(data, start + 8), c_collation=False, newline_apart=not flags & _DOT_ALL)
    return {"kind": "like_regex", "left": _read_item(data, at + inner), "value": pattern.java}


def _read_string(data: bytes, start: int) -> str:
    (size,) = struct.unpack_from("<i", data, start)
    return data[start + 4 : start + 4 + size].decode()
