"""Takes a value's text as PostgreSQL prints it, returns its bytes in COPY's binary format, or raises ValueError."""

from __future__ import annotations

import binascii
import datetime
import struct
from collections.abc import Callable

BinaryForm = Callable[[bytes], bytes]

_DAY_ZERO = datetime.date(2000, 1, 1).toordinal()
_MOMENT_ZERO = datetime.datetime(2000, 1, 1)
_MICROSECOND = datetime.timedelta(microseconds=1)
_SIGNS = {b"NaN": 0xC000, b"Infinity": 0xD000, b"-Infinity": 0xF000}


def _boolean(text: bytes) -> bytes:
    return {b"t": b"\1", b"f": b"\0"}.get(text) or _refuse(text)


def _refuse(text: bytes) -> bytes:
    raise ValueError(text)


def _integer(layout: str) -> BinaryForm:
    pack = struct.Struct(layout).pack
    return lambda text: pack(int(text))


def _float(layout: str) -> BinaryForm:
    pack = struct.Struct(layout).pack
    return lambda text: pack(float(text))


def _same(text: bytes) -> bytes:
    return text


def _bytea(text: bytes) -> bytes:
    return binascii.unhexlify(text[2:]) if text[:2] == b"\\x" else _refuse(text)


def _uuid(text: bytes) -> bytes:
    return binascii.unhexlify(text.replace(b"-", b""))


def _date(text: bytes) -> bytes:
    if len(text) != 10:
        raise ValueError(text)
    return struct.pack(">i", datetime.date.fromisoformat(text.decode()).toordinal() - _DAY_ZERO)


def _timestamp(text: bytes) -> bytes:
    # The fifth character detects infinity and five-digit years, the suffix detects years before Christ.
    if text[4:5] != b"-" or text.endswith(b"BC"):
        raise ValueError(text)
    return struct.pack(">q", (datetime.datetime.fromisoformat(text.decode()) - _MOMENT_ZERO) // _MICROSECOND)


def _timestamptz(text: bytes) -> bytes:
    return _timestamp(text[:-3]) if text.endswith(b"+00") else _refuse(text)


def _numeric(text: bytes) -> bytes:
    if (special := _SIGNS.get(text)) is not None:
        return struct.pack(">hhHh", 0, 0, special, 0)
    sign, digits = (0x4000, text[1:]) if text[:1] == b"-" else (0, text)
    whole, _, fraction = digits.partition(b".")
    if not (whole + fraction).isdigit():
        raise ValueError(text)
    # Groups of four digits on both sides of the decimal point.
    left = whole.rjust(-(-len(whole) // 4) * 4, b"0")
    right = fraction.ljust(-(-len(fraction) // 4) * 4, b"0")
    groups = [int((left + right)[i : i + 4]) for i in range(0, len(left) + len(right), 4)]
    weight = len(left) // 4 - 1
    while groups and groups[0] == 0:
        del groups[0]
        weight -= 1
    while groups and groups[-1] == 0:
        del groups[-1]
    if not groups:
        weight, sign = 0, 0
    return struct.pack(f">hhHh{len(groups)}h", len(groups), weight, sign, len(fraction), *groups)


_FORMS: dict[str, BinaryForm] = {
    "bool": _boolean,
    "int2": _integer(">h"),
    "int4": _integer(">i"),
    "int8": _integer(">q"),
    "oid": _integer(">I"),
    "float4": _float(">f"),
    "float8": _float(">d"),
    "numeric": _numeric,
    "text": _same,
    "varchar": _same,
    "bpchar": _same,
    "json": _same,
    "jsonb": lambda text: b"\1" + text,
    "bytea": _bytea,
    "uuid": _uuid,
    "date": _date,
    "timestamp": _timestamp,
    "timestamptz": _timestamptz,
}


def binary_form(type_name: str) -> BinaryForm | None:
    """Return the function for a type; None if its values are sent as text."""
    return _FORMS.get(type_name)
