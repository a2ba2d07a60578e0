"""Maps each PostgreSQL type to its physical type: how values are encoded in Avro and stored in Spark. No Spark import.

Every physical type is exact. A type without an entry is represented by the text that PostgreSQL prints. This is exact
too, and the input function of the type reads it when rows are written back.

Values that the Avro logical type cannot hold (numeric NaN and infinities, infinite or out-of-range dates) use a third
union branch with PostgreSQL's text: `["null", <logical type>, "string"]`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

FIRST_USER_OID = 16_384
"""PostgreSQL's FirstNormalObjectId: initdb assigns only smaller ones."""

VARHDRSZ = 4
"""PostgreSQL adds the size of a varlena header to the typmod of numeric and the character types."""

MAX_DECIMAL_DIGITS = 38
"""The widest decimal that Spark, Delta and Arrow's decimal128 hold."""


class PhysicalType(Enum):
    """How a trace stores a value; the enum's value is the Spark DDL type unless that depends on the typmod."""

    BOOLEAN = "boolean"
    SMALLINT = "smallint"
    INT = "int"
    BIGINT = "bigint"
    FLOAT = "float"
    DOUBLE = "double"
    DECIMAL = "decimal"
    DATE = "date"
    TIMESTAMP_NTZ = "timestamp_ntz"
    TIMESTAMP = "timestamp"
    BINARY = "binary"
    TEXT = "string"


@dataclass(frozen=True, slots=True)
class PgType:
    """A column type of PostgreSQL.

    `name` is the catalog's short name (`int4`, `numeric`), of the base type if the column has a domain; `display` is
    what format_type() prints (`numeric(10,2)`), for messages and for writing back.
    """

    oid: int
    typmod: int
    name: str
    display: str

    @property
    def precision_scale(self) -> tuple[int, int] | None:
        """(precision, scale) of a bounded numeric; None for every other type and for an unbounded numeric."""
        if self.name != "numeric" or self.typmod < VARHDRSZ:
            return None
        packed = self.typmod - VARHDRSZ
        # The scale is an 11-bit signed number, because PostgreSQL 15 and later allow numeric(3,-2).
        return (packed >> 16) & 0xFFFF, ((packed & 0x7FF) ^ 0x400) - 0x400

    @property
    def physical_type(self) -> PhysicalType:
        """The physical type; TEXT for every type without an entry."""
        if self.name == "numeric":
            bounds = self.precision_scale
            fits = bounds is not None and bounds[0] <= MAX_DECIMAL_DIGITS and 0 <= bounds[1] <= bounds[0]
            return PhysicalType.DECIMAL if fits else PhysicalType.TEXT
        return _PHYSICAL_TYPES.get(self.name, PhysicalType.TEXT)

    @property
    def spark_ddl(self) -> str:
        """The Spark SQL type of the physical type, e.g. `decimal(10,2)`."""
        if self.physical_type is PhysicalType.DECIMAL and (bounds := self.precision_scale):
            return f"decimal({bounds[0]},{bounds[1]})"
        return self.physical_type.value

    @property
    def avro(self) -> list[Any]:
        """The nullable Avro union of this type."""
        match self.physical_type:
            case PhysicalType.BOOLEAN:
                return ["null", "boolean"]
            case PhysicalType.SMALLINT | PhysicalType.INT:
                return ["null", "int"]
            case PhysicalType.BIGINT:
                return ["null", "long"]
            case PhysicalType.FLOAT:
                return ["null", "float"]
            case PhysicalType.DOUBLE:
                return ["null", "double"]
            case PhysicalType.DECIMAL:
                precision, scale = self.precision_scale or (MAX_DECIMAL_DIGITS, 0)
                decimal = {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}
                return ["null", decimal, "string"]
            case PhysicalType.DATE:
                return ["null", {"type": "int", "logicalType": "date"}, "string"]
            case PhysicalType.TIMESTAMP_NTZ:
                return ["null", {"type": "long", "logicalType": "local-timestamp-micros"}, "string"]
            case PhysicalType.TIMESTAMP:
                return ["null", {"type": "long", "logicalType": "timestamp-micros"}, "string"]
            case PhysicalType.BINARY:
                return ["null", "bytes"]
            case PhysicalType.TEXT:
                return ["null", "string"]


_PHYSICAL_TYPES = {
    "bool": PhysicalType.BOOLEAN,
    "int2": PhysicalType.SMALLINT,
    "int4": PhysicalType.INT,
    "int8": PhysicalType.BIGINT,
    "oid": PhysicalType.BIGINT,
    "float4": PhysicalType.FLOAT,
    "float8": PhysicalType.DOUBLE,
    "date": PhysicalType.DATE,
    "timestamp": PhysicalType.TIMESTAMP_NTZ,
    "timestamptz": PhysicalType.TIMESTAMP,
    "bytea": PhysicalType.BINARY,
}


_WIDER_INTEGERS = {21: (23, 20), 23: (20,)}
"""smallint, integer, bigint by their OIDs."""

_VARCHAR, _TEXT, _NUMERIC = 1043, 25, 1700


def is_widening(old: tuple[int, int], new: tuple[int, int]) -> bool:
    """Whether every value of the old type, given as OID and typmod, is the same value of the new one."""
    (was, typmod), (now, wider) = old, new
    if was == now == _VARCHAR:
        return wider < 0 or 0 <= typmod <= wider
    if was == now == _NUMERIC:
        bounds, allowed = (PgType(_NUMERIC, mod, "numeric", "").precision_scale for mod in (typmod, wider))
        # With another scale the same number is printed differently.
        return bounds is not None and (allowed is None or (allowed[1] == bounds[1] and allowed[0] >= bounds[0]))
    return (was, now) == (_VARCHAR, _TEXT) or now in _WIDER_INTEGERS.get(was, ())
