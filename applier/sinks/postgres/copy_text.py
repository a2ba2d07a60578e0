"""Arrow -> the text COPY takes: CSV in which every value is quoted and NULL is not. Pure."""

from __future__ import annotations

import io
from collections.abc import Iterator

import pyarrow as pa
from pyarrow import csv

OPTIONS = "(FORMAT csv)"
"""How a COPY must be told to read it."""

PIECE_ROWS = 65_536
"""So that the text of a large table is never whole in memory."""

_WRITE = csv.WriteOptions(include_header=False, quoting_style="all_valid")


def encode_csv(rows: pa.Table) -> bytes:
    """All rows as one piece of text."""
    sink = io.BytesIO()
    csv.write_csv(_printable(rows), sink, _WRITE)
    return sink.getvalue()


def csv_pieces(rows: pa.Table) -> Iterator[bytes]:
    """The same in pieces."""
    for start in range(0, rows.num_rows, PIECE_ROWS):
        yield encode_csv(rows.slice(start, PIECE_ROWS))


def _printable(rows: pa.Table) -> pa.Table:
    for i, column in enumerate(rows.columns):
        if pa.types.is_binary(column.type):
            text = [None if value is None else "\\x" + value.hex() for value in column.to_pylist()]
            rows = rows.set_column(i, rows.field(i).name, pa.array(text, pa.string()))
    return rows
