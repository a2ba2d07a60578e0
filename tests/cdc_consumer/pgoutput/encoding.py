"""Encodes pgoutput messages: a second, independent implementation of the layouts in PostgreSQL's documentation."""

from __future__ import annotations

import struct
from collections.abc import Iterable

from cdc_consumer.pgoutput.messages import (
    Begin,
    Commit,
    Delete,
    Insert,
    LogicalMessage,
    Message,
    OldImage,
    Origin,
    Relation,
    Truncate,
    Tuple,
    TypeName,
    Unchanged,
    Update,
)

EPOCH_US = 946_684_800_000_000


def text(value: str) -> bytes:
    return value.encode() + b"\0"


def row(values: Tuple) -> bytes:
    out = struct.pack(">H", len(values))
    for value in values:
        if value is None:
            out += b"n"
        elif value is Unchanged.TOAST:
            out += b"u"
        else:
            assert isinstance(value, bytes)
            out += b"t" + struct.pack(">I", len(value)) + value
    return out


def old(image: OldImage) -> bytes:
    return (b"O" if image.full else b"K") + row(image.values)


def numbers(layout: str, values: Iterable[int]) -> bytes:
    return b"".join(struct.pack(layout, value) for value in values)


def encode(message: Message) -> bytes:
    """Return the bytes that PostgreSQL would send."""
    match message:
        case Begin():
            return b"B" + struct.pack(">QqI", message.commit_lsn.value, message.commit_ts_us - EPOCH_US, message.xid)
        case Commit():
            return b"C\0" + struct.pack(">QQq", message.commit_lsn.value, message.end_lsn.value, 0)
        case Origin():
            return b"O" + struct.pack(">Q", 7) + text(message.name)
        case LogicalMessage():
            head = struct.pack(">BQ", message.transactional, message.lsn.value)
            return b"M" + head + text(message.prefix) + struct.pack(">I", len(message.content)) + message.content
        case Relation():
            head = struct.pack(">I", message.relid) + text(message.schema) + text(message.name)
            columns = b"".join(
                struct.pack(">B", c.in_key) + text(c.name) + struct.pack(">Ii", c.type_oid, c.typmod)
                for c in message.columns
            )
            identity = message.replica_identity.value.encode()
            return b"R" + head + identity + struct.pack(">H", len(message.columns)) + columns
        case TypeName():
            return b"Y" + struct.pack(">I", message.oid) + text(message.schema) + text(message.name)
        case Insert():
            return b"I" + struct.pack(">I", message.relid) + b"N" + row(message.new)
        case Update():
            before = b"" if message.old is None else old(message.old)
            return b"U" + struct.pack(">I", message.relid) + before + b"N" + row(message.new)
        case Delete():
            return b"D" + struct.pack(">I", message.relid) + old(message.old)
        case Truncate():
            flags = message.cascade | message.restart_identity << 1
            return b"T" + struct.pack(">IB", len(message.relids), flags) + numbers(">I", message.relids)
