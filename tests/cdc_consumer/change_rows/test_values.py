"""Text is parsed to physical types exactly; special values stay text; unexpected text is refused with its column."""

from __future__ import annotations

import datetime
import math
from decimal import Decimal

import pytest

from cdc_consumer.change_rows.values import RowParser
from cdc_consumer.errors import UnreadableValue
from shared_schema.change_row import Value
from shared_schema.pg_types import PgType
from shared_schema.table_schema import Column, ReplicaIdentity, TableId, TableSchema

BOUNDED = ((10 << 16) | 2) + 4


def parser(name: str, typmod: int = -1) -> RowParser:
    column = Column("c", PgType(1, typmod, name, name))
    return RowParser(TableSchema(TableId("public", "t"), 1, (column,), (), ReplicaIdentity.FULL))


@pytest.mark.parametrize(
    ("name", "typmod", "text", "value"),
    [
        ("bool", -1, "t", True),
        ("bool", -1, "f", False),
        ("int8", -1, "-9223372036854775808", -(2**63)),
        ("oid", -1, "4294967295", 2**32 - 1),
        ("float8", -1, "-Infinity", -math.inf),
        ("float8", -1, "5e-324", 5e-324),
        ("numeric", BOUNDED, "-1.50", Decimal("-1.50")),
        ("numeric", BOUNDED, "NaN", "NaN"),
        ("numeric", -1, "1e1000", "1e1000"),
        ("date", -1, "2024-02-29", datetime.date(2024, 2, 29)),
        ("date", -1, "infinity", "infinity"),
        ("date", -1, "-infinity", "-infinity"),
        ("date", -1, "0044-03-15 BC", "0044-03-15 BC"),
        ("date", -1, "12024-01-01", "12024-01-01"),
        ("timestamp", -1, "2024-01-01 00:00:00.5", datetime.datetime(2024, 1, 1, 0, 0, 0, 500_000)),
        ("timestamp", -1, "0001-01-01 00:00:00 BC", "0001-01-01 00:00:00 BC"),
        ("timestamp", -1, "12024-01-01 00:00:00", "12024-01-01 00:00:00"),
        ("timestamptz", -1, "2024-01-01 01:00:00+00", datetime.datetime(2024, 1, 1, 1, tzinfo=datetime.UTC)),
        ("timestamptz", -1, "infinity", "infinity"),
        ("bytea", -1, "\\x00ff", b"\x00\xff"),
        ("text", -1, "", ""),
        ("bpchar", -1, "a  ", "a  "),
        ("jsonb", -1, '{"a": 1}', '{"a": 1}'),
    ],
)
def test_values(name: str, typmod: int, text: str, value: Value) -> None:
    assert parser(name, typmod).value(0, text.encode()) == value
    assert parser(name, typmod).row((text,)) == (value,)


@pytest.mark.parametrize(
    ("name", "raw"),
    [
        ("int2", b"32768"),
        ("int4", b"-2147483649"),
        ("int8", b"9223372036854775808"),
        ("numeric", b"100000000.00"),
        ("numeric", b"1e8"),
        ("numeric", b"0.001"),
        ("bool", b"true"),
        ("int4", b"1.5"),
        ("int4", b""),
        ("float8", b"x"),
        ("date", b"2024-13-01"),
        ("timestamp", b"2024-01-01 25:00:00"),
        ("bytea", b"abc"),
        ("bytea", b"\\xzz"),
        ("text", b"\xff"),
    ],
)
def test_nothing_is_guessed(name: str, raw: bytes) -> None:
    with pytest.raises(UnreadableValue, match=r"public\.t column c"):
        parser(name, BOUNDED if name == "numeric" else -1).value(0, raw)


def test_null() -> None:
    assert parser("int4").row((None,)) == (None,)
