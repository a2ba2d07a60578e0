"""Takes a column's text as PostgreSQL prints it (with pinned session settings), returns the value in its physical type.

The value is exact or rejected. Numerics without a decimal form (NaN, infinities) and dates that Python and Avro cannot
hold (infinity, BC, years after 9999) stay text, which goes into the third union branch of the physical type.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from decimal import Decimal

from cdc_consumer.errors import UnreadableValue
from shared_schema.change_row import Value
from shared_schema.pg_types import MAX_DECIMAL_DIGITS, PgType, PhysicalType
from shared_schema.table_schema import TableSchema

Parse = Callable[[str], Value]

_DATE_WIDTH = len("2000-01-01")


def _boolean(text: str) -> Value:
    match text:
        case "t":
            return True
        case "f":
            return False
        case _:
            raise ValueError(text)


def _decimal(precision: int, scale: int) -> Parse:
    limit = Decimal(10) ** (precision - scale)

    def parse(text: str) -> Value:
        number = Decimal(text)
        if not number.is_finite():
            return text
        exponent = number.as_tuple().exponent
        if not -limit < number < limit or not isinstance(exponent, int) or exponent < -scale:
            raise ValueError(text)
        return number

    return parse


def _integer(bits: int) -> Parse:
    limit = 1 << bits - 1

    def parse(text: str) -> Value:
        number = int(text)
        if not -limit <= number < limit:
            raise ValueError(text)
        return number

    return parse


def _date(text: str) -> Value:
    # Special forms (infinity, BC, long years) have another width; text of this width must be a date.
    return datetime.date.fromisoformat(text) if len(text) == _DATE_WIDTH else text


def _timestamp(text: str) -> Value:
    if text[4:5] != "-" or text.endswith("BC"):
        return text
    return datetime.datetime.fromisoformat(text)


def _binary(text: str) -> Value:
    if not text.startswith("\\x"):
        raise ValueError(text)
    return bytes.fromhex(text[2:])


def _text(text: str) -> Value:
    return text


def parser(column_type: PgType) -> Parse:
    """Return the function that parses the text of one type; it raises ValueError for what is no value of the type."""
    match column_type.physical_type:
        case PhysicalType.BOOLEAN:
            return _boolean
        case PhysicalType.SMALLINT:
            return _integer(16)
        case PhysicalType.INT:
            return _integer(32)
        case PhysicalType.BIGINT:
            return _integer(64)
        case PhysicalType.FLOAT | PhysicalType.DOUBLE:
            return float
        case PhysicalType.DECIMAL:
            return _decimal(*(column_type.precision_scale or (MAX_DECIMAL_DIGITS, 0)))
        case PhysicalType.DATE:
            return _date
        case PhysicalType.TIMESTAMP_NTZ | PhysicalType.TIMESTAMP:
            return _timestamp
        case PhysicalType.BINARY:
            return _binary
        case PhysicalType.TEXT:
            return _text


class RowParser:
    """Parses the rows of one schema version."""

    def __init__(self, schema: TableSchema) -> None:
        self.schema = schema
        self._parsers = [parser(column.type) for column in schema.columns]

    def value(self, ordinal: int, raw: bytes) -> Value:
        """Parse one column of a streamed tuple."""
        try:
            return self._parsers[ordinal](raw.decode())
        except (ValueError, ArithmeticError):
            raise self._unreadable(ordinal) from None

    def row(self, texts: tuple[str | None, ...]) -> tuple[Value, ...]:
        """Parse one copied row."""
        values: list[Value] = []
        for ordinal, (parse, text) in enumerate(zip(self._parsers, texts, strict=True)):
            try:
                values.append(None if text is None else parse(text))
            except (ValueError, ArithmeticError):
                raise self._unreadable(ordinal) from None
        return tuple(values)

    def _unreadable(self, ordinal: int) -> UnreadableValue:
        column = self.schema.columns[ordinal]
        return UnreadableValue(
            f"a value of {self.schema.table} column {column.name} is not valid text of type {column.type.display}",
            hint="in a database with the encoding SQL_ASCII text may be no UTF-8: correct the value and start again, "
            "the table is copied; with another encoding report this",
            table=self.schema.table,
        )
