"""Builds the parts of generated encoders: source lines that turn a value's text into its Avro bytes, and their names.

The lines handle ordinary values only; every other value raises one of `SLOW_PATH`. The source contains only ordinals
and numbers, never names of tables or columns.
"""

from __future__ import annotations

import binascii
import struct
from dataclasses import dataclass
from typing import Any

from cdc_consumer.change_rows import avro_bytes
from shared_schema.change_row import pack_columns
from shared_schema.pg_types import PgType, PhysicalType
from shared_schema.table_schema import TableSchema


class SlowPathRow(ValueError):
    """A row that only the table-driven path can encode or reject."""


SLOW_PATH = (ValueError, LookupError, OverflowError, struct.error)
"""The exceptions that generated functions raise for rows that they cannot encode."""


def names(schema: TableSchema, identity: frozenset[int]) -> dict[str, Any]:
    """Return the namespace of generated code: every name that it may use."""
    width = len(schema.columns)
    # The leaf column is not part of a tuple, and always known.
    sent = width if schema.leaf_ordinal is None else width - 1

    def mask(ordinals: frozenset[int]) -> bytes:
        return avro_bytes.column_bytes(pack_columns(ordinals, width))

    def changed(bits: int) -> bytes:
        return avro_bytes.column_bytes(bits.to_bytes((width + 7) // 8, "little")) + b"\0\0\x02"

    others = frozenset(range(sent)) - identity
    partial = mask(others) if others else b"\0"
    return {
        "SlowPathRow": SlowPathRow,
        "SLOW_PATH": SLOW_PATH,
        "H": struct.Struct(">BI").unpack_from,
        "U": struct.Struct(">I").unpack_from,
        "J": b"".join,
        "N0": avro_bytes.NULL,
        "E": b"",
        "BO": avro_bytes.BOOLEANS.get,
        "BC": {column[4:]: branch for column, branch in avro_bytes.BOOLEANS.items()},
        "BT": {column[5:]: branch for column, branch in avro_bytes.BOOLEANS.items()},
        "SM": avro_bytes.SMALL,
        "CP": avro_bytes.COLUMN_PAIRS,
        "PA": avro_bytes.PAIRS,
        "EN": avro_bytes.ENDS,
        "HI": avro_bytes.HIGH,
        "DA": avro_bytes.DATES,
        "DY": avro_bytes.DAYS,
        "MI": avro_bytes.MINUTES,
        "SE": avro_bytes.SECONDS,
        "FR": avro_bytes.FRACTION,
        "CL": avro_bytes.column_long,
        "VI": avro_bytes.varint,
        "F4": struct.Struct("<f").pack,
        "F8": struct.Struct("<d").pack,
        "UH": binascii.unhexlify,
        "T": b"t\0\0\0",
        "NEW": b"N" + struct.pack(">H", sent),
        "OLD": b"O" + struct.pack(">H", sent),
        "KEY": b"K" + struct.pack(">H", sent),
        # changed_cols, partial, snapshot, and the branch of the row
        "CH": avro_bytes.Cache(changed),
        "CHANGED_D": mask(others) + partial + b"\0\x02",
        "CHANGED_I": mask(others) + b"\0\0\x02",
        "DELETED": b"\0" + partial + b"\0\x02",
    }


def _long(target: str, value: str) -> list[str]:
    """Return the source lines that encode an int or long in union branch 1."""
    return [
        f"{target}=(SM[{value}] if -8192<={value}<8192",
        f"  else CP[{value}<<1&16383]+EN[{value}>>13] if 0<{value}<134217728",
        f"  else CP[{value}<<1&16383]+PA[{value}>>13&16383]+EN[{value}>>27] if 0<{value}<2199023255552",
        f"  else CL({value}))",
    ]


@dataclass(frozen=True, slots=True)
class Text:
    """How generated code refers to a value's text: the bytes of `name` from `first` (a name or a number) to `end`."""

    name: str = "b"
    first: str = "q"
    end: str = "p"

    @property
    def all(self) -> str:
        """The whole value."""
        return f"{self.name}[{self.first}:{self.end}]"

    def at(self, offset: int) -> str:
        """Return a position in it, counted from its start."""
        return (
            str(int(self.first) + offset)
            if self.first.isdigit()
            else f"{self.first}+{offset}"
            if offset
            else self.first
        )

    def part(self, start: int, stop: int) -> str:
        """Return a slice of it, counted from its start."""
        return f"{self.name}[{self.at(start)}:{self.at(stop)}]"

    def to_end(self, start: int, cut: int = 0) -> str:
        """Return the rest of it from `start` on, without its last `cut` bytes."""
        return f"{self.name}[{self.at(start)}:{f'{self.end}-{cut}' if cut else self.end}]"

    def byte_before_end(self, distance: int) -> str:
        """Return one byte, counted from its end."""
        return f"{self.name}[{self.end}-{distance}]"

    def last(self, length: int) -> str:
        """Return its last `length` bytes."""
        return f"{self.name}[{self.end}-{length}:{self.end}]"


STREAMED = Text()


def convert(i: int, kind: PgType, text: Text = STREAMED) -> list[str]:
    """Return source lines that convert column `i`: the text, whose length is in l, becomes x, or x and y.

    A value in two pieces has its length in x and its bytes in y (see `has_two_pieces`).
    """
    match kind.physical_type:
        case PhysicalType.SMALLINT | PhysicalType.INT | PhysicalType.BIGINT:
            return [f"v=int({text.all})", *_long(f"x{i}", "v")]
        case PhysicalType.FLOAT:
            return [f"x{i}=b'\\x02'+F4(float({text.all}))"]
        case PhysicalType.DOUBLE:
            return [f"x{i}=b'\\x02'+F8(float({text.all}))"]
        case PhysicalType.DECIMAL:
            return _decimal(i, kind, text)
        case PhysicalType.DATE:
            return [f"x{i}=DA[{text.all}]"]
        case PhysicalType.TIMESTAMP:
            return [f"if {text.last(3)}!=b'+00': raise SlowPathRow", *_timestamp(i, 3, text)]
        case PhysicalType.TIMESTAMP_NTZ:
            return _timestamp(i, 0, text)
        case PhysicalType.BINARY:
            return [
                f"if {text.part(0, 2)}!=b'\\\\x': raise SlowPathRow",
                f"y{i}=UH({text.to_end(2)})",
                f"l=len(y{i})",
                f"x{i}=SM[l] if l<8192 else CL(l)",
            ]
        case PhysicalType.TEXT:
            # Text that is not UTF-8 must be rejected, not passed on.
            return [f"x{i}=SM[l] if l<8192 else CL(l)", f"y{i}={text.all}", f"y{i}.isascii() or y{i}.decode()"]
        case PhysicalType.BOOLEAN:
            raise AssertionError("booleans are converted as whole columns")


def _decimal(i: int, kind: PgType, text: Text) -> list[str]:
    precision, scale = kind.precision_scale or (0, 0)
    point = [
        f"if {text.byte_before_end(scale + 1)}!=46: raise SlowPathRow",
        # int() accepts underscores, signs and blanks, which must not occur after the decimal point.
        f"f={text.last(scale)}",
        "if not f.isdigit(): raise SlowPathRow",
        f"v=int({text.to_end(0, scale + 1)}+f)",
    ]
    too_long = [f"if not -1{'0' * precision}<v<1{'0' * precision}: raise SlowPathRow"] if precision else []
    return [
        *(point if scale else [f"v=int({text.all})"]),
        *too_long,
        "l=(v.bit_length()>>3)+1",
        f"x{i}=SM[l]",
        f"y{i}=v.to_bytes(l,'big',signed=True)",
    ]


def _timestamp(i: int, suffix: int, text: Text) -> list[str]:
    return [
        f"v=DY[{text.part(0, 10)}]+MI[{text.part(10, 16)}]+SE[{text.part(16, 19)}]",
        f"if l!={19 + suffix}:",
        f"  if {text.name}[{text.at(19)}]!=46: raise SlowPathRow",
        f"  f={text.to_end(20, suffix)}",
        "  if not f.isdigit(): raise SlowPathRow",
        f"  v+=int(f)*FR[l-{20 + suffix}]",
        "z=v<<1",
        f"x{i}=CP[z&16383]+PA[z>>14&16383]+HI[z>>28] if v>134217728 else CL(v)",
    ]


def has_two_pieces(kind: PgType) -> bool:
    """Return whether a value has two pieces: its length (or branch) in x and its bytes in y."""
    return kind.physical_type in (PhysicalType.TEXT, PhysicalType.BINARY, PhysicalType.DECIMAL)
