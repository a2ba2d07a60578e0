"""Columns of Arrow in less memory: decimals of up to 18 digits in eight bytes, texts by number, a constant not at all.

Rows are taken out by their places, and are then as they were.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_LARGE = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}
"""Texts and bytes, which are numbered."""

SHORT_DIGITS = 18
"""What fits into eight bytes."""


@dataclass(frozen=True)
class _Same:
    """One value, however many rows."""

    value: pa.Scalar


@dataclass(frozen=True)
class _Short:
    """The digits of decimals."""

    digits: np.ndarray
    missing: np.ndarray | None
    type: pa.DataType


@dataclass(frozen=True)
class _Plain:
    """As it came, texts by number."""

    values: pa.Array
    type: pa.DataType


_Column = _Same | _Short | _Plain


class CompressedColumns:
    """The rows of a table."""

    def __init__(self, rows: pa.Table) -> None:
        self.names: list[str] = rows.column_names
        self.rows = int(rows.num_rows)
        self._columns = [_packed(rows[name]) for name in self.names]

    @property
    def nbytes(self) -> int:
        """What they take."""
        return sum(_size(column) for column in self._columns)

    def column(self, number: int) -> pa.Array:
        """All values of one column."""
        column = self._columns[number]
        return column.values if isinstance(column, _Plain) else _taken(column, np.arange(self.rows))

    def take(self, places: np.ndarray) -> pa.Table:
        """The rows at these places, in this order."""
        return pa.table(dict(zip(self.names, (_taken(c, places) for c in self._columns), strict=True)))


def _packed(column: pa.ChunkedArray) -> _Column:
    kind = column.type
    # In one piece, which may be longer than the type's own offsets reach.
    values = column.cast(_LARGE.get(kind, kind)).combine_chunks()
    if len(values) and not values.null_count and pa.types.is_integer(kind):
        ends = pc.min_max(values)
        if ends["min"] == ends["max"]:
            return _Same(values[0])
    if pa.types.is_decimal128(kind) and kind.precision <= SHORT_DIGITS:
        # Sixteen bytes each, the lower eight first; what fits into those says it all.
        both = np.frombuffer(values.buffers()[1], np.int64, 2 * len(values), 16 * values.offset)
        missing = pc.is_null(values).to_numpy(zero_copy_only=False) if values.null_count else None
        return _Short(both[::2].copy(), missing, kind)
    return _Plain(pc.dictionary_encode(values) if kind in _LARGE else values, kind)


def _size(column: _Column) -> int:
    match column:
        case _Same():
            return 0
        case _Short():
            return column.digits.nbytes + (0 if column.missing is None else column.missing.nbytes)
        case _Plain():
            return int(column.values.nbytes)
        case _:
            assert_never(column)


def _taken(column: _Column, places: np.ndarray) -> pa.Array:
    match column:
        case _Same():
            return pa.repeat(column.value, len(places))
        case _Short():
            digits = column.digits[places]
            both = np.empty((len(places), 2), np.int64)
            both[:, 0], both[:, 1] = digits, digits >> 63
            missing = None if column.missing is None else pa.array(~column.missing[places])
            there = None if missing is None else missing.buffers()[1]
            return pa.Array.from_buffers(column.type, len(places), [there, pa.py_buffer(both)])
        case _Plain():
            taken = column.values.take(pa.array(places))
            return taken.dictionary_decode().cast(column.type) if column.type in _LARGE else taken
        case _:
            assert_never(column)
