"""Avro's bytes of single values, from tables: what generated encoders are made of. Everything is exact or raises."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import TypeVar

NULL = b"\0"
"""Union branch 0."""

CACHE_MAX = 20_000
"""Entries of one cache; a full one is emptied, which costs less than keeping track of use."""

_EPOCH = datetime.datetime(1970, 1, 1)
_EPOCH_DAY = _EPOCH.toordinal()
_US = datetime.timedelta(microseconds=1)
_SEPARATORS = ((4, 45), (7, 45), (10, 32), (13, 58), (16, 58))
"""Where `YYYY-MM-DD HH:MM:SS` has its dashes, blank and colons."""

V = TypeVar("V")
K = TypeVar("K")


class Cache(dict[K, V]):
    """A bounded cache that computes what is missing."""

    def __init__(self, make: Callable[[K], V]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, key: K) -> V:
        if len(self) >= CACHE_MAX:
            self.clear()
        made = self[key] = self._make(key)
        return made


def varint(number: int) -> bytes:
    """A non-negative number, seven bits a byte, the lowest first."""
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def long(number: int) -> bytes:
    """Avro's int and long."""
    return varint(number << 1 if number >= 0 else ~(number << 1))


def column_long(number: int) -> bytes:
    """The same in union branch 1."""
    return b"\x02" + long(number)


def column_bytes(content: bytes) -> bytes:
    """Bytes or text in union branch 1."""
    return b"\x02" + long(len(content)) + content


def _date(text: bytes) -> bytes:
    if len(text) != 10:
        raise ValueError(text)
    return column_long(datetime.date.fromisoformat(text.decode()).toordinal() - _EPOCH_DAY)


def _second(text: bytes) -> int:
    if len(text) != 19 or any(text[at] != char for at, char in _SEPARATORS):
        raise ValueError(text)
    return (datetime.datetime.fromisoformat(text.decode()) - _EPOCH) // _US


ENDS = [varint(n) for n in range(1 << 14)]
"""The last one or two bytes of a varint."""

PAIRS = [bytes((n & 127 | 128, n >> 7 | 128)) for n in range(1 << 14)]
"""Two bytes of a varint that goes on."""

COLUMN_PAIRS = [b"\x02" + pair for pair in PAIRS]

SMALL = [b"\x02" + ENDS[n << 1] for n in range(8192)] + [b"\x02" + ENDS[~(n << 1)] for n in range(-8192, 0)]
"""Union branch 1 with a number of -8192 to 8191; negative ones by Python's negative index."""

BOOLEANS = {b"t\0\0\0\1t": b"\x02\x01", b"t\0\0\0\1f": b"\x02\x00"}
"""A whole column of a tuple -> union branch 1."""

DATES: Cache[bytes, bytes] = Cache(_date)
"""`2000-01-31` -> union branch 1; ValueError for what is no ordinary date."""

SECONDS: Cache[bytes, int] = Cache(_second)
"""`2000-01-31 12:34:56` -> microseconds since 1970."""

HIGH: Cache[int, bytes] = Cache(varint)
"""The end of a varint that is long, for parts that repeat."""

FRACTION = {1: 100_000, 2: 10_000, 3: 1_000, 4: 100, 5: 10, 6: 1}
"""Digits after the point -> microseconds of the last one."""
