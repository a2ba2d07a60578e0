"""Bytes of the replication CopyBoth stream <-> frames. Pure.

In: one CopyData payload. Out: XLogData (one whole pgoutput message) or Keepalive; and the status update we send back.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from cdc_consumer.errors import MalformedMessage
from cdc_consumer.pgoutput.decoder import POSTGRES_EPOCH_US
from shared_schema.lsn import Lsn

_XLOG_DATA = struct.Struct(">cQQq")
PAYLOAD_AT = _XLOG_DATA.size
"""Where the message begins in a frame of log data."""

_KEEPALIVE = struct.Struct(">cQqB")
_STATUS = struct.Struct(">cQQQqB")


@dataclass(frozen=True, slots=True)
class XLogData:
    """One output-plugin message; `position` is 0 for all but the last write of a record."""

    position: Lsn
    payload: bytes


@dataclass(frozen=True, slots=True)
class Keepalive:
    """Everything committed before `position` was already sent; the server may ask for an answer now."""

    position: Lsn
    reply_requested: bool


Frame = XLogData | Keepalive


def decode_frame(data: bytes) -> Frame:
    """One CopyData payload -> frame."""
    match data[:1]:
        case b"w":
            if len(data) < _XLOG_DATA.size:
                raise MalformedMessage("log data header cut short", offset=len(data))
            _, position, _, _ = _XLOG_DATA.unpack_from(data)
            return XLogData(Lsn(position), data[_XLOG_DATA.size :])
        case b"k":
            if len(data) != _KEEPALIVE.size:
                raise MalformedMessage(f"keepalive of {len(data)} bytes", offset=min(len(data), _KEEPALIVE.size))
            _, position, _, reply = _KEEPALIVE.unpack(data)
            return Keepalive(Lsn(position), reply != 0)
        case tag:
            raise MalformedMessage(f"unknown frame {tag!r}", offset=0)


def has_kind(data: bytes, kinds: bytes) -> bool:
    """Whether a CopyData payload is log data with a message of one of these types."""
    return len(data) > PAYLOAD_AT and data[0] == 0x77 and data[PAYLOAD_AT] in kinds  # w


def encode_status(written: Lsn, flushed: Lsn, now_us: int) -> bytes:
    """The standby status update: what we received and what is durable on the topics; `now_us` since 1970."""
    return _STATUS.pack(b"r", written.value, flushed.value, flushed.value, now_us - POSTGRES_EPOCH_US, 0)
