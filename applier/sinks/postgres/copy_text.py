"""Arrow rows in; CSV for COPY, in which every value is quoted and NULL is not, out. Pure."""

from __future__ import annotations

import io
from collections.abc import Iterator

import pyarrow as pa
from pyarrow import csv

OPTIONS = "(FORMAT csv)"
"""The options of a COPY that reads it."""

PIECE_ROWS = 65_536
"""Rows per piece, so that the text of a large table is never in memory as a whole."""

_WRITE = csv.WriteOptions(include_header=False, quoting_style="all_valid")


def encode_csv(rows: pa.Table) -> bytes:
    """Encode all rows as one text."""
    sink = io.BytesIO()
    csv.write_csv(_encode_bytea(rows), sink, _WRITE)
    return sink.getvalue()


def csv_pieces(rows: pa.Table) -> Iterator[bytes]:
    """Yield the text in pieces of PIECE_ROWS rows."""
    for start in range(0, rows.num_rows, PIECE_ROWS):
        yield encode_csv(rows.slice(start, PIECE_ROWS))


def _encode_bytea(rows: pa.Table) -> pa.Table:
    for i, column in enumerate(rows.columns):
        if pa.types.is_binary(column.type):
            text = [None if value is None else "\\x" + value.hex() for value in column.to_pylist()]
            rows = rows.set_column(i, rows.field(i).name, pa.array(text, pa.string()))
    return rows
