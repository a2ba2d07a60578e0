"""Bytes of one pgoutput message -> one message object. Total: malformed bytes give MalformedMessage with the offset.

Never touches the network or the catalog.
"""

from __future__ import annotations

import struct

from cdc_consumer.errors import MalformedMessage
from cdc_consumer.pgoutput.messages import (
    Begin,
    Commit,
    Delete,
    Field,
    Insert,
    LogicalMessage,
    Message,
    OldImage,
    Origin,
    Relation,
    RelationColumn,
    Truncate,
    Tuple,
    TypeName,
    Unchanged,
    Update,
)
from shared_schema.lsn import Lsn
from shared_schema.table_schema import ReplicaIdentity

POSTGRES_EPOCH_US = 946_684_800_000_000
"""PostgreSQL counts microseconds from 2000-01-01, Unix time from 1970-01-01."""

_INT16 = struct.Struct(">H")
_INT32 = struct.Struct(">I")
_SIGNED32 = struct.Struct(">i")
_INT64 = struct.Struct(">Q")
_SIGNED64 = struct.Struct(">q")


class _Reader:
    """A cursor over one message that refuses to read past its end."""

    __slots__ = ("data", "offset")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.offset = 0

    def number(self, layout: struct.Struct) -> int:
        start, self.offset = self.offset, self.offset + layout.size
        if self.offset > len(self.data):
            raise MalformedMessage(f"{layout.size}-byte number cut short", offset=start)
        return int(layout.unpack_from(self.data, start)[0])

    def byte(self) -> int:
        if self.offset >= len(self.data):
            raise MalformedMessage("byte expected, message ended", offset=self.offset)
        self.offset += 1
        return self.data[self.offset - 1]

    def bytes(self, size: int) -> bytes:
        start, self.offset = self.offset, self.offset + size
        if size < 0 or self.offset > len(self.data):
            raise MalformedMessage(f"{size} bytes expected, message ended", offset=start)
        return self.data[start : self.offset]

    def string(self) -> str:
        start, end = self.offset, self.data.find(b"\0", self.offset)
        if end < 0:
            raise MalformedMessage("string without an end", offset=start)
        self.offset = end + 1
        try:
            return self.data[start:end].decode()
        except UnicodeDecodeError:
            raise MalformedMessage("string is not UTF-8", offset=start) from None

    def lsn(self) -> Lsn:
        return Lsn(self._in_a_long(self.number(_INT64)))

    def unix_us(self) -> int:
        return self._in_a_long(self.number(_SIGNED64) + POSTGRES_EPOCH_US)

    def _in_a_long(self, number: int) -> int:
        """Positions and times are longs in change rows. No server reaches a number that is none."""
        if number >= 1 << 63:
            raise MalformedMessage("a position or time that no server has", offset=self.offset - 8)
        return number

    def end(self) -> None:
        if self.offset != len(self.data):
            raise MalformedMessage(f"{len(self.data) - self.offset} bytes too many", offset=self.offset)


def decode(data: bytes) -> Message:
    """One payload of the stream -> message."""
    reader = _Reader(data)
    message = _message(reader)
    reader.end()
    return message


def _message(reader: _Reader) -> Message:
    match reader.byte():
        case 0x49:  # I
            relid = reader.number(_INT32)
            _expect(reader, b"N")
            return Insert(relid, _tuple(reader))
        case 0x55:  # U
            return _update(reader)
        case 0x44:  # D
            relid = reader.number(_INT32)
            return Delete(relid, _old_image(reader))
        case 0x42:  # B
            return Begin(reader.lsn(), reader.unix_us(), reader.number(_INT32))
        case 0x43:  # C
            reader.byte()
            commit = Commit(reader.lsn(), reader.lsn())
            reader.unix_us()
            return commit
        case 0x52:  # R
            return _relation(reader)
        case 0x54:  # T
            count, flags = reader.number(_INT32), reader.byte()
            if count * 4 != len(reader.data) - reader.offset:
                raise MalformedMessage(f"truncate of {count} relations has another length", offset=reader.offset)
            return Truncate(tuple(reader.number(_INT32) for _ in range(count)), bool(flags & 1), bool(flags & 2))
        case 0x4D:  # M
            flags, lsn, prefix = reader.byte(), reader.lsn(), reader.string()
            return LogicalMessage(bool(flags & 1), lsn, prefix, reader.bytes(reader.number(_SIGNED32)))
        case 0x4F:  # O
            reader.lsn()
            return Origin(reader.string())
        case 0x59:  # Y
            return TypeName(reader.number(_INT32), reader.string(), reader.string())
        case tag:
            raise MalformedMessage(f"unknown message type 0x{tag:02x}", offset=0)


def _update(reader: _Reader) -> Update:
    relid = reader.number(_INT32)
    marker = reader.data[reader.offset : reader.offset + 1]
    old = _old_image(reader) if marker in (b"K", b"O") else None
    _expect(reader, b"N")
    return Update(relid, old, _tuple(reader))


def _old_image(reader: _Reader) -> OldImage:
    match reader.byte():
        case 0x4F:  # O: all columns
            return OldImage(_tuple(reader), full=True)
        case 0x4B:  # K: the replica identity's columns, the others are no real NULLs
            return OldImage(_tuple(reader), full=False)
        case tag:
            raise MalformedMessage(f"old row expected, found 0x{tag:02x}", offset=reader.offset - 1)


def _tuple(reader: _Reader) -> Tuple:
    fields: list[Field] = []
    for _ in range(reader.number(_INT16)):
        match reader.byte():
            case 0x74:  # t: text
                fields.append(reader.bytes(reader.number(_SIGNED32)))
            case 0x6E:  # n: NULL
                fields.append(None)
            case 0x75:  # u: unchanged TOAST
                fields.append(Unchanged.TOAST)
            case tag:
                # 'b' (binary) is not asked for, so it is as wrong as any other byte.
                raise MalformedMessage(f"unknown column kind 0x{tag:02x}", offset=reader.offset - 1)
    return tuple(fields)


def _relation(reader: _Reader) -> Relation:
    relid, schema, name, identity = reader.number(_INT32), reader.string(), reader.string(), reader.byte()
    try:
        replica_identity = ReplicaIdentity(chr(identity))
    except ValueError:
        raise MalformedMessage(f"unknown replica identity 0x{identity:02x}", offset=reader.offset - 1) from None
    columns: list[RelationColumn] = []
    for _ in range(reader.number(_INT16)):
        flags, column = reader.byte(), reader.string()
        if any(column == known.name for known in columns):
            raise MalformedMessage("two columns of a relation have the same name", offset=reader.offset)
        columns.append(RelationColumn(column, reader.number(_INT32), reader.number(_SIGNED32), bool(flags & 1)))
    return Relation(relid, schema or "pg_catalog", name, replica_identity, tuple(columns))


def _expect(reader: _Reader, marker: bytes) -> None:
    found = reader.bytes(1)
    if found != marker:
        raise MalformedMessage(f"{marker!r} expected, found {found!r}", offset=reader.offset - 1)
