"""Bytes of a constant's datum -> value in its physical type. Pure; a value that cannot be decoded exactly is refused.

The bytes are the server's own memory: little-endian numbers, 4-byte headers in front of variable-length values,
PostgreSQL's epoch of 2000-01-01 for dates. A header that does not fit the length (another byte order, a compressed
value) is a refusal.
"""

from __future__ import annotations

import datetime
import struct
import uuid
from decimal import Decimal

from applier.sql.refusal import Reason, Refused
from applier.sql.typing.datums import array_text, interval_text, jsonb_text, time_text
from shared_schema.change_row import Value
from shared_schema.pg_types import MAX_DECIMAL_DIGITS

_EPOCH_DATE = datetime.date(2000, 1, 1)
_EPOCH = datetime.datetime(2000, 1, 1)
_HEADER = 4
_SPECIAL_NUMERICS = {0xC000: "NaN", 0xD000: "Infinity", 0xF000: "-Infinity"}
_INTEGERS = {"int2": "<h", "int4": "<i", "int8": "<q"}


def decode_constant(name: str, datum: bytes, at: int | None) -> Value:
    """Decode a constant of the base type `name`; char(n) is trimmed."""
    try:
        return _decode(name, datum)
    except (struct.error, ValueError, OverflowError, LookupError) as error:
        raise Refused(
            Reason.CONSTANT, f"this {name} literal", hint="write a value within Spark's range", token=at
        ) from error
    except NotImplementedError as error:
        raise Refused(
            Reason.CONSTANT, f"a literal of type {name}", hint="compare with a column of a table", token=at
        ) from error


def _decode(name: str, datum: bytes) -> Value:
    match name:
        case "bool":
            return bool(datum[0])
        case "int2" | "int4" | "int8":
            return int(struct.unpack_from(_INTEGERS[name], datum)[0])
        case "float4":
            return float(struct.unpack_from("<f", datum)[0])
        case "float8":
            return float(struct.unpack_from("<d", datum)[0])
        case "text" | "varchar":
            return body_of(datum).decode()
        case "unknown":
            return datum.rstrip(b"\x00").decode()
        case "bpchar":
            return body_of(datum).decode().rstrip(" ")
        case "bytea":
            return body_of(datum)
        case "interval":
            return interval_text(datum)
        case "time":
            return time_text(datum)
        case "jsonb":
            return jsonb_text(body_of(datum))
        case _ if name.startswith("_"):
            return array_text(name[1:], body_of(datum), _decode)
        case "uuid" if len(datum) == 16:
            return str(uuid.UUID(bytes=datum))
        case "numeric":
            return decode_numeric(body_of(datum))
        case "date":
            return _EPOCH_DATE + datetime.timedelta(days=struct.unpack_from("<i", datum)[0])
        case "timestamp":
            return _EPOCH + datetime.timedelta(microseconds=struct.unpack_from("<q", datum)[0])
        case "timestamptz":
            local = _EPOCH + datetime.timedelta(microseconds=struct.unpack_from("<q", datum)[0])
            return local.replace(tzinfo=datetime.UTC)
        case _:
            raise NotImplementedError(name)


def body_of(datum: bytes) -> bytes:
    """Return the bytes after the header of a variable-length value."""
    header = struct.unpack_from("<I", datum)[0]
    if header & 3 or header >> 2 != len(datum):
        raise ValueError("not a plain variable-length value")
    return datum[_HEADER:]


def decode_numeric(body: bytes) -> Decimal | str:
    """Convert PostgreSQL's base-10000 digits to a Decimal with the display scale; NaN and infinities to their names."""
    head = struct.unpack_from("<H", body)[0]
    if head & 0xC000 == 0xC000:
        return _SPECIAL_NUMERICS[head]
    if head & 0x8000:
        negative, scale = bool(head & 0x2000), (head & 0x1F80) >> 7
        weight, start = (head & 0x3F) - (0x40 if head & 0x40 else 0), 2
    else:
        negative, scale = bool(head & 0x4000), head & 0x3FFF
        weight, start = struct.unpack_from("<h", body, 2)[0], 4
    if (len(body) - start) % 2:
        raise ValueError("half a digit")
    digits = struct.unpack_from(f"<{(len(body) - start) // 2}h", body, start)
    # All digits as one integer in units of 10^(4 * lowest), converted to the display scale.
    whole = 0
    for digit in digits:
        whole = whole * 10000 + digit
    shift = 4 * (weight - len(digits) + 1) + scale
    if shift < 0 and whole % 10**-shift:
        raise ValueError("digits beyond the display scale")
    unscaled = whole * 10**shift if shift >= 0 else whole // 10**-shift
    return Decimal((int(negative), tuple(int(d) for d in str(unscaled)), -scale))


def decimal_physical_type(value: Decimal) -> str | None:
    """Return the narrowest Spark decimal for a literal; None beyond 38 digits."""
    _, digits, exponent = value.as_tuple()
    scale = -int(exponent)
    precision = max(len(digits), scale, 1)
    return f"decimal({precision},{scale})" if precision <= MAX_DECIMAL_DIGITS else None
