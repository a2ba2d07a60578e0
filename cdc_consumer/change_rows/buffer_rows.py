"""Takes row messages, returns rows of a buffer table for COPY. PostgreSQL's text is passed on and not interpreted.

A row has COPY's binary format if each of its values has a binary form here, otherwise COPY's text format. PostgreSQL's
own receive and input functions read both, so they mean the same. The key that `write` gets distinguishes them: BINARY,
or None for text.
"""

from __future__ import annotations

import datetime
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from cdc_consumer.change_rows.binary_values import BinaryForm, binary_form
from cdc_consumer.change_rows.copy_lines import NO_XID, split_copy_line
from cdc_consumer.change_rows.generate import EncodedRow, EncodedUpdate
from cdc_consumer.change_rows.split import TableReader, Transaction
from cdc_consumer.errors import MalformedMessage
from cdc_consumer.pgoutput.decoder import POSTGRES_EPOCH_US, decode
from cdc_consumer.pgoutput.messages import Begin, Delete, Insert, Relation, Update
from shared_schema.change_row import ChangeRow, Op, Stamp, Value, pack_columns
from shared_schema.lsn import Lsn
from shared_schema.table_schema import LEAF_COLUMN, Column, TableSchema

BINARY = b"b"

BOOKKEEPING = (
    ("__pgt_lsn", "pg_lsn NOT NULL"),
    ("__pgt_seq", "bigint NOT NULL"),
    ("__pgt_op", '"char" NOT NULL'),
    ("__pgt_xid", "bigint NOT NULL"),
    ("__pgt_commit_ts", "timestamptz NOT NULL"),
    ("__pgt_changed_cols", "bytea"),
    ("__pgt_partial", "bytea"),
    ("__pgt_snapshot", "boolean NOT NULL"),
    ("__pgt_version", "integer NOT NULL"),
)
"""Columns before the columns of the source table; the first two are the stamp and the primary key."""

_EPOCH = datetime.datetime(1970, 1, 1)
_ESCAPES = [(b"\\", b"\\\\"), (b"\t", b"\\t"), (b"\n", b"\\n"), (b"\r", b"\\r")]


@dataclass(frozen=True, slots=True)
class Layout:
    """How a schema version is stored in the buffer table: its number, and the type of each column there."""

    schema: TableSchema
    version: int
    types: tuple[str, ...]
    """Catalog names; `text` if the target database does not have the source's type."""


LEAF_NAME = "__pgt_leaf"


def buffer_column(column: Column) -> str:
    """Return the name of a column in the buffer table: PostgreSQL reserves that of the leaf column."""
    return LEAF_NAME if column == LEAF_COLUMN else column.name


class TextParser:
    """Replaces RowParser: a value stays the text that was received."""

    def value(self, ordinal: int, raw: bytes) -> Value:
        """Return the text unchanged."""
        return raw


class TextReader(TableReader):
    """Reads tuples without interpreting their values."""

    def __init__(self, relation: Relation, schema: TableSchema) -> None:
        super().__init__(relation, schema)
        self.parser = TextParser()


class RowForm:
    """Turns change rows whose values are text into COPY rows."""

    def __init__(self, layout: Layout) -> None:
        self._version = layout.version
        self._width = len(layout.types)
        self._forms = _forms(layout.types)
        self._count = struct.pack(">H", len(BOOKKEEPING) + self._width)

    def row(self, row: ChangeRow) -> EncodedRow:
        """Return (BINARY or None, COPY row)."""
        values = row.values if row.values is not None else (None,) * self._width
        changed = None if row.changed is None else pack_columns(row.changed, self._width)
        partial = pack_columns(row.unknown, self._width) if row.unknown else None
        if self._forms is not None:
            try:
                return BINARY, self._binary(row, values, changed, partial, self._forms)
            except (ValueError, struct.error, OverflowError):
                pass  # a value without a binary form here, for example infinity
        return None, self._text(row, values, changed, partial)

    def _binary(
        self,
        row: ChangeRow,
        values: Sequence[Value],
        changed: bytes | None,
        partial: bytes | None,
        forms: Sequence[BinaryForm],
    ) -> bytes:
        stamp = struct.pack(
            ">IQIqIcIqIq",
            8,
            row.stamp.lsn.value,
            8,
            row.stamp.seq,
            1,
            row.op.value.encode(),
            8,
            row.xid,
            8,
            row.commit_ts_us - POSTGRES_EPOCH_US,
        )
        parts = [self._count, stamp, _add_length(changed), _add_length(partial)]
        parts.append(struct.pack(">I?Ii", 1, row.snapshot, 4, self._version))
        for form, value in zip(forms, values, strict=True):
            parts.append(b"\xff\xff\xff\xff" if value is None else _add_length(form(_bytes(value))))
        return b"".join(parts)

    def _text(self, row: ChangeRow, values: Sequence[Value], changed: bytes | None, partial: bytes | None) -> bytes:
        commit = (_EPOCH + datetime.timedelta(microseconds=row.commit_ts_us)).isoformat()
        own = [
            str(row.stamp.lsn).encode(),
            b"%d" % row.stamp.seq,
            row.op.value.encode(),
            b"%d" % row.xid,
            commit.encode() + b"+00",
            _encode_mask(changed),
            _encode_mask(partial),
            b"t" if row.snapshot else b"f",
            b"%d" % self._version,
        ]
        return b"\t".join([*own, *(b"\\N" if v is None else _escape(_bytes(v)) for v in values)]) + b"\n"


def restamp_row(row: EncodedRow, stamp: Stamp) -> EncodedRow:
    """Return the COPY row with another stamp: it begins with lsn and seq."""
    key, value = row
    if key is None:
        return None, b"%s\t%d\t%s" % (str(stamp.lsn).encode(), stamp.seq, value.split(b"\t", 2)[2])
    # The number of columns, then each value behind its length.
    return key, value[:2] + struct.pack(">IQIq", 8, stamp.lsn.value, 8, stamp.seq) + value[26:]


class BufferEncoder:
    """Encodes the row messages of one relation in one transaction."""

    def __init__(self, form: RowForm, reader: TextReader, begin: Begin) -> None:
        self._form = form
        self._reader = reader
        self._transaction = Transaction(begin)

    def encode_inserts(self, frames: list[bytes], first: int, at: int, ordinal: int) -> list[EncodedRow]:
        """Return no rows: this encoder handles rows one by one."""
        return []

    def encode(self, frame: bytes, at: int, ordinal: int) -> EncodedRow | EncodedUpdate:
        """Encode the row message at offset `at` -> its rows."""
        message = decode(frame[at:])
        if not isinstance(message, Insert | Update | Delete):
            raise MalformedMessage("a row message was expected", offset=0)
        self._transaction.ordinal = ordinal
        rows = [self._form.row(row) for row in self._transaction.split(message, self._reader)]
        return rows[0] if len(rows) == 1 else (*rows[0], *rows[1])


class BufferCopier:
    """Encodes the copied lines of one table at one position."""

    def __init__(self, form: RowForm, width: int, at: Lsn, now_us: int) -> None:
        self._form = form
        self._width = width
        self._at = at
        self._now_us = now_us

    def encode(self, line: bytes, seq: int) -> EncodedRow:
        """Encode a line with its number -> its row."""
        values = tuple(split_copy_line(line, self._width))
        return self._form.row(ChangeRow(Op.INSERT, Stamp(self._at, seq), NO_XID, self._now_us, values, snapshot=True))


@lru_cache(maxsize=4096)
def _forms(types: tuple[str, ...]) -> tuple[BinaryForm, ...] | None:
    forms = tuple(binary_form(name) for name in types)
    known = tuple(form for form in forms if form is not None)
    return known if len(known) == len(forms) else None


def _bytes(value: Value) -> bytes:
    if isinstance(value, int):
        return b"%d" % value  # the leaf of a T row
    if not isinstance(value, bytes):
        raise AssertionError("values of buffer rows are text as received")
    return value


def _add_length(content: bytes | None) -> bytes:
    return b"\xff\xff\xff\xff" if content is None else len(content).to_bytes(4, "big") + content


def _encode_mask(mask: bytes | None) -> bytes:
    return b"\\N" if mask is None else b"\\\\x" + mask.hex().encode()


def _escape(text: bytes) -> bytes:
    for plain, escape in _ESCAPES:
        if plain in text:
            text = text.replace(plain, escape)
    return text
