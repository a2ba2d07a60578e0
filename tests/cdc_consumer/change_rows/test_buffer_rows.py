"""A row in COPY's binary format equals the row in its text format: PostgreSQL reads both and compares."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_consumer.change_rows.binary_values import binary_form
from cdc_consumer.change_rows.buffer_rows import BINARY, BOOKKEEPING, Layout, RowForm, restamp_row
from shared_schema.change_row import ChangeRow, Op, Stamp
from shared_schema.lsn import Lsn
from shared_schema.pg_types import PgType
from shared_schema.table_schema import Column, ReplicaIdentity, TableId, TableSchema
from tests.cdc_consumer.change_rows.test_generated import ORDINARY, SPECIAL
from tests.cdc_consumer.harness import connect

TYPES = {
    "bool": "bool",
    "int2": "int2",
    "int4": "int4",
    "int8": "int8",
    "oid": "oid",
    "float4": "float4",
    "float8": "float8",
    "numeric": "numeric",
    "date": "date",
    "timestamp": "timestamp",
    "timestamptz": "timestamptz",
    "bytea": "bytea",
    "text": "text",
    "varchar": "varchar(9000)",
    "bpchar": "char(6)",
    "jsonb": "jsonb",
    "json": "json",
    "uuid": "uuid",
}
TEXTS: dict[str, st.SearchStrategy[str]] = {
    **{kind.name: values for kind, values in ORDINARY.items() if kind.name != "numeric"},
    "numeric": st.one_of(
        st.decimals(allow_nan=False, allow_infinity=False, places=7).map(lambda d: format(d, "f")),
        st.integers(-(10**60), 10**60).map(str),
        st.sampled_from(["NaN", "Infinity", "-Infinity", "0.00", "0", "10000", "0.0001", "-0.00010000", "123450000"]),
    ),
    "varchar": st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=30),
    "bpchar": st.sampled_from(["ab    ", "      ", "abcdef"]),
    "json": st.sampled_from(['{"a":1, "a": 2 }', "null"]),
    "uuid": st.uuids().map(str),
}
ROWS = 40


def layout(names: list[str]) -> Layout:
    columns = tuple(Column(f"c{i}", PgType(1, -1, name, name)) for i, name in enumerate(names))
    schema = TableSchema(TableId("s", "t"), 5, columns, (), ReplicaIdentity.FULL)
    return Layout(schema, 3, tuple(names))


def test_binary_is_text(database: str) -> None:
    names = list(TYPES)
    binary_rows, text_rows = list[bytes](), list[bytes]()
    form, plain = RowForm(layout(names)), RowForm(layout(names))
    plain._forms = None

    @settings(max_examples=ROWS, deadline=None, database=None)
    @given(st.data())
    def collect(data: st.DataObject) -> None:
        drawn = [data.draw(st.one_of(TEXTS[name], TEXTS[name], TEXTS[name], st.none())) for name in names]
        values = tuple(None if text is None else text.encode() for text in drawn)
        number = len(binary_rows)
        changed = frozenset({1, 9}) if number % 2 else None
        unknown = frozenset({3}) if number % 3 == 0 else frozenset[int]()
        moment = 1_763_000_000_123_456 + number
        op = Op.INSERT if number % 2 else Op.DELETE
        row = ChangeRow(op, Stamp(Lsn(2**40 + 7), number), 9, moment, values, changed, unknown, number % 5 == 0)
        kind, content = form.row(row)
        assert kind == BINARY, "these values all have a binary form"
        binary_rows.append(content)
        text_rows.append(plain.row(row)[1])

    collect()
    columns = ", ".join([f"{n} {k}" for n, k in BOOKKEEPING] + [f"c{i} {TYPES[n]}" for i, n in enumerate(names)])
    with connect(database) as connection, connection.cursor() as cursor:
        connection.execute(f"CREATE TABLE b ({columns}); CREATE TABLE t ({columns})".encode())
        with cursor.copy("COPY b FROM STDIN (FORMAT binary)") as copy:
            copy.write(b"PGCOPY\n\xff\r\n\0" + bytes(8) + b"".join(binary_rows) + b"\xff\xff")
        with cursor.copy("COPY t FROM STDIN") as copy:
            copy.write(b"".join(text_rows))
        assert cursor.execute("SELECT count(*) FROM b").fetchone() == (len(binary_rows),)
        shown = "SELECT b::text FROM b EXCEPT ALL SELECT t::text FROM t"
        assert cursor.execute(shown.encode()).fetchall() == []
        # The same bits too: printing hides a numeric's representation.
        status_requested = "SELECT typname::text, typsend::text FROM pg_type WHERE typname = ANY (%s)"
        functions: dict[str, str] = dict(cursor.execute(status_requested, (names,)).fetchall())
        sent = " || ".join(f"coalesce({functions[n]}(c{i}), '')" for i, n in enumerate(names))
        differing = f"SELECT {sent} FROM b EXCEPT ALL SELECT {sent} FROM t"
        assert cursor.execute(differing.encode()).fetchall() == []


def test_values_without_a_binary_form_travel_as_text() -> None:
    for name, texts in SPECIAL.items():
        if name == "numeric":
            continue
        form = RowForm(layout(["int4", name]))
        for text in texts:
            row = ChangeRow(Op.INSERT, Stamp(Lsn(1), 0), 1, 1, (b"1", text.encode()))
            kind, content = form.row(row)
            assert kind is None and content.endswith(text.encode() + b"\n")


def test_types_without_a_binary_form_travel_as_text() -> None:
    assert binary_form("int4range") is None
    form = RowForm(layout(["int4range", "text"]))
    row = ChangeRow(Op.INSERT, Stamp(Lsn(1), 0), 1, 1, (b"[1,2)", b"a\tb\\\n\r"))
    kind, content = form.row(row)
    assert kind is None and content.endswith(b"[1,2)\ta\\tb\\\\\\n\\r\n")


@given(st.booleans(), st.integers(0, 2**63 - 1), st.integers(0, 2**40))
def test_a_row_with_another_stamp_is_otherwise_the_same(binary: bool, lsn: int, seq: int) -> None:
    form = RowForm(layout(["int4", "text"] if binary else ["point", "text"]))
    old = ChangeRow(Op.DELETE, Stamp(Lsn(77), 5), 3, 1_763_000_000_123_456, (b"1", b"a\tb"), frozenset({1}))
    moved = restamp_row(form.row(old), Stamp(Lsn(lsn), seq))
    assert moved == form.row(replace(old, stamp=Stamp(Lsn(lsn), seq)))
    assert (moved[0] == BINARY) == binary
