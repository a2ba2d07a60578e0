"""Arrow columns -> a compressed form: decimals of up to 18 digits in eight bytes, texts by dictionary, constants once.

`take` returns rows by their places, in their original form.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_LARGE = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}
"""Texts and bytes, which are dictionary-encoded."""

SHORT_DIGITS = 18
"""Decimals with so many digits fit into eight bytes."""


@dataclass(frozen=True)
class _Constant:
    """A constant: one value for all rows."""

    value: pa.Scalar


@dataclass(frozen=True)
class _ShortDecimal:
    """Decimals, as integers of their digits."""

    digits: np.ndarray
    nulls: np.ndarray | None
    type: pa.DataType


@dataclass(frozen=True)
class _Plain:
    """Any other column; texts are dictionary-encoded."""

    values: pa.Array
    type: pa.DataType


_Column = _Constant | _ShortDecimal | _Plain


class CompressedColumns:
    """The rows of a table in compressed form."""

    def __init__(self, rows: pa.Table) -> None:
        self.names: list[str] = rows.column_names
        self.rows = int(rows.num_rows)
        self._columns = [_compress(rows[name]) for name in self.names]

    @property
    def nbytes(self) -> int:
        """The memory that the columns take, in bytes."""
        return sum(_size(column) for column in self._columns)

    def column(self, number: int) -> pa.Array:
        """Return all values of one column."""
        column = self._columns[number]
        return column.values if isinstance(column, _Plain) else _take(column, np.arange(self.rows))

    def take(self, places: np.ndarray) -> pa.Table:
        """Return the rows at these places, in this order."""
        return pa.table(dict(zip(self.names, (_take(c, places) for c in self._columns), strict=True)))


def _compress(column: pa.ChunkedArray) -> _Column:
    arrow_type = column.type
    # In one array, which may be longer than 32-bit offsets can address.
    values = column.cast(_LARGE.get(arrow_type, arrow_type)).combine_chunks()
    if len(values) and not values.null_count and pa.types.is_integer(arrow_type):
        ends = pc.min_max(values)
        if ends["min"] == ends["max"]:
            return _Constant(values[0])
    if pa.types.is_decimal128(arrow_type) and arrow_type.precision <= SHORT_DIGITS:
        # Sixteen bytes each, the lower eight first; 18 digits fit into those.
        words = np.frombuffer(values.buffers()[1], np.int64, 2 * len(values), 16 * values.offset)
        nulls = pc.is_null(values).to_numpy(zero_copy_only=False) if values.null_count else None
        return _ShortDecimal(words[::2].copy(), nulls, arrow_type)
    return _Plain(pc.dictionary_encode(values) if arrow_type in _LARGE else values, arrow_type)


def _size(column: _Column) -> int:
    match column:
        case _Constant():
            return 0
        case _ShortDecimal():
            return column.digits.nbytes + (0 if column.nulls is None else column.nulls.nbytes)
        case _Plain():
            return int(column.values.nbytes)
        case _:
            assert_never(column)


def _take(column: _Column, places: np.ndarray) -> pa.Array:
    match column:
        case _Constant():
            return pa.repeat(column.value, len(places))
        case _ShortDecimal():
            digits = column.digits[places]
            words = np.empty((len(places), 2), np.int64)
            words[:, 0], words[:, 1] = digits, digits >> 63
            valid = None if column.nulls is None else pa.array(~column.nulls[places])
            validity = None if valid is None else valid.buffers()[1]
            return pa.Array.from_buffers(column.type, len(places), [validity, pa.py_buffer(words)])
        case _Plain():
            rows = column.values.take(pa.array(places))
            return rows.dictionary_decode().cast(column.type) if column.type in _LARGE else rows
        case _:
            assert_never(column)
