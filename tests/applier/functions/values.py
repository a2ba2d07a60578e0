"""Generates fuzz values per PostgreSQL type: edge values first, then random ones."""

from __future__ import annotations

import datetime
import re
import uuid
from random import Random

EDGE_COUNT = 11
"""Twelve with NULL; every pair of edge values of two columns is a row."""

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
_NUMERICS = [
    "0", "1", "-1.50", "NaN", "Infinity", "-Infinity", "0.00", "12345678901234567890123456789012345678901234567890.5",
    "-0.00000000000000000000000000000000000000000000000123", "1.0", "1e400",
]  # fmt: skip
_JSON = [
    "{}", "[]", "null", "1", '"a"', '{"a": 1, "b": [1, 2.50, null]}', '[1, "a", {"a": null}, [1]]',
    '{"a": {"b": ["x", true]}}',     '{"b": 1.0, "a": "", "aa": "é\\n\\"q"}', "[1.0, 2.5, false]", '["a", "b", "a"]',
]  # fmt: skip
_INTERVALS = [
    "0", "1 mon", "30 days", "-1 mon +29 days -24:00:00", "1 year 2 mons 3 days 04:05:06.789", "-00:00:00.000001",
    "178956970 years 7 mons 2147483647 days", "-178956970 years -8 mons", "-2147483648 days", "2562047788:00:54.775807",
    "-2562047788:00:54.775807",
]  # fmt: skip
_SMALL_INTERVALS = [
    "0", "1 mon", "-1 mon", "1 day", "24:00:00", "-1 days +36:00:00", "1 year 2 mons 3 days 04:05:06.789",
    "-13 mons", "-00:00:00.000001", "35 days 25:00:00", "-1 mons +31 days -47:59:59",
]  # fmt: skip
_NUMBER_TEXTS = [
    "1", " -12.50\t", "1e10", "+.5", "5.", "", "abc", "NaN", "-inf", "1 2", "0.1e-3",
]  # fmt: skip
_FLOATS = [
    "NaN",
    "Infinity",
    "-Infinity",
    "0",
    "-0",
    "1",
    "-1.7976931348623157e308",
    "5e-324",
    "1.7976931348623157e308",
    "0.1",
    "-2.5",
]


def pg_type(type_name: str) -> str:
    """Return the column type; after a colon the name may say what its values look like (`text:number`)."""
    return type_name.partition(":")[0]


def edges(type_name: str) -> list[str]:
    """Return eleven values that often cause errors."""
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
        case "numeric":
            return _NUMERICS
        case "text:number":
            return _NUMBER_TEXTS
        case "numeric:finite":
            return ["99999.5" if v in ("NaN", "Infinity", "-Infinity") else v for v in _NUMERICS]
        case "interval":
            return _INTERVALS
        case "interval:small":
            return _SMALL_INTERVALS
        case "interval:unequal":
            return ["1 day" if v == "24:00:00" else v for v in _SMALL_INTERVALS]
        case "time":
            return [*_TIMES[:8], "24:00:00", *_TIMES[9:]]
        case "date:middle" | "timestamp:middle" | "timestamptz:middle":
            return [v.replace("0001-", "1000-").replace("9999-", "9000-") for v in _edges(pg_type(type_name))]
        case "timestamp:recent" | "timestamptz:recent":
            return [
                "1970-01-01 00:00:00", "1990-03-25 02:30:00", "1990-09-30 02:30:00", "2024-03-31 02:00:00",
                "2024-03-31 02:59:59.999999", "2024-10-27 02:00:00", "2024-10-27 02:30:00", "2024-10-27 03:00:00",
                "2024-11-03 01:30:00", "2024-03-10 02:30:00", "2037-12-31 23:59:59",
            ]  # fmt: skip
        case "int2:year":
            return [str(y) for y in (1, 4, 100, 1582, 1900, 1970, 1999, 2000, 2024, 2023, 9999)]
        case "float8:near" | "float4:near":
            return ["NaN", "Infinity", "-Infinity", "0", "-0", "1", "-1", "0.1", "-2.5", "3.3333", "100000"]
        case "float8:small":
            return ["0", "0.5", "-0.5", "1.5", "2", "-3", "0.1", "59.9999995", "12.345678", "7", "1e-7"]
        case "float8:epoch":
            return ["0", "1700000000.5", "-1", "0.1", "0.000001", "253402300799", "1e9", "1234567890.123456", "1e-7",
                    "946684800", "946684800.000001"]  # fmt: skip
        case "text:moment":
            return [
                "2024-02-29", "2023-02-29", "2024-1-5", " 2024-01-01 10:00 ", "2024-01-01T23:59:60", "abc", "",
                "2024-01-01 12:34:56.789", "2024-01-01 00:00:00+02", "2024-12-31 24:00:00", "2024-01-01 00:00:00-0330",
            ]  # fmt: skip
        case "text:words":
            return ["hello wORLD-foo_bar", "ÀÉ straße", "1a2B", "x'y", "", "ALL", "é1é", "a\tb", "O'R", "İi", "z9Z"]
        case "jsonb" | "json" | "text:json":
            return _JSON
        case "text:syntax":
            return [
                '{"a":1, "a":2}', "[1,]", '{"a"}', "01", '"\\u00g0"', '"\\ud800"', '{"\\u0000": 1}', " true ", "tru",
                '{"a": [1, {"b": 2, "\\u0062": 3}]} ', '"a\tb"',
            ]  # fmt: skip
        case "jsonb:moments":
            return [
                '{"a": "2024-02-29"}', '{"a": "2023-02-29"}', '{"a": "abc"}', '"2024-01-01"', '{"a": null}', "[]",
                '{"a": "2024-01-01 10:00:00"}', '{"a": "2024-01-01T23:59:59.123456+02"}', '{"a": ""}', '{"a": true}',
                '{"a": {"b": "2020-01-01"}}',
            ]  # fmt: skip
        case "jsonb:values":
            return [
                '{"a": "12"}', '{"a": " 7 "}', '{"a": 99.95}', '{"a": "x"}', '{"a": true}', '"t"', "32768", '"-1.25"',
                '{"a": null}', "[1]", '{"a": {"b": 1}}',
            ]  # fmt: skip
        case "int4[]":
            return [
                "{}",
                "{1}",
                "{1,2}",
                "{NULL}",
                "{1,NULL}",
                "{2,1,1}",
                "{-1,0,7}",
                "{1,2,3}",
                "{NULL,1}",
                "{7}",
                "{100,2}",
            ]
        case "int2[]" | "int8[]":
            return _edges("int4[]")
        case "uuid[]":
            return ["{" + ",".join(_edges("uuid")[:i]) + "}" for i in range(EDGE_COUNT)]
        case "text[]":
            return ["{}", "{a}", '{""}', "{NULL}", '{"NULL",null}', '{"a b","c\\"d"}', "{a,b}", "{é,ab}", '{"{x}"}',
                    '{"\\\\"}', "{b,a,a}"]  # fmt: skip
        case "numeric[]":
            return [
                "{}",
                "{1}",
                "{1.0}",
                "{1.00,NULL}",
                "{NaN}",
                "{Infinity,1}",
                "{-1.50}",
                "{0,1e50}",
                "{NULL}",
                "{1,2}",
                "{99999.5}",
            ]
        case "float8[]":
            return [
                "{}",
                "{1}",
                "{NaN}",
                "{0}",
                "{-0}",
                "{NULL,1}",
                "{Infinity}",
                "{1.5,2}",
                "{1e300}",
                "{1,2}",
                "{-1}",
            ]
        case "bool[]":
            return [
                "{}",
                "{t}",
                "{f}",
                "{NULL}",
                "{t,f}",
                "{f,t}",
                "{t,NULL}",
                "{t,t}",
                "{f,f}",
                "{NULL,f}",
                "{f,NULL,t}",
            ]
        case "date[]":
            return ["{}", "{2024-01-01}", "{NULL}", "{0001-01-01}", "{9999-12-31}", "{2024-01-01,2023-01-01}",
                    "{2000-02-29}",                     "{2000-02-29,NULL}", "{1999-12-31}", "{2024-01-02}",
                    "{1582-10-15}"]  # fmt: skip
        case "fuzz_mood":
            return ["sad", "ok", "happy", "a b", "Ok", "sad", "ok", "happy", "a b", "Ok", "sad"]
        case "numeric:plain":
            return [
                "0",
                "0.5",
                "-0.5",
                "1234.5",
                "-1234.567",
                "9.995",
                "99999.5",
                "0.004",
                "-0.004",
                "12345678901",
                "10",
            ]
        case "text:iso":
            return ["2024-02-29", "2023-02-28", "2024-02-30", "2024-13-01", "0001-01-01", "9999-12-31", "1999-12-31",
                    "2000-01-01", "2024-00-10", "2024-06-15", "1970-01-01"]  # fmt: skip
        case "text:iso2":
            return ["05 Dec 2000", "29 Feb 2024", "29 Feb 2023", "31 jan 1999", "01 MAR 2010", "31 Apr 2001",
                    "15 Jun 1582",                    "30 Sep 2020", "28 Jul 2021", "09 Aug 0099",
                    "11 Nov 2011"]  # fmt: skip
        case "int2:small":
            return [str(n) for n in range(-3, 8)]
        case "text:bool":
            return ["t", "TRUE", " f ", "yes", "n", "on", "of", "o", "1", "0", "2"]
        case "text:uuid":
            bare = "A0eebc999c0b4ef8bb6d6bb9bd380a11"
            hyphens = f"{bare[:8]}-{bare[8:12]}-{bare[12:16]}-{bare[16:20]}-{bare[20:]}"
            return [
                bare,
                hyphens,
                f"{{{bare}}}",
                f"{{{hyphens}}}",
                f" {bare}",
                bare[:-1],
                f"{bare}0",
                bare.lower(),
                "-".join(bare[i : i + 4] for i in range(0, 32, 4)),
                f"{bare[:3]}-{bare[3:]}",
                f"{{{bare}",
            ]
        case "text:bytea":
            return ["\\x", "\\x61FF", "\\x6 1", "\\x61 62", "\\x6", "ab", "\\\\", "\\001\\377", "\\400", "a\\", "\\xzz"]
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
        case "inet":
            return ["0.0.0.0", "10.0.0.1", "10.0.0.1/8", "10.0.0.1/32", "255.255.255.255", "::", "::1",
                    "2001:DB8::1/64", "10.0.0.0/8", "::ffff:1.2.3.4", "0:0:0:0:0:0:0:1/128"]  # fmt: skip
        case "macaddr":
            return ["08:00:2b:01:02:03", "08-00-2B-01-02-03", "08002b010203", "00:00:00:00:00:00", "ff:ff:ff:ff:ff:ff",
                    *(f"00:00:00:00:00:0{i}" for i in range(6))]  # fmt: skip
        case "bit(4)":
            return [f"{i:04b}" for i in range(EDGE_COUNT)]
        case "varbit":
            return ["", "0", "00", "1", "01", "10", "000", "1010", "0101", "11111111", "1"]
        case "int4range":
            return ["empty", "[1,1)", "[1,5]", "[1,6)", "(0,6)", "(,)", "[,5]", "(,6)", "[1,)", "(0,)", "[-1,1]"]
        case "daterange":
            return ["empty", "[2024-01-01,2024-01-01]", "[2024-01-01,2024-01-02)", "(,)", "[2024-01-01,)",
                    "(2023-12-31,)", "(,2024-01-01]", "(,2024-01-02)", "[0001-01-01,9999-12-30]",
                    "(2024-01-01,2024-01-02)", "[2024-02-29,2024-03-01]"]  # fmt: skip
        case _:
            raise AssertionError(f"no values for {type_name}")


def random_value(type_name: str, random: Random) -> str:
    """Return one random value."""
    if type_name in _INTEGERS:
        bits = random.choice([3, 8, _INTEGERS[type_name]])
        return str(random.randrange(-(1 << bits), 1 << bits))
    if size := _numeric_size(type_name):
        digits = random.randrange(1, size[0] + 1)
        return _numeric(random.randrange(-(10**digits) + 1, 10**digits), size[1])
    match type_name:
        case "text:number":
            sign, exponent = random.choice(["", "-", "+", " "]), random.choice(["", "", "e2", "E-3", "x"])
            digits = random.randrange(10 ** random.choice([1, 3, 5, 10, 20]))
            return f"{sign}{_numeric(digits, random.randrange(3))}{exponent}"
        case "numeric" | "numeric:finite":
            unscaled = random.randrange(
                -(10 ** random.choice([1, 3, 8, 16, 30])), 10 ** random.choice([1, 3, 8, 16, 45])
            )
            return _numeric(unscaled, random.choice([0, 0, 1, 2, 5, 20]))
        case "text":
            return "".join(random.choice("ab%_\\é😀 A\n") for _ in range(random.randrange(7))) + random.choice(
                ["", random.choice(_MORE_TEXTS)]
            )
        case "char(6)" | "varchar(10)":
            return "".join(random.choice("ab é") for _ in range(random.randrange(7)))
        case "interval" | "interval:small" | "interval:unequal":
            months, days = random.randrange(-40, 40), random.randrange(-70, 70)
            return f"{months} mons {days} days {random.randrange(-(10**12), 10**12) / 1e6:.6f} seconds"
        case "time":
            return _random_clock(random)
        case "timestamp:recent" | "timestamptz:recent":
            minute = random.randrange(0, 68 * 365 * 24 * 60, 30)
            return f"{datetime.datetime(1970, 1, 1) + datetime.timedelta(minutes=minute)}"
        case "date:middle":
            return _middle_date(random)
        case "timestamp:middle" | "timestamptz:middle":
            return f"{_middle_date(random)} {_random_clock(random)}"
        case "float8:near" | "float4:near":
            return repr(round(random.uniform(-100, 100), random.randrange(7)))
        case "float8:small":
            return repr(round(random.uniform(-100, 100), random.randrange(7)))
        case "float8:epoch":
            return repr(random.uniform(0, 4e9))
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


def _random_clock(random: Random) -> str:
    clock = random.randrange(86_400)
    return f"{clock // 3600:02}:{clock // 60 % 60:02}:{clock % 60:02}.{random.randrange(10**6):06}"


def _middle_date(random: Random) -> str:
    return f"{random.randrange(1000, 9000):04}-{random.randrange(1, 13):02}-{random.randrange(1, 29):02}"


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
