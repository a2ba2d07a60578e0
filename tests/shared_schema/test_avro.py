"""The change-row codec: injective names, reversible schemas, exact values in every physical type."""

from __future__ import annotations

import contextlib
import datetime
import io
import json
import re
from decimal import Decimal

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared_schema.avro import (
    HEADER_BYTES,
    ChangeCodec,
    avro_name,
    change_schema,
    fingerprint,
    header_fingerprint,
    parse_table_schema,
    schema_json,
)
from shared_schema.change_row import ChangeRow, Op, Stamp, Value, pack_columns, unpack_columns
from shared_schema.errors import ContractError
from shared_schema.lsn import Lsn
from shared_schema.pg_types import PgType, PhysicalType
from shared_schema.table_schema import Column, ReplicaIdentity, TableId, TableSchema

NUMERIC_12_3 = ((12 << 16) | 3) + 4

names = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=10)
awkward = st.one_of(names, st.text("_x0aA5f", min_size=1, max_size=10))
texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
timestamps = st.datetimes()

VALUES: dict[str, tuple[int, st.SearchStrategy[Value]]] = {
    "bool": (-1, st.booleans()),
    "int2": (-1, st.integers(-(2**15), 2**15 - 1)),
    "int4": (-1, st.integers(-(2**31), 2**31 - 1)),
    "int8": (-1, st.integers(-(2**63), 2**63 - 1)),
    "oid": (-1, st.integers(0, 2**32 - 1)),
    "float4": (-1, st.floats(width=32, allow_nan=False)),
    "float8": (-1, st.floats(allow_nan=False)),
    "numeric": (
        NUMERIC_12_3,
        st.one_of(st.integers(-(10**12) + 1, 10**12 - 1).map(lambda n: Decimal(n).scaleb(-3)), st.just("NaN")),
    ),
    "date": (-1, st.one_of(st.dates(), st.sampled_from(["infinity", "-infinity", "0044-03-15 BC", "10000-01-01"]))),
    "timestamp": (-1, st.one_of(timestamps, st.sampled_from(["infinity", "0001-01-01 00:00:00 BC"]))),
    "timestamptz": (
        -1,
        st.one_of(timestamps.map(lambda t: t.replace(tzinfo=datetime.UTC)), st.just("-infinity")),
    ),
    "bytea": (-1, st.binary()),
    "text": (-1, texts),
}


@st.composite
def rows(draw: st.DrawFn) -> tuple[TableSchema, ChangeRow]:
    """Draw a schema with a row that fits it."""
    kinds = draw(st.lists(st.sampled_from(sorted(VALUES)), max_size=6))
    labels = draw(st.lists(awkward, min_size=len(kinds), max_size=len(kinds), unique=True))
    columns = tuple(
        Column(label, PgType(draw(st.integers(1, 99)), VALUES[kind][0], kind, kind))
        for label, kind in zip(labels, kinds, strict=True)
    )
    key = tuple(draw(st.lists(st.sampled_from(labels), unique=True))) if labels else ()
    identity = draw(st.sampled_from(ReplicaIdentity))
    schema = TableSchema(TableId(draw(names), draw(names)), draw(st.integers(1, 2**32 - 1)), columns, key, identity)
    ordinals = st.frozensets(st.sampled_from(range(len(kinds)))) if kinds else st.just(frozenset[int]())
    op = draw(st.sampled_from(Op))
    values = tuple(draw(st.one_of(st.none(), VALUES[kind][1])) for kind in kinds)
    row = ChangeRow(
        op=op,
        stamp=Stamp(Lsn(draw(st.integers(0, 2**63 - 1))), draw(st.integers(0, 2**63 - 1))),
        xid=draw(st.integers(0, 2**32 - 1)),
        commit_ts_us=draw(st.integers(-(2**62), 2**62)),
        values=None if op is Op.TRUNCATE else values,
        changed=draw(st.one_of(st.none(), ordinals)),
        unknown=draw(ordinals),
        snapshot=draw(st.booleans()),
    )
    return schema, row


@given(awkward, awkward)
def test_names_are_injective(a: str, b: str) -> None:
    assert (avro_name(a) == avro_name(b)) == (a == b)


@given(awkward)
def test_names_are_legal(name: str) -> None:
    assert re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", avro_name(name))


def test_ordinary_names_stay() -> None:
    assert [avro_name(name) for name in ("id", "order_line", "l_2")] == ["id", "order_line", "l_2"]


@given(rows())
def test_row_round_trip(drawn: tuple[TableSchema, ChangeRow]) -> None:
    schema, row = drawn
    codec = ChangeCodec(schema)
    message = codec.encode(row)
    assert header_fingerprint(message) == codec.id == fingerprint(codec.text)
    assert codec.decode(message) == row
    if row.values is not None:
        key = codec.encode_key(row.values)
        assert (key is None) == (schema.key == ())


@given(rows())
def test_schema_round_trip(drawn: tuple[TableSchema, ChangeRow]) -> None:
    schema, _ = drawn
    assert parse_table_schema(json.loads(schema_json(change_schema(schema)))) == schema


@given(rows())
def test_an_independent_avro_reader_agrees(drawn: tuple[TableSchema, ChangeRow]) -> None:
    schema, row = drawn
    codec = ChangeCodec(schema)
    body = io.BytesIO(codec.encode(row)[HEADER_BYTES:])
    record = fastavro.schemaless_reader(body, fastavro.parse_schema(json.loads(codec.text)), None)
    assert isinstance(record, dict)
    assert body.read() == b""
    assert (record["op"], record["lsn"], record["seq"]) == (row.op.value, row.stamp.lsn.value, row.stamp.seq)
    fields = None if record["row"] is None else tuple(record["row"].values())
    assert fields == row.values


def test_nan_survives() -> None:
    schema = TableSchema(
        TableId("s", "t"), 1, (Column("f", PgType(701, -1, "float8", "float8")),), (), ReplicaIdentity.FULL
    )
    codec = ChangeCodec(schema)
    values = codec.decode(codec.encode(ChangeRow(Op.INSERT, Stamp(Lsn(1), 0), 1, 1, (float("nan"),)))).values
    assert values is not None and values[0] != values[0]


def test_another_schema_version_is_noticed() -> None:
    def version(typmod: int) -> ChangeCodec:
        column = Column("v", PgType(1043, typmod, "varchar", f"varchar({typmod - 4})"))
        return ChangeCodec(TableSchema(TableId("s", "t"), 1, (column,), (), ReplicaIdentity.FULL))

    message = version(14).encode(ChangeRow(Op.INSERT, Stamp(Lsn(1), 0), 1, 1, ("x",)))
    with pytest.raises(ContractError):
        version(24).decode(message)


@given(st.binary())
def test_hostile_bodies_give_typed_errors(body: bytes) -> None:
    schema = TableSchema(
        TableId("s", "t"), 1, (Column("d", PgType(1082, -1, "date", "date")),), (), ReplicaIdentity.FULL
    )
    with contextlib.suppress(ContractError):
        ChangeCodec(schema).decode_body(body)


@given(st.binary(max_size=12))
def test_hostile_headers_give_typed_errors(message: bytes) -> None:
    with contextlib.suppress(ContractError):
        header_fingerprint(message)


@given(st.integers(1, 70).flatmap(lambda n: st.tuples(st.just(n), st.frozensets(st.integers(0, n - 1)))))
def test_column_sets_round_trip(drawn: tuple[int, frozenset[int]]) -> None:
    width, ordinals = drawn
    assert unpack_columns(pack_columns(ordinals, width)) == ordinals


def test_every_physical_type_is_drawn() -> None:
    drawn = {PgType(1, typmod, name, name).physical_type for name, (typmod, _) in VALUES.items()}
    assert drawn == set(PhysicalType)


@pytest.mark.parametrize(
    ("typmod", "expected"),
    [(-1, None), (((10 << 16) | 2) + 4, (10, 2)), (((3 << 16) | (-2 & 0x7FF)) + 4, (3, -2)), ((40 << 16) + 4, (40, 0))],
)
def test_numeric_bounds(typmod: int, expected: tuple[int, int] | None) -> None:
    numeric = PgType(1700, typmod, "numeric", "numeric")
    assert numeric.precision_scale == expected
    assert (numeric.physical_type is PhysicalType.DECIMAL) == (expected == (10, 2))
