"""Values to fuzz with, per PostgreSQL type: edges first, random ones after."""

from __future__ import annotations

import re
import uuid
from random import Random

EDGE_COUNT = 11
"""With NULL twelve; every pair of two columns' edges is a row."""

_INTEGERS = {"int2": 15, "int4": 31, "int8": 63}
_TEXTS = ["", "a", "ab", "a ", "A", "é", "e\u0301", "a%b", "a\\%", "ab\nc", "😀b"]
_MORE_TEXTS = [
    " a",
    "Z",
    "ß",
    "aa",
    "a_b",
    "\\",
    "\\a",
    "_",
    "%",
    "\uffff",
    "\U00010000",
    "b",
    "ba",
    "abé",
    "\r\n",
    "ﬁ",
]
_DATES = [
    "0001-01-01", "1582-10-04", "1582-10-15", "1900-02-28", "1970-01-01", "1999-12-31",
    "2000-01-01", "2000-02-29", "2024-03-31", "2100-03-01", "9999-12-31",
]  # fmt: skip
_TIMES = [
    "00:00:00", "00:00:00.000001", "23:59:59.999999", "12:00:00", "02:30:00", "00:00:01",
    "23:59:59", "11:59:59.5", "00:00:00", "01:02:03.456789", "23:59:59.999999",
]  # fmt: skip
_FLOATS = ["NaN", "Infinity", "-Infinity", "0", "-0", "1", "-1", "5e-324", "1.7976931348623157e308", "0.1", "-2.5"]


def edges(type_name: str) -> list[str]:
    """Eleven values where things go wrong."""
    found = _edges(type_name)
    assert len(found) == EDGE_COUNT, type_name
    return found


def _edges(type_name: str) -> list[str]:
    if type_name in _INTEGERS:
        top = 1 << _INTEGERS[type_name]
        return [str(v) for v in (0, 1, -1, 2, -2, 7, top - 1, top - 2, -top, -top + 1, 100)]
    if size := _numeric_size(type_name):
        return [_numeric(v, size[1]) for v in _numeric_edges(*size)]
    match type_name:
        case "bool":
            return ["true", "false"] * 5 + ["true"]
        case "text":
            return _TEXTS
        case "char(6)" | "varchar(10)":
            return [t[:6] for t in _TEXTS]
        case "date":
            return _DATES
        case "timestamp" | "timestamptz":
            return [f"{d} {t}" for d, t in zip(_DATES, _TIMES, strict=True)]
        case "float8":
            return _FLOATS
        case "float4":
            return [f.replace("e-324", "e-45").replace("1.7976931348623157e308", "3.4028235e38") for f in _FLOATS]
        case "bytea":
            return [f"\\x{h}" for h in ("", "00", "0000", "01", "7f", "80", "ff", "ff00", "61", "6162", "c3a9")]
        case "uuid":
            return [str(uuid.UUID(int=i * (1 << 128) // 11 + i)) for i in range(11)]
        case _:
            raise AssertionError(f"no values for {type_name}")


def random_value(type_name: str, random: Random) -> str:
    """One random value."""
    if type_name in _INTEGERS:
        bits = random.choice([3, 8, _INTEGERS[type_name]])
        return str(random.randrange(-(1 << bits), 1 << bits))
    if size := _numeric_size(type_name):
        digits = random.randrange(1, size[0] + 1)
        return _numeric(random.randrange(-(10**digits) + 1, 10**digits), size[1])
    match type_name:
        case "text":
            return "".join(random.choice("ab%_\\é😀 A\n") for _ in range(random.randrange(7))) + random.choice(
                ["", random.choice(_MORE_TEXTS)]
            )
        case "char(6)" | "varchar(10)":
            return "".join(random.choice("ab é") for _ in range(random.randrange(7)))
        case "timestamp" | "timestamptz":
            time = f"{random.randrange(24):02}:{random.randrange(60):02}:59.{random.randrange(10**6):06}"
            return f"{_random_date(random)} {time}"
        case "date":
            return _random_date(random)
        case "float8":
            return repr(random.choice([random.gauss(0, 1), random.gauss(0, 1e200), float(random.randrange(-3, 4))]))
        case "uuid":
            return str(uuid.UUID(int=random.getrandbits(128)))
        case _:
            return random.choice(edges(type_name))


def _random_date(random: Random) -> str:
    return f"{random.randrange(1, 10000):04}-{random.randrange(1, 13):02}-{random.randrange(1, 29):02}"


def _numeric_size(type_name: str) -> tuple[int, int] | None:
    found = re.fullmatch(r"numeric\((\d+),(\d+)\)", type_name)
    return (int(found[1]), int(found[2])) if found else None


def _numeric_edges(precision: int, scale: int) -> list[int]:
    top = 10**precision - 1
    half = 5 * 10 ** max(scale - 1, 0)
    one = min(10**scale, top)
    return [0, 1, -1, top, -top, half, -half, min(one + half, top), max(-one - half, -top), one, top - half]


def _numeric(unscaled: int, scale: int) -> str:
    digits = str(abs(unscaled)).rjust(scale + 1, "0")
    sign = "-" if unscaled < 0 else ""
    return f"{sign}{digits[: len(digits) - scale]}.{digits[len(digits) - scale :]}".rstrip(".")
