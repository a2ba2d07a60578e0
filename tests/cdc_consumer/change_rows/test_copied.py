"""Generated code encodes copied lines to the same bytes as the table-driven encoder, and fastavro reads them back."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import fastavro
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_consumer.change_rows.avro_bytes import restamp_message
from cdc_consumer.change_rows.copy_lines import CopyEncoder, split_copy_line
from cdc_consumer.change_rows.split import TableReader
from cdc_consumer.change_rows.values import RowParser
from shared_schema.avro import HEADER_BYTES, change_schema, codec
from shared_schema.change_row import ChangeRow, Op, Stamp
from shared_schema.lsn import Lsn
from shared_schema.table_schema import ReplicaIdentity, TableSchema
from tests.cdc_consumer.change_rows.test_generated import fields, numeric, plain, table, tables

AT = Lsn(0x1_6B37_4D48)
NOW_US = 1_763_000_000_123_456

ESCAPES = {"\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v"}


def copy_line(texts: list[str | None]) -> bytes:
    """Encode a line as PostgreSQL's manual describes the text format."""
    columns = ["\\N" if t is None else "".join(ESCAPES.get(c, c) for c in t) for t in texts]
    return ("\t".join(columns) + "\n").encode()


def draw_texts(data: st.DataObject, reader: TableReader) -> list[str | None]:
    """Draw the texts of a copied row; that of a partitioned table ends with its leaf."""
    texts = [f.decode() if isinstance(f, bytes) else None for f in data.draw(fields(reader, odd=True))]
    return [*texts, str(reader.leaf)] if reader.leaf is not None else texts


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_generated_is_table_driven_is_fastavro(data: st.DataObject) -> None:
    reader: TableReader = data.draw(tables())
    schema = reader.schema
    seq = data.draw(st.sampled_from([1, 8191, 8192, 134_217_728]))
    texts = draw_texts(data, reader)
    written, values = codec(schema), RowParser(schema).row(tuple(texts))
    row = ChangeRow(Op.INSERT, Stamp(AT, seq), 0, NOW_US, values, snapshot=True)
    key, value = CopyEncoder(written, written.header, AT, NOW_US).encode(copy_line(texts), seq)
    assert (key, value) == (written.encode_key(values), written.encode(row))
    body = io.BytesIO(value[HEADER_BYTES:])
    record: Any = fastavro.schemaless_reader(body, fastavro.parse_schema(change_schema(schema)), None)
    assert body.read() == b"" and record["snapshot"] is True and record["seq"] == seq


@settings(max_examples=200, deadline=None)
@given(st.data(), st.integers(0, 2**63 - 1), st.integers(0, 2**40))
def test_a_row_with_another_stamp_is_otherwise_the_same(data: st.DataObject, lsn: int, seq: int) -> None:
    reader: TableReader = data.draw(tables())
    texts = draw_texts(data, reader)
    written, values = codec(reader.schema), RowParser(reader.schema).row(tuple(texts))
    op = data.draw(st.sampled_from([Op.INSERT, Op.DELETE]))
    old = ChangeRow(op, Stamp(AT, data.draw(st.integers(0, 2**40))), 7, NOW_US, values)
    moved = restamp_message(written.encode(old), len(written.header), lsn, seq)
    assert moved == written.encode(replace(old, stamp=Stamp(Lsn(lsn), seq)))


@given(st.lists(st.one_of(st.none(), st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])))))
def test_any_text_survives_the_format(texts: list[str | None]) -> None:
    expected = [None if t is None else t.encode() for t in texts]
    assert split_copy_line(copy_line(texts), len(texts)) == expected


def test_ordinary_lines_use_the_generated_encoder() -> None:
    schema = _ordinary()
    written = codec(schema)
    encoder = CopyEncoder(written, written.header, AT, NOW_US)
    encoder._table_driven = _refuse  # type: ignore[method-assign,assignment]
    rows: list[list[str | None]] = [["1", "t", "é\t\\", "1.50", "2024-02-29 12:00:00+00"], ["2", None, "", None, None]]
    for texts in rows:
        encoder.encode(copy_line(texts), 1)


def _refuse(*_: object) -> None:
    raise AssertionError("this row is ordinary")


def _ordinary() -> TableSchema:
    kinds = [plain("int4"), plain("bool"), plain("text"), numeric(12, 2), plain("timestamptz")]
    return table(kinds, (0,), ReplicaIdentity.FULL).schema
