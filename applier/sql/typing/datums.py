"""Bytes of a constant that is stored as text -> the text PostgreSQL prints: interval, time, jsonb, arrays. Pure."""

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
"""Length and alignment of the elements of an array; -1: the length is in a header before the value."""

_ESCAPES = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def interval_text(datum: bytes) -> str:
    """Print an interval as IntervalStyle postgres does."""
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
    """Print a time as hh:mm:ss with as many decimals as needed."""
    return time_of_day(struct.unpack_from("<q", datum)[0])


def time_of_day(micros: int) -> str:
    """Print microseconds as hh:mm:ss, without zeros at the end of the fraction."""
    seconds, rest = divmod(micros, 1_000_000)
    fraction = f".{rest:06}".rstrip("0") if rest else ""
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}{fraction}"


def jsonb_text(body: bytes) -> str:
    """Print a jsonb as jsonb_out does; `body` is its binary tree without the header."""
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

            number = decode_numeric(_read_varlena(data, aligned)[0])
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
    """Print a JSON string with PostgreSQL's escapes."""
    return '"' + "".join(_ESCAPES.get(c) or (f"\\u{ord(c):04x}" if c < " " else c) for c in text) + '"'


def _read_varlena(data: bytes, at: int) -> tuple[bytes, int]:
    """Return the body of a variable-length value and the offset after it; short headers have one byte."""
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
    """Print an array of one dimension that begins at 1 as array_out does; ValueError for any other array."""
    dimensions, offset = struct.unpack_from("<ii", body)
    if dimensions == 0:
        return "{}"
    length, lower = struct.unpack_from("<ii", body, 12)
    if dimensions != 1 or lower != 1:
        raise ValueError("not an array of one dimension that begins at 1")
    size, alignment = _LAYOUT[element]
    # Offsets in the header count from the start of the datum, four bytes before the body; the data is aligned to 8.
    at = offset - 4 if offset else 20
    bitmap = body[20 : 20 + (length + 7) // 8] if offset else None
    elements: list[str] = []
    for i in range(length):
        if bitmap is not None and not bitmap[i // 8] >> (i % 8) & 1:
            elements.append("NULL")
            continue
        step = _ALIGNMENT[alignment]
        if size >= 0 or body[at] == 0:
            at += -(at + 4) % step
        if size >= 0:
            datum, at = body[at : at + size], at + size
        else:
            content, at = _read_varlena(body, at)
            datum = struct.pack("<I", (len(content) + 4) << 2) + content
        elements.append(_quote_element(output_text(element, decode(element, datum))))
    return "{" + ",".join(elements) + "}"


def output_text(name: str, value: Value) -> str:
    """Print a decoded value as PostgreSQL's output function does; ValueError where that is not known."""
    match value:
        case bool():
            return "t" if value else "f"
        case int() | str():
            return str(value)
        case Decimal():
            return f"{value:f}"
        case float() if name == "float8" and (value == 0 or 1e-4 <= abs(value) < 1e15):
            # Within these bounds Python and PostgreSQL both print the shortest exact digits, without an exponent.
            return f"{Decimal(repr(value)):f}".removesuffix(".0")
        case _ if name == "date":
            return str(value)
        case _:
            raise ValueError(f"the text of a {name}")


def _quote_element(text: str) -> str:
    if text and text.upper() != "NULL" and not any(c in '"\\{},' or c in " \t\n\r\v\f" for c in text):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
