"""Change rows -> Arrow rows in the columns and physical types of a trace. Pure.

A value that a row does not contain (its column is gone or has another type, or no physical type holds the value) is
reported as a loss; the NULL in its place is never read. Values that a partial image leaves out are handled separately:
see `partial_images`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import assert_never

import pyarrow as pa
import pyarrow.compute as pc

from applier.errors import SourceChanged
from applier.trace.columns import TraceColumn, without_column
from applier.zset import WEIGHT, column_name
from shared_schema.change_row import ChangeRow, Value
from shared_schema.pg_types import MAX_DECIMAL_DIGITS, PgType, PhysicalType
from shared_schema.table_schema import TableId, TableSchema

LSN = "__lsn"
SEQ = "__seq"
STAMPED = (WEIGHT, LSN, SEQ)
"""The columns of a trace's rows that follow those of the relation."""


def arrow_type(pg: PgType) -> pa.DataType:
    """Return the Arrow type of a physical type."""
    match pg.physical_type:
        case PhysicalType.BOOLEAN:
            return pa.bool_()
        case PhysicalType.SMALLINT:
            return pa.int16()
        case PhysicalType.INT:
            return pa.int32()
        case PhysicalType.BIGINT:
            return pa.int64()
        case PhysicalType.FLOAT:
            return pa.float32()
        case PhysicalType.DOUBLE:
            return pa.float64()
        case PhysicalType.DECIMAL:
            return pa.decimal128(*(pg.precision_scale or (MAX_DECIMAL_DIGITS, 0)))
        case PhysicalType.DATE:
            return pa.date32()
        case PhysicalType.TIMESTAMP_NTZ:
            return pa.timestamp("us")
        case PhysicalType.TIMESTAMP:
            return pa.timestamp("us", tz="UTC")
        case PhysicalType.BINARY:
            return pa.binary()
        case PhysicalType.TEXT:
            return pa.string()
        case _:
            assert_never(pg.physical_type)


def trace_schema(columns: Sequence[TraceColumn]) -> pa.Schema:
    """Return the Arrow schema of a trace: c0… in their physical types, then weight and stamp."""
    fields = [pa.field(column_name(i), arrow_type(c.type)) for i, c in enumerate(columns)]
    return pa.schema([*fields, pa.field(WEIGHT, pa.int64()), pa.field(LSN, pa.int64()), pa.field(SEQ, pa.int64())])


_SPECIAL_IN_TEXT = (PhysicalType.DECIMAL, PhysicalType.DATE, PhysicalType.TIMESTAMP, PhysicalType.TIMESTAMP_NTZ)


Losses = list[tuple[int, SourceChanged]]
"""Ordinals of columns whose value a row does not contain, and the reason."""

NO_LOSSES: Losses = []


@dataclass(slots=True)
class AlignedRow:
    """A change row with its values in a trace's column order."""

    row: ChangeRow
    values: list[Value]
    losses: Losses
    known: tuple[int, ...] | None
    """The columns that a partial image contains; None for a complete image."""


class RowAligner:
    """Aligns change rows of one schema version with the columns of a trace."""

    def __init__(self, table: TableId, columns: Sequence[TraceColumn], written: TableSchema) -> None:
        self._table = table
        self._columns = columns
        places = {
            i: next((p for p, w in enumerate(written.columns) if column.is_written_as(w)), None)
            for i, column in enumerate(columns)
        }
        self._places = tuple(places.values())
        self._missing = [
            (i, without_column(columns[i], written.columns)) for i, place in places.items() if place is None
        ]

    def align(self, row: ChangeRow) -> AlignedRow:
        """Return the row's values in the trace's column order, NULL for values that it does not contain."""
        if row.values is None:
            raise AssertionError("a TRUNCATE has no row to align")
        written = row.values
        values = [None if place is None else written[place] for place in self._places]
        losses = list(self._missing) if self._missing else NO_LOSSES
        for i in self._text_columns:
            if isinstance(values[i], str):
                values[i], losses = self._convert_text(i, str(values[i]), losses)
        known = None
        if row.unknown:
            known = tuple(i for i, p in enumerate(self._places) if p is not None and p not in row.unknown)
        return AlignedRow(row, values, losses, known)

    def align_many(self, rows: pa.Table) -> tuple[pa.Table, Losses]:
        """Return rows with complete images in the trace's column order."""
        schema = trace_schema(self._columns)
        arrays = []
        for i, place in enumerate(self._places):
            if place is None:
                arrays.append(pa.nulls(rows.num_rows, schema.field(i).type))
                continue
            values = rows[column_name(place)]
            padded = self._columns[i].type.name == "bpchar"
            arrays.append(pc.utf8_rtrim(values, " ") if padded else values)
        arrays += [rows[name] for name in STAMPED]
        return pa.Table.from_arrays(arrays, schema=schema), list(self._missing)

    @cached_property
    def _text_columns(self) -> list[int]:
        """Columns whose values may come as text that is not the value itself."""
        return [
            i
            for i, c in enumerate(self._columns)
            if c.type.physical_type in _SPECIAL_IN_TEXT or c.type.name == "bpchar"
        ]

    def _convert_text(self, i: int, text: str, losses: Losses) -> tuple[Value, Losses]:
        column = self._columns[i]
        if column.type.name == "bpchar":
            # char(n) compares without its padding, so it is stored without it; PostgreSQL pads it again.
            return text.rstrip(" "), losses
        reason = SourceChanged(
            f"column {column.name} of {self._table} holds {text}, which Spark cannot represent exactly",
            hint="replace such values, or leave the column out of stream tables",
        )
        return None, [*losses, (i, reason)]


def to_arrow(columns: Sequence[TraceColumn], rows: Sequence[AlignedRow]) -> pa.Table:
    """Return aligned rows as one Arrow table of `trace_schema`."""
    schema = trace_schema(columns)
    arrays = [pa.array([aligned.values[i] for aligned in rows], type=schema.field(i).type) for i in range(len(columns))]
    arrays.append(pa.array([aligned.row.op.weight for aligned in rows], type=pa.int64()))
    arrays.append(pa.array([aligned.row.stamp.lsn.value for aligned in rows], type=pa.int64()))
    arrays.append(pa.array([aligned.row.stamp.seq for aligned in rows], type=pa.int64()))
    return pa.Table.from_arrays(arrays, schema=schema)
