"""Bytes of a constant that is held as text -> the text PostgreSQL prints: interval, time, jsonb, arrays. Pure."""

from __future__ import annotations

import struct
from collections.abc import Callable
from decimal import Decimal

from shared_schema.change_row import Value

_DAY_MICROS = 86_400_000_000
_ALIGNMENT = {"c": 1, "s": 2, "i": 4, "d": 8}
_LAYOUT = {
    "bool": (1, "c"), "int2": (2, "s"), "int4": (4, "i"), "int8": (8, "d"), "float4": (4, "i"), "float8": (8, "d"),
    "date": (4, "i"), "timestamp": (8, "d"), "timestamptz": (8, "d"), "time": (8, "d"), "interval": (16, "d"),
    "uuid": (16, "c"), "text": (-1, "i"), "varchar": (-1, "i"), "bpchar": (-1, "i"), "numeric": (-1, "i"),
    "jsonb": (-1, "i"), "bytea": (-1, "i"),
}  # fmt: skip
"""Length (-1: in front of the value) and alignment of the elements of an array."""

_ESCAPES = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def interval_text(datum: bytes) -> str:
    """IntervalStyle postgres."""
    micros, days, months = struct.unpack_from("<qii", datum)
    out = ""
    before = False
    years = abs(months) // 12 * (1 if months >= 0 else -1)
    for value, unit in ((years, "year"), (months - years * 12, "mon"), (days, "day")):
        if value:
            plus = "+" if before and value > 0 else ""
            out += f"{' ' if out else ''}{plus}{value} {unit}{'' if value == 1 else 's'}"
            before = value < 0
    if micros or not out:
        sign = "-" if micros < 0 else ("+" if before else "")
        out += f"{' ' if out else ''}{sign}{time_of_day(abs(micros))}"
    return out


def time_text(datum: bytes) -> str:
    """hh:mm:ss with as many decimals as needed."""
    return time_of_day(struct.unpack_from("<q", datum)[0])


def time_of_day(micros: int) -> str:
    """Microseconds as hh:mm:ss, without zeros at the end of the fraction."""
    seconds, rest = divmod(micros, 1_000_000)
    fraction = f".{rest:06}".rstrip("0") if rest else ""
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}{fraction}"


def jsonb_text(body: bytes) -> str:
    """What jsonb_out prints, from the binary tree behind the header."""
    return _container(body)


def _container(body: bytes) -> str:
    header = struct.unpack_from("<I", body)[0]
    count, is_object = header & 0x0FFFFFFF, bool(header & 0x20000000)
    entries = struct.unpack_from(f"<{count * (2 if is_object else 1)}I", body, 4)
    data = body[4 + 4 * len(entries) :]
    values: list[str] = []
    end = 0
    for entry in entries:
        start, end = end, (entry & 0x0FFFFFFF if entry & 0x80000000 else end + (entry & 0x0FFFFFFF))
        values.append(_jsonb_value((entry >> 28) & 7, data, start, end))
    if header & 0x10000000:
        return values[0]
    if not is_object:
        return f"[{', '.join(values)}]"
    return "{" + ", ".join(f"{k}: {v}" for k, v in zip(values[:count], values[count:], strict=True)) + "}"


def _jsonb_value(kind: int, data: bytes, start: int, end: int) -> str:
    aligned = start + (-start % 4)
    match kind:
        case 0:
            return json_string(data[start:end].decode())
        case 1:
            from applier.sql.typing.constants import decode_numeric

            number = decode_numeric(_unpacked(data, aligned)[0])
            return f"{number:f}" if not isinstance(number, str) else number
        case 2 | 3:
            return "true" if kind == 3 else "false"
        case 4:
            return "null"
        case 5:
            return _container(data[aligned:end])
        case _:
            raise ValueError("an unknown kind of JSON value")


def json_string(text: str) -> str:
    """A JSON string as PostgreSQL escapes it."""
    return '"' + "".join(_ESCAPES.get(c) or (f"\\u{ord(c):04x}" if c < " " else c) for c in text) + '"'


def _unpacked(data: bytes, at: int) -> tuple[bytes, int]:
    """The body of a variable-length value and the place behind it; short headers have one byte."""
    if data[at] & 1:
        length = data[at] >> 1
        if length == 0:
            raise ValueError("a value that is stored elsewhere")
        return data[at + 1 : at + length], at + length
    header = struct.unpack_from("<I", data, at)[0]
    if header & 3:
        raise ValueError("a compressed value")
    return data[at + 4 : at + (header >> 2)], at + (header >> 2)


def array_text(element: str, body: bytes, decode: Callable[[str, bytes], Value]) -> str:
    """What array_out prints for an array of one dimension that begins at 1; ValueError for any other."""
    dimensions, offset = struct.unpack_from("<ii", body)
    if dimensions == 0:
        return "{}"
    length, lower = struct.unpack_from("<ii", body, 12)
    if dimensions != 1 or lower != 1:
        raise ValueError("not an array of one dimension that begins at 1")
    size, alignment = _LAYOUT[element]
    # Offsets in the header count from the start of the datum, four bytes before the body; data begin aligned to 8.
    at = offset - 4 if offset else 20
    bitmap = body[20 : 20 + (length + 7) // 8] if offset else None
    words: list[str] = []
    for i in range(length):
        if bitmap is not None and not bitmap[i // 8] >> (i % 8) & 1:
            words.append("NULL")
            continue
        step = _ALIGNMENT[alignment]
        if size >= 0 or body[at] == 0:
            at += -(at + 4) % step
        if size >= 0:
            datum, at = body[at : at + size], at + size
        else:
            content, at = _unpacked(body, at)
            datum = struct.pack("<I", (len(content) + 4) << 2) + content
        words.append(_element(output_text(element, decode(element, datum))))
    return "{" + ",".join(words) + "}"


def output_text(name: str, value: Value) -> str:
    """A decoded value as PostgreSQL's output function prints it; ValueError where that is not known."""
    match value:
        case bool():
            return "t" if value else "f"
        case int() | str():
            return str(value)
        case Decimal():
            return f"{value:f}"
        case float() if name == "float8" and (value == 0 or 1e-4 <= abs(value) < 1e15):
            # Within these bounds both print the shortest digits that name the number, without an exponent.
            return f"{Decimal(repr(value)):f}".removesuffix(".0")
        case _ if name == "date":
            return str(value)
        case _:
            raise ValueError(f"the text of a {name}")


def _element(text: str) -> str:
    if text and text.upper() != "NULL" and not any(c in '"\\{},' or c in " \t\n\r\v\f" for c in text):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
