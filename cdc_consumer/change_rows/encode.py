"""Encodes row messages of one relation in one transaction as Kafka messages, by the relation's generated functions."""

from __future__ import annotations

from cdc_consumer.change_rows.avro_bytes import ENDS, PAIRS, long, varint
from cdc_consumer.change_rows.conversions import SlowPathRow
from cdc_consumer.change_rows.generate import EncodedRow, EncodedUpdate, GeneratedFunctions, generate_functions
from cdc_consumer.change_rows.split import TableReader
from cdc_consumer.pgoutput.messages import Begin

INSERT, UPDATE, DELETE = b"IUD"
_NEW, _OLD, _KEY = b"NOK"
_INSERTED, _DELETED = b"\x00", b"\x02"
"""Ordinals of the `op` enum."""


class TransactionEncoder:
    """Holds the bytes that are the same in all rows of the relation in the transaction."""

    __slots__ = ("_deleted", "_functions", "_insert", "_inserted", "_new", "_old", "_tail", "_xid_time")

    def __init__(self, table: TableReader, header: bytes, begin: Begin) -> None:
        self._functions: GeneratedFunctions = generate_functions(table.schema, table.identity, table.leaf)
        lsn = long(begin.commit_lsn.value)
        self._inserted = header + _INSERTED + lsn
        self._deleted = header + _DELETED + lsn
        self._xid_time = long(begin.xid) + long(begin.commit_ts_us)
        # changed_cols and partial are null, snapshot is false, and row is not null
        self._tail = self._xid_time + b"\0\0\0\x02"
        width = table.width.to_bytes(2, "big")
        self._new, self._old = b"N" + width, b"O" + width
        self._insert = b"I" + table.relation.relid.to_bytes(4, "big") + self._new

    def encode_inserts(self, frames: list[bytes], first: int, at: int, ordinal: int) -> list[EncodedRow]:
        """Encode consecutive INSERTs from frame `first` on, up to one for the slow path -> key and value of each."""
        return self._functions.inserts(frames, first, at, self._insert, self._inserted, ordinal, self._tail)

    def encode(self, frame: bytes, at: int, ordinal: int) -> EncodedRow | EncodedUpdate:
        """Encode the row message at offset `at` -> key and value of each row.

        A row that only the slow path can encode raises one of SLOW_PATH.
        """
        kind, marker = frame[at], frame[at + 5]
        if kind == INSERT:
            return self._functions.whole(frame, at + 5, self._new, self._inserted, number(ordinal), self._tail)
        if kind == UPDATE:
            if marker == _OLD:
                update = self._functions.update_full
            elif marker == _NEW:
                update = self._functions.update_key
            else:
                raise SlowPathRow
            numbers = number(ordinal), number(ordinal + 1)
            return update(frame, at + 5, self._deleted, self._inserted, *numbers, self._xid_time)
        if marker == _OLD:
            return self._functions.whole(frame, at + 5, self._old, self._deleted, number(ordinal), self._tail)
        if marker == _KEY:
            return self._functions.delete_key(frame, at + 5, self._deleted, number(ordinal), self._xid_time)
        raise SlowPathRow


class SlowEncoder:
    """Encodes nothing: every row takes the slow path. For leaf partitions with the columns in another order."""

    def encode_inserts(self, frames: list[bytes], first: int, at: int, ordinal: int) -> list[EncodedRow]:
        """Return no rows."""
        return []

    def encode(self, frame: bytes, at: int, ordinal: int) -> EncodedRow | EncodedUpdate:
        """Raise SlowPathRow."""
        raise SlowPathRow


def number(ordinal: int) -> bytes:
    """Encode the `seq` field."""
    if ordinal < 8192:
        return ENDS[ordinal << 1]
    return PAIRS[ordinal << 1 & 16383] + ENDS[ordinal >> 13] if ordinal < 134217728 else varint(ordinal << 1)
