"""Lookup tables and functions for generated encoders: they return the exact Avro bytes of one value, or raise."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import TypeVar

NULL = b"\0"
"""Union branch 0."""

CACHE_MAX = 20_000
"""Entries of one cache; a full cache is cleared, which costs less than tracking the use of each entry."""

_EPOCH_DAY = datetime.date(1970, 1, 1).toordinal()
_SECOND_US = 1_000_000

V = TypeVar("V")
K = TypeVar("K")


class Cache(dict[K, V]):
    """A bounded cache that computes missing entries."""

    def __init__(self, make: Callable[[K], V]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, key: K) -> V:
        if len(self) >= CACHE_MAX:
            self.clear()
        made = self[key] = self._make(key)
        return made


def varint(number: int) -> bytes:
    """Encode a non-negative number: seven bits per byte, the lowest bits first."""
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def long(number: int) -> bytes:
    """Encode Avro's int and long."""
    return varint(number << 1 if number >= 0 else ~(number << 1))


def restamp_message(message: bytes, body_at: int, lsn: int, seq: int) -> bytes:
    """Return the message of a change row with another stamp: its body begins with op (one byte), lsn and seq."""
    end = body_at + 1
    for _ in range(2):
        while message[end] & 128:
            end += 1
        end += 1
    return message[: body_at + 1] + long(lsn) + long(seq) + message[end:]


def column_long(number: int) -> bytes:
    """Encode an int or long in union branch 1."""
    return b"\x02" + long(number)


def column_bytes(content: bytes) -> bytes:
    """Encode bytes or text in union branch 1."""
    return b"\x02" + long(len(content)) + content


def _day(text: bytes) -> int:
    if len(text) != 10 or not text[4] == text[7] == 45:
        raise ValueError(text)
    return datetime.date.fromisoformat(text.decode()).toordinal() - _EPOCH_DAY


ENDS = [varint(n) for n in range(1 << 14)]
"""The last one or two bytes of a varint."""

PAIRS = [bytes((n & 127 | 128, n >> 7 | 128)) for n in range(1 << 14)]
"""Two bytes of a varint that further bytes follow."""

COLUMN_PAIRS = [b"\x02" + pair for pair in PAIRS]

SMALL = [b"\x02" + ENDS[n << 1] for n in range(8192)] + [b"\x02" + ENDS[~(n << 1)] for n in range(-8192, 0)]
"""Union branch 1 with a number from -8192 to 8191; negative numbers use Python's negative index."""

BOOLEANS = {b"t\0\0\0\1t": b"\x02\x01", b"t\0\0\0\1f": b"\x02\x00"}
"""A whole column of a tuple -> union branch 1."""

DATES: Cache[bytes, bytes] = Cache(lambda text: column_long(_day(text)))
"""`2000-01-31` -> union branch 1; ValueError for everything that is not an ordinary date."""

DAYS: Cache[bytes, int] = Cache(lambda text: _day(text) * 86_400 * _SECOND_US)
"""`2000-01-31` -> microseconds since 1970."""

MINUTES = {b" %02d:%02d" % (m // 60, m % 60): m * 60 * _SECOND_US for m in range(24 * 60)}
"""` 12:34` -> microseconds."""

SECONDS = {b":%02d" % s: s * _SECOND_US for s in range(60)}
"""`:56` -> microseconds."""

HIGH: Cache[int, bytes] = Cache(varint)
"""The last bytes of a long varint, for high parts that repeat."""

FRACTION = {1: 100_000, 2: 10_000, 3: 1_000, 4: 100, 5: 10, 6: 1}
"""Number of digits after the decimal point -> microseconds of the last digit."""
