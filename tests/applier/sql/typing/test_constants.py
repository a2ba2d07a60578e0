"""Constants are read from their bytes: PostgreSQL writes them, psycopg returns the expected values."""

from __future__ import annotations

import datetime
from decimal import Decimal
from random import Random
from typing import Any

import psycopg
import pytest

from applier.plan.expr import Const
from applier.plan.nodes import Project
from applier.sql.plan_query import plan_query
from applier.sql.refusal import Reason, Refused
from applier.sql.typing.constants import decimal_physical_type, decode_constant, decode_numeric

LITERALS = [
    "true", "false", "0", "1", "-1", "2147483647", "-2147483648", "2147483648", "(-32768)::int2", "1::int2",
    "9223372036854775807", "(-9223372036854775808)::int8",
    "1.50", "0.00", "-0.001", "123456789.987654321", "1e10", "1e-10", "100000",
    "0.0001", "10000.0001", "99999999999999999999",
    "''", "'it''s'", r"'back\slash'", "'é😀'", "E'a\\nb'", "'trailing  '", "'x'::varchar(5)", "'ab '::char(5)",
    "date '2024-02-29'", "date '0001-01-01'", "date '9999-12-31'", "timestamp '2000-01-01 00:00:00.000001'",
    "timestamp '1999-12-31 23:59:59.999999'", "timestamptz '2024-06-01 12:00:00+02'",
    "timestamptz '0001-01-01 00:00:00+00'",
    "'0.1'::float8", "'-0'::float8", "'1e308'::float8", "'Infinity'::float8",
]  # fmt: skip


def _constants(connection: psycopg.Connection[Any], literals: list[str]) -> list[Const]:
    columns = ", ".join(f"{literal} AS c{i}" for i, literal in enumerate(literals))
    plan = plan_query(connection, f"SELECT {columns}, one FROM single", "public").plan.root
    assert isinstance(plan, Project)
    found = [e for e in plan.exprs[:-1] if isinstance(e, Const)]
    assert len(found) == len(literals)
    return found


@pytest.fixture
def single(database: str) -> Any:
    with psycopg.connect(database, autocommit=True, options="-c TimeZone=UTC") as connection:
        connection.execute("CREATE TABLE single (one int)")
        yield connection


def test_every_kind_of_literal(single: psycopg.Connection[Any]) -> None:
    plain = [literal for literal in LITERALS if not literal.startswith(("(-", "1::", "'x'::v", "'ab '::c"))]
    expected = single.execute(f"SELECT {', '.join(plain)}".encode()).fetchone()
    assert expected is not None
    for literal, const, value in zip(plain, _constants(single, plain), expected, strict=True):
        assert const.value == value, literal
        assert type(const.value) is type(value), literal
        if isinstance(value, Decimal):
            assert str(const.value) == str(value), literal


TEXTS = [
    "interval '1 year 2 mons -3 days 04:05:06.7'", "interval '-1 mon +1 day'", "interval '0'", "interval '-0.000001 s'",
    "time '10:00'", "time '24:00'", "time '01:02:03.4500'", "'NaN'::numeric", "'-Infinity'::numeric",
    """'{"b": [1, 2.50, -3e5, null, true, {"x": ""}], "a": "é\\"\\n", "aa": {}, "c": []}'::jsonb""", "'1.0'::jsonb",
    """'"x"'::jsonb""", "'[[], {}]'::jsonb", "'{}'::int[]", "'{1,NULL,-3}'::int4[]", "'{1,2}'::int2[]",
    """'{"a b",NULL,"NULL","",é,"{}","\\"q"}'::text[]""", "'{t,f,NULL}'::bool[]",
    "'{1.50,NaN,100000000000}'::numeric[]", "'{2024-01-01,NULL}'::date[]",
    "'{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}'::uuid[]", "'{9223372036854775807}'::int8[]",
    "'{0.25,NULL,-0,1,0.0001,123456789012345.6,-99999999999999}'::float8[]",
    "12345678901234567890123456789012345678901234567890.5",
]  # fmt: skip


def test_literals_that_are_held_as_text(single: psycopg.Connection[Any]) -> None:
    expected = single.execute(f"SELECT {', '.join(f'({t})::text' for t in TEXTS)}".encode()).fetchone()
    assert [const.value for const in _constants(single, TEXTS)] == list(expected or ())


def test_random_numerics(single: psycopg.Connection[Any]) -> None:
    random = Random(7)
    literals = []
    for _ in range(300):
        digits = str(random.randrange(10 ** random.randrange(1, 30)))
        point = random.randrange(len(digits) + 1)
        literals.append(f"'{random.choice(['', '-'])}0{digits[:point]}.{digits[point:]}0'::numeric")
    expected = single.execute(f"SELECT {', '.join(literals)}".encode()).fetchone()
    assert expected is not None
    for const, value in zip(_constants(single, literals), expected, strict=True):
        assert str(const.value) == str(value) or (value == 0 and const.value == 0)


@pytest.mark.parametrize(
    ("value", "physical_type"),
    [("0", "decimal(1,0)"), ("1.50", "decimal(3,2)"), ("-0.001", "decimal(3,3)"), ("1234", "decimal(4,0)")],
)
def test_a_numeric_literal_gets_the_narrowest_physical_type(value: str, physical_type: str) -> None:
    assert decimal_physical_type(Decimal(value)) == physical_type


def test_more_than_38_digits_have_no_physical_type() -> None:
    assert decimal_physical_type(Decimal("1" * 39)) is None


@pytest.mark.parametrize(
    ("name", "datum"),
    [
        ("int4", b"\x01"),
        ("text", b"\x05\x00\x00\x00a"),
        ("text", b""),
        ("text", b"\x14\x00\x00\x00\xff"),
        ("numeric", b"\x18\x00\x00\x00\x00\xe0"),
        ("date", b"\xff\xff\xff\x7f"),
        ("timestamp", b"\xff" * 7 + b"\x7f"),
        ("jsonb", b"\x00"),
    ],
)
def test_bytes_that_are_not_understood_are_refused(name: str, datum: bytes) -> None:
    with pytest.raises(Refused) as caught:
        decode_constant(name, datum, None)
    assert caught.value.reason is Reason.CONSTANT


def test_a_long_numeric_form() -> None:
    body = (
        b"\x02\x40" + (0).to_bytes(2, "little", signed=True) + (1).to_bytes(2, "little") + (5000).to_bytes(2, "little")
    )
    assert decode_numeric(body) == Decimal("-1.50")


def test_times_know_their_zone() -> None:
    value = decode_constant("timestamptz", (0).to_bytes(8, "little"), None)
    assert value == datetime.datetime(2000, 1, 1, tzinfo=datetime.UTC)
    assert decode_constant("timestamp", (0).to_bytes(8, "little"), None) == datetime.datetime(2000, 1, 1)
