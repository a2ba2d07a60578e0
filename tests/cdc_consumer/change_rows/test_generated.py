"""Generated encoders give the reference's bytes for every row they accept, and accept every ordinary row."""

from __future__ import annotations

import contextlib
import datetime
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_consumer.change_rows import generate
from cdc_consumer.change_rows.conversions import SLOW_PATH
from cdc_consumer.change_rows.encode import TransactionEncoder
from cdc_consumer.change_rows.generate import EncodedRow
from cdc_consumer.change_rows.split import TableReader, Transaction
from cdc_consumer.pgoutput.decoder import decode
from cdc_consumer.pgoutput.messages import (
    Begin,
    Delete,
    Field,
    Insert,
    OldImage,
    Relation,
    RelationColumn,
    RowMessage,
    Tuple,
    Unchanged,
    Update,
)
from shared_schema.avro import codec
from shared_schema.errors import TrickleError
from shared_schema.lsn import Lsn
from shared_schema.pg_types import PgType
from shared_schema.table_schema import LEAF_COLUMN, Column, ReplicaIdentity, TableId, TableSchema
from tests.cdc_consumer.pgoutput.encoding import encode as message_bytes

BEGIN = Begin(Lsn(0x1_6B37_4D48), 1_763_000_000_123_456, 4_294_967_290)
FRAME = b"w" + bytes(24)


def numeric(precision: int, scale: int) -> PgType:
    return PgType(1700, (precision << 16 | scale) + 4, "numeric", f"numeric({precision},{scale})")


def plain(name: str) -> PgType:
    return PgType(1, -1, name, name)


def fixed_point(number: int, scale: int) -> str:
    digits = str(abs(number)).rjust(scale + 1, "0")
    return ("-" if number < 0 else "") + (f"{digits[:-scale]}.{digits[-scale:]}" if scale else digits)


def numerics(precision: int, scale: int) -> st.SearchStrategy[str]:
    limit = 10**precision - 1
    return st.integers(-limit, limit).map(lambda n: fixed_point(n, scale))


def stamp(moment: datetime.datetime) -> str:
    text = f"{moment:%H:%M:%S.%f}".rstrip("0").rstrip(".") if moment.microsecond else f"{moment:%H:%M:%S}"
    return f"{moment.date().isoformat()} {text}"


def integers(bits: int) -> st.SearchStrategy[str]:
    edge = 1 << bits - 1
    return st.one_of(st.integers(-edge, edge - 1), st.integers(-9000, 9000)).map(str)


MOMENTS = st.one_of(st.datetimes(), st.datetimes(datetime.datetime(1969, 12, 31), datetime.datetime(1970, 1, 2))).map(
    stamp
)
TEXTS = st.one_of(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])), st.just("x" * 8200))
ORDINARY: dict[PgType, st.SearchStrategy[str]] = {
    plain("bool"): st.sampled_from(["t", "f"]),
    plain("int2"): integers(16),
    plain("int4"): integers(32),
    plain("int8"): integers(64),
    plain("oid"): st.integers(0, 2**32 - 1).map(str),
    plain("float4"): st.floats(width=32).map(lambda f: repr(f).replace("inf", "Infinity").replace("nan", "NaN")),
    plain("float8"): st.floats().map(lambda f: repr(f).replace("inf", "Infinity").replace("nan", "NaN")),
    numeric(12, 3): numerics(12, 3),
    numeric(38, 0): numerics(38, 0),
    numeric(5, 5): numerics(5, 5),
    plain("date"): st.dates().map(lambda day: day.isoformat()),
    plain("timestamp"): MOMENTS,
    plain("timestamptz"): MOMENTS.map(lambda text: f"{text}+00"),
    plain("bytea"): st.binary(max_size=200).map(lambda b: "\\x" + b.hex()),
    plain("text"): TEXTS,
    plain("jsonb"): st.just('{"a": "é"}'),
    plain("numeric"): st.sampled_from(["NaN", "1.10", "-1e5"]),
}
SPECIAL = {
    "numeric": ["NaN"],
    "date": ["infinity", "-infinity", "0044-03-15 BC", "12345-06-07"],
    "timestamp": [
        "infinity",
        "-infinity",
        "0044-03-15 12:00:00 BC",
        "0044-03-15 12:00:00.5 BC",
        "12345-06-07 01:02:03",
    ],
    "timestamptz": [
        "infinity",
        "-infinity",
        "0044-03-15 12:00:00+00 BC",
        "0044-03-15 12:00:00.5+00 BC",
        "12345-06-07 01:02:03+00",
        "2024-02-29 12:34:56.5+05:30",
        "2024-02-29 12:34:56+05",
    ],
}
KINDS = list(ORDINARY)


def table(kinds: list[PgType], key: tuple[int, ...], identity: ReplicaIdentity, *, leaf: bool = False) -> TableReader:
    flagged = identity is ReplicaIdentity.FULL
    keyed = identity in (ReplicaIdentity.DEFAULT, ReplicaIdentity.INDEX)
    columns = tuple(Column(f"c{i}", kind) for i, kind in enumerate(kinds))
    described = tuple(
        RelationColumn(f"c{i}", kind.oid, kind.typmod, flagged or (keyed and i in key)) for i, kind in enumerate(kinds)
    )
    columns += (LEAF_COLUMN,) if leaf else ()
    schema = TableSchema(TableId("s", "t"), 4 if leaf else 5, columns, tuple(f"c{i}" for i in key), identity)
    return TableReader(Relation(5, "s", "t", identity, described), schema)


@st.composite
def tables(draw: st.DrawFn) -> TableReader:
    kinds = draw(st.lists(st.sampled_from(KINDS), max_size=12))
    key = tuple(draw(st.permutations(range(len(kinds))))[: draw(st.integers(0, 3))])
    return table(kinds, key, draw(st.sampled_from(ReplicaIdentity)), leaf=draw(st.booleans()))


@st.composite
def fields(draw: st.DrawFn, reader: TableReader, *, odd: bool = False, toast: bool = False) -> Tuple:
    out: list[Field] = []
    for i, column in enumerate(reader.schema.columns[: reader.width]):
        choice = draw(st.integers(0, 9))
        if choice == 0 and i not in reader.identity:
            out.append(None)
        elif choice == 1 and toast:
            out.append(Unchanged.TOAST)
        elif choice < 4 and odd and column.type.name in SPECIAL:
            out.append(draw(st.sampled_from(SPECIAL[column.type.name])).encode())
        else:
            out.append(draw(ORDINARY[column.type]).encode())
    return tuple(out)


@st.composite
def messages(draw: st.DrawFn, reader: TableReader, *, odd: bool) -> RowMessage:
    new = draw(fields(reader, odd=odd))
    before = draw(fields(reader, odd=odd))
    # Images that have most columns in common, like those of an UPDATE.
    mixed = tuple(a if draw(st.integers(0, 2)) else b for a, b in zip(new, before, strict=True))
    key_image = tuple(value if i in reader.identity else None for i, value in enumerate(before))
    image = st.sampled_from([OldImage(mixed, True), OldImage(key_image, False)])
    match draw(st.integers(0, 2)):
        case 0:
            return Insert(5, new)
        case 1:
            return Delete(5, draw(image))
        case _:
            old = draw(st.one_of(st.none(), image))
            if (odd or old is not None) and draw(st.booleans()):
                new = tuple(Unchanged.TOAST if draw(st.integers(0, 4)) == 0 else value for value in new)
            return Update(5, old, new)


def reference(message: bytes, reader: TableReader, ordinal: int) -> list[bytes | None]:
    transaction, encoder = Transaction(BEGIN), codec(reader.schema)
    transaction.ordinal = ordinal
    out: list[bytes | None] = []
    for row in transaction.split(decode(message), reader):  # type: ignore[arg-type]
        assert row.values is not None
        out += [encoder.encode_key(row.values), encoder.encode(row)]
    return out


def generated(message: bytes, reader: TableReader, ordinal: int) -> list[bytes | None]:
    encoder = TransactionEncoder(reader, codec(reader.schema).header, BEGIN)
    return list(encoder.encode(FRAME + message, len(FRAME), ordinal))


def run_of(messages: list[bytes], reader: TableReader, ordinal: int) -> list[EncodedRow]:
    encoder = TransactionEncoder(reader, codec(reader.schema).header, BEGIN)
    return encoder.encode_inserts(
        [b"k" + bytes(17), *(FRAME + message for message in messages)], 1, len(FRAME), ordinal
    )


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_the_bytes_are_the_references_or_there_are_none(data: st.DataObject) -> None:
    reader = data.draw(tables())
    message = message_bytes(data.draw(messages(reader, odd=True)))
    ordinal = data.draw(st.sampled_from([0, 1, 8191, 8192, 134_217_727, 134_217_728]))
    try:
        found = generated(message, reader, ordinal)
    except SLOW_PATH:
        return
    assert found == reference(message, reader, ordinal)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_ordinary_rows_are_accepted(data: st.DataObject) -> None:
    reader = data.draw(tables())
    message = data.draw(messages(reader, odd=False))
    key_changed = isinstance(message, Update) and message.old is not None and not message.old.full
    toasted = isinstance(message, Update) and message.old is None and Unchanged.TOAST in message.new
    if key_changed or toasted:
        return
    content = message_bytes(message)
    assert generated(content, reader, 3) == reference(content, reader, 3)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_a_run_of_inserts_gives_the_references_bytes(data: st.DataObject) -> None:
    reader = data.draw(tables())
    run = [message_bytes(Insert(5, data.draw(fields(reader, odd=True, toast=True)))) for _ in range(4)]
    ordinal = data.draw(st.sampled_from([0, 8190, 134_217_726]))
    for number, found in enumerate(run_of(run, reader, ordinal)):
        assert list(found) == reference(run[number], reader, ordinal + number)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_a_run_accepts_all_ordinary_inserts_and_nothing_else(data: st.DataObject) -> None:
    reader = data.draw(tables())
    inserts = [message_bytes(Insert(5, data.draw(fields(reader)))) for _ in range(data.draw(st.integers(1, 3)))]
    others = message_bytes(Insert(6, ())), message_bytes(Delete(5, OldImage((), True)))
    other = data.draw(st.sampled_from(others))
    assert len(run_of([*inserts, other, inserts[0]], reader, 0)) == len(inserts)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_a_damaged_message_ends_a_run(data: st.DataObject) -> None:
    reader = data.draw(tables())
    sound = message_bytes(Insert(5, data.draw(fields(reader))))
    at = data.draw(st.integers(0, len(sound) - 1))
    damaged = sound[:at] + bytes([data.draw(st.integers(0, 255))]) + sound[at + 1 :]
    found = run_of([sound, damaged], reader, 0)[1:]
    for row in found:
        assert list(row) == reference(damaged, reader, 1)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.display)
@settings(max_examples=60, deadline=None)
@given(st.data())
def test_every_type_alone(kind: PgType, data: st.DataObject) -> None:
    reader = table([kind, kind], (1, 0), ReplicaIdentity.FULL)
    values = tuple(data.draw(ORDINARY[kind]).encode() for _ in range(4))
    update = message_bytes(Update(5, OldImage(values[:2], True), values[2:]))
    assert generated(update, reader, 0) == reference(update, reader, 0)


def test_an_unchanged_toasted_value_is_the_old_images() -> None:
    reader = table([plain("int4"), plain("text")], (0,), ReplicaIdentity.FULL)
    update = message_bytes(Update(5, OldImage((b"1", b"long"), True), (b"2", Unchanged.TOAST)))
    assert generated(update, reader, 0) == reference(update, reader, 0)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("text", b"\xff"),
        ("int4", b"x"),
        ("bool", b"yes"),
        ("bytea", b"\\xabc"),
        ("bytea", b"ab"),
        ("date", b"today"),
        ("timestamp", b"2000-01-01 00:00:00.0_1"),
        ("timestamptz", b"2000-01-01 00:00:00.+01+00"),
    ],
)
def test_what_the_reference_refuses_is_not_accepted(name: str, text: bytes) -> None:
    reader = table([plain("int4"), plain(name)], (0,), ReplicaIdentity.FULL)
    with pytest.raises(SLOW_PATH):
        generated(message_bytes(Insert(5, (b"1", text))), reader, 0)


@pytest.mark.parametrize("text", [b"0._01", b"0. 01", b"0.+01"])
def test_only_digits_follow_the_point(text: bytes) -> None:
    reader = table([numeric(12, 3)], (), ReplicaIdentity.FULL)
    with pytest.raises(SLOW_PATH):
        generated(message_bytes(Insert(5, (text,))), reader, 0)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_a_damaged_message_is_not_accepted(data: st.DataObject) -> None:
    reader = data.draw(tables())
    message = message_bytes(data.draw(messages(reader, odd=False)))
    damaged = message[: data.draw(st.integers(5, len(message) - 1))] + data.draw(st.sampled_from([b"", b"n", b"zz"]))
    try:
        expected = reference(damaged, reader, 0)
    except TrickleError:
        with pytest.raises(SLOW_PATH):
            generated(damaged, reader, 0)
        return
    with contextlib.suppress(*SLOW_PATH):
        assert generated(damaged, reader, 0) == expected


def test_a_column_too_many_ends_a_run() -> None:
    reader = table([plain("int4"), plain("text")], (0,), ReplicaIdentity.FULL)
    sound = message_bytes(Insert(5, (b"1", b"a")))
    for damaged in (sound[:8] + b"n" + sound[8:], sound + b"n"):
        assert not run_of([damaged], reader, 0)


def test_a_wide_and_an_empty_table() -> None:
    for width in (0, 1, 4, 5, 6, 300):
        reader = table([plain("int4")] * width, (), ReplicaIdentity.FULL)
        old = tuple(str(i).encode() for i in range(width))
        new = tuple(None if i > width - 3 else value for i, value in enumerate(old))
        for message in (Insert(5, new), Update(5, OldImage(old, True), new), Delete(5, OldImage(old, True))):
            content = message_bytes(message)
            assert generated(content, reader, 9) == reference(content, reader, 9)


def test_the_page_in_the_docstring_is_what_is_generated() -> None:
    reader = table([plain("int4"), plain("text")], (0,), ReplicaIdentity.FULL)
    functions = generate.generate_source(reader.schema, reader.identity)
    text = generate.__doc__ or ""
    page = [re.sub(r" +# .*", "", line[4:]) for line in text.splitlines() if line.startswith("    ")]
    assert page in functions
    named = re.search(r"six functions are generated: (.*?)\. This is all of `(\w+)`", text, re.DOTALL)
    assert named is not None and page[0].startswith(f"def {named[2]}(")
    defined = [re.match(r"def (\w+)\(", lines[0]) for lines in functions]
    assert {found[1] for found in defined if found} == set(re.findall(r"`(\w+)`", named[1]))


def test_a_leaf_with_its_columns_in_another_order() -> None:
    """The slow path puts the columns of a leaf into the order of its root."""
    number, text = plain("int4"), plain("text")
    schema = TableSchema(
        TableId("s", "root"),
        4,
        (Column("id", number), Column("v", text), LEAF_COLUMN),
        ("id",),
        ReplicaIdentity.DEFAULT,
    )
    described = (RelationColumn("v", 1, -1, False), RelationColumn("id", 1, -1, True))
    reader = TableReader(Relation(7, "s", "leaf", ReplicaIdentity.DEFAULT, described), schema)
    assert not reader.is_ordered and reader.leaf == 7
    old, new = Transaction(BEGIN).split(Update(7, None, (b"x", b"1")), reader)
    assert (old.values, old.unknown, old.changed) == ((1, None, 7), frozenset({1}), frozenset({1}))
    assert (new.values, new.unknown, new.changed) == ((1, "x", 7), frozenset(), frozenset({1}))
    (gone,) = Transaction(BEGIN).split(Delete(7, OldImage((None, b"1"), False)), reader)
    assert (gone.values, gone.unknown) == ((1, None, 7), frozenset({1}))
