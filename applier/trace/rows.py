"""Change rows -> Arrow, in the carriers a trace holds. Pure.

A trace's columns are fixed when its relation is captured. A row that no longer fits them (a column is gone or has
another type, a value no carrier holds, an incomplete old image) is a SourceChanged error, never a NULL.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

import pyarrow as pa

from applier.errors import SourceChanged
from applier.zset import WEIGHT, column_name
from shared_schema.change_row import ChangeRow, Value
from shared_schema.pg_types import MAX_DECIMAL_DIGITS, Carrier, PgType
from shared_schema.table_schema import Column, TableSchema

LSN = "__lsn"
SEQ = "__seq"


def arrow_type(pg: PgType) -> pa.DataType:
    """The Arrow twin of a type's carrier."""
    match pg.carrier:
        case Carrier.BOOLEAN:
            return pa.bool_()
        case Carrier.SMALLINT:
            return pa.int16()
        case Carrier.INT:
            return pa.int32()
        case Carrier.BIGINT:
            return pa.int64()
        case Carrier.FLOAT:
            return pa.float32()
        case Carrier.DOUBLE:
            return pa.float64()
        case Carrier.DECIMAL:
            return pa.decimal128(*(pg.precision_scale or (MAX_DECIMAL_DIGITS, 0)))
        case Carrier.DATE:
            return pa.date32()
        case Carrier.TIMESTAMP_NTZ:
            return pa.timestamp("us")
        case Carrier.TIMESTAMP:
            return pa.timestamp("us", tz="UTC")
        case Carrier.BINARY:
            return pa.binary()
        case Carrier.TEXT:
            return pa.string()
        case _:
            assert_never(pg.carrier)


def trace_schema(columns: Sequence[Column]) -> pa.Schema:
    """c0.. in their carriers, then weight and stamp."""
    fields = [pa.field(column_name(i), arrow_type(c.type)) for i, c in enumerate(columns)]
    return pa.schema([*fields, pa.field(WEIGHT, pa.int64()), pa.field(LSN, pa.int64()), pa.field(SEQ, pa.int64())])


_SPECIAL_IN_TEXT = (Carrier.DECIMAL, Carrier.DATE, Carrier.TIMESTAMP, Carrier.TIMESTAMP_NTZ)


class RowFitter:
    """Fits change rows of one schema version into a trace's columns."""

    def __init__(self, trace: TableSchema, written: TableSchema) -> None:
        self._table = trace.table
        self._columns = trace.columns
        places = {column.name: i for i, column in enumerate(written.columns)}
        self._places: list[int] = []
        for column in trace.columns:
            place = places.get(column.name)
            if place is None or written.columns[place].type != column.type:
                now = "is gone" if place is None else f"is now {written.columns[place].type.display}"
                raise SourceChanged(
                    f"column {column.name} of {trace.table} {now}, it was {column.type.display} when it was captured",
                    hint="drop and create the stream tables over it once the change is final",
                )
            self._places.append(place)

    def fit(self, row: ChangeRow) -> list[Value]:
        """The row's values in the trace's column order."""
        if row.unknown:
            raise SourceChanged(
                f"a change of {self._table} does not carry the whole old row",
                hint=f"ALTER TABLE {self._table.quoted} REPLICA IDENTITY FULL",
            )
        if row.values is None:
            raise AssertionError("a TRUNCATE has no row to fit")
        return [self._value(c, row.values[p]) for c, p in zip(self._columns, self._places, strict=True)]

    def _value(self, column: Column, value: Value) -> Value:
        if isinstance(value, str):
            if column.type.carrier in _SPECIAL_IN_TEXT:
                raise SourceChanged(
                    f"column {column.name} of {self._table} holds {value}, which has no exact place in Spark",
                    hint="replace such values, or leave the table out of stream tables",
                )
            if column.type.name == "bpchar":
                # char(n) compares without its padding, so it rests without it; PostgreSQL pads it again.
                return value.rstrip(" ")
        return value


def to_arrow(columns: Sequence[Column], rows: Sequence[tuple[ChangeRow, list[Value]]]) -> pa.Table:
    """Rows with their fitted values -> one Arrow table of trace_schema."""
    schema = trace_schema(columns)
    arrays = [pa.array([values[i] for _, values in rows], type=schema.field(i).type) for i in range(len(columns))]
    arrays.append(pa.array([row.op.weight for row, _ in rows], type=pa.int64()))
    arrays.append(pa.array([row.stamp.lsn.value for row, _ in rows], type=pa.int64()))
    arrays.append(pa.array([row.stamp.seq for row, _ in rows], type=pa.int64()))
    return pa.Table.from_arrays(arrays, schema=schema)
