"""decode(encode(m)) = m for every message, and invalid bytes raise nothing but MalformedMessage."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_consumer.errors import MalformedMessage
from cdc_consumer.pgoutput.decoder import decode
from cdc_consumer.pgoutput.messages import (
    Begin,
    Commit,
    Delete,
    Insert,
    LogicalMessage,
    Message,
    OldImage,
    Origin,
    Relation,
    RelationColumn,
    Truncate,
    TypeName,
    Unchanged,
    Update,
)
from shared_schema.lsn import LSN_MAX, Lsn
from shared_schema.table_schema import ReplicaIdentity
from tests.cdc_consumer.pgoutput.encoding import encode

oids = st.integers(0, 2**32 - 1)
positions = st.integers(0, LSN_MAX >> 1).map(Lsn)
"""Positions are longs in change rows, so the decoder refuses the upper half."""
names = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=12)
tuples = st.lists(st.one_of(st.none(), st.just(Unchanged.TOAST), st.binary(max_size=20)), max_size=6).map(tuple)
old_images = st.builds(OldImage, tuples, st.booleans())
columns = st.builds(RelationColumn, names, oids, st.integers(-1, 2**31 - 1), st.booleans())

messages: st.SearchStrategy[Message] = st.one_of(
    st.builds(Begin, positions, st.integers(-(2**62), 2**62), oids),
    st.builds(Commit, positions, positions),
    st.builds(Origin, names),
    st.builds(LogicalMessage, st.booleans(), positions, names, st.binary(max_size=50)),
    st.builds(
        Relation,
        oids,
        names,
        names,
        st.sampled_from(ReplicaIdentity),
        st.lists(columns, max_size=5, unique_by=lambda column: column.name).map(tuple),
    ),
    st.builds(TypeName, oids, names, names),
    st.builds(Insert, oids, tuples),
    st.builds(Update, oids, st.one_of(st.none(), old_images), tuples),
    st.builds(Delete, oids, old_images),
    st.builds(Truncate, st.lists(oids, max_size=4).map(tuple), st.booleans(), st.booleans()),
)


@given(messages)
def test_round_trip(message: Message) -> None:
    assert decode(encode(message)) == message


@given(st.binary(max_size=80))
def test_any_bytes(data: bytes) -> None:
    with contextlib.suppress(MalformedMessage):
        decode(data)


@given(messages, st.data())
def test_damaged_messages(message: Message, data: st.DataObject) -> None:
    """Cut short, one byte changed, or one byte too many: another message or MalformedMessage, never a crash."""
    damaged = bytearray(encode(message))
    match data.draw(st.sampled_from(["cut", "change", "append"])):
        case "cut":
            del damaged[data.draw(st.integers(0, len(damaged) - 1)) :]
        case "change":
            damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
        case _:
            damaged.append(data.draw(st.integers(0, 255)))
    try:
        decode(bytes(damaged))
    except MalformedMessage as error:
        assert 0 <= error.offset <= len(damaged)


def test_the_catalogs_own_schema_is_sent_as_an_empty_name() -> None:
    relation = decode(b"R\0\0\0\1\0pg_x\0d\0\0")
    assert isinstance(relation, Relation) and relation.schema == "pg_catalog"


@pytest.mark.parametrize(
    ("data", "offset"),
    [
        (b"", 0),
        (b"?", 0),
        (b"I\0\0\0\1X\0\0", 5),
        (b"I\0\0\0\1N\0\1b\0\0\0\1x", 8),
        (b"I\0\0\0\1N\0\1t\xff\xff\xff\xffx", 13),
        (b"T\xff\xff\xff\xff\0\0\0\0\1", 6),
        (b"R\0\0\0\1s\0\xff\0d\0\0", 7),
        (b"O\0\0\0\0\0\0\0\0name", 9),
        (b"R\0\0\0\1s\0t\0d\0\2" + 2 * b"\0a\0\0\0\0\x17\xff\xff\xff\xff", 26),
    ],
)
def test_where_it_broke(data: bytes, offset: int) -> None:
    with pytest.raises(MalformedMessage) as raised:
        decode(data)
    assert raised.value.offset == offset
