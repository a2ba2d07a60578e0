"""Change rows: the only form of a table's changes outside PostgreSQL.

INSERT -> I. DELETE -> D. UPDATE -> D(old) directly followed by I(new). TRUNCATE -> one T without a row image. For a
leaf partition the T has an image in which only the leaf column is known: all rows of that leaf are deleted.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum

from shared_schema.lsn import Lsn

Value = None | bool | int | float | str | bytes | Decimal | datetime.date | datetime.datetime
"""A column value in its physical type; str also for the special values of numerics, dates and timestamps."""


class Op(Enum):
    """The operation of a change row: what it does to the Z-set that is the table."""

    INSERT = "I"
    DELETE = "D"
    TRUNCATE = "T"

    @property
    def weight(self) -> int:
        """+1 or -1; 0 for a TRUNCATE, which has no weight of its own because it removes all rows."""
        match self:
            case Op.INSERT:
                return 1
            case Op.DELETE:
                return -1
            case Op.TRUNCATE:
                return 0


@dataclass(frozen=True, slots=True, order=True)
class Stamp:
    """The total order of change rows: the LSN where the commit record starts, then the ordinal in the transaction."""

    lsn: Lsn
    seq: int


@dataclass(frozen=True, slots=True)
class ChangeRow:
    """One change row of one relation.

    `values` follows the order of the relation's columns and is None for a TRUNCATE of the whole relation. `changed`
    holds the ordinals an UPDATE changed (the same on its D and its I) and is None for a genuine INSERT or DELETE.
    `unknown` holds the ordinals of columns that this image does not contain (old images without REPLICA IDENTITY FULL,
    unchanged TOAST values): their entries in `values` are None and have no meaning.
    """

    op: Op
    stamp: Stamp
    xid: int
    commit_ts_us: int
    values: tuple[Value, ...] | None
    changed: frozenset[int] | None = None
    unknown: frozenset[int] = frozenset()
    snapshot: bool = False


def pack_columns(ordinals: frozenset[int], width: int) -> bytes:
    """Encode column ordinals as a bit mask: ordinal i is bit i % 8 (least significant first) of byte i // 8."""
    mask = bytearray((width + 7) // 8)
    for ordinal in ordinals:
        mask[ordinal >> 3] |= 1 << (ordinal & 7)
    return bytes(mask)


def unpack_columns(mask: bytes) -> frozenset[int]:
    """Decode a bit mask: the inverse of pack_columns."""
    return frozenset(8 * i + bit for i, byte in enumerate(mask) for bit in range(8) if byte >> bit & 1)
