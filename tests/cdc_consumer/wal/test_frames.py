"""Frames of the replication stream: every byte layout, and nothing but MalformedMessage for the rest."""

from __future__ import annotations

import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_consumer.errors import MalformedMessage
from cdc_consumer.pgoutput.decoder import POSTGRES_EPOCH_US
from cdc_consumer.wal.frames import Keepalive, XLogData, decode_frame, encode_status
from shared_schema.lsn import LSN_MAX, Lsn


@given(st.integers(0, LSN_MAX), st.binary())
def test_log_data(position: int, payload: bytes) -> None:
    frame = struct.pack(">cQQq", b"w", position, position, 1) + payload
    assert decode_frame(frame) == XLogData(Lsn(position), payload)


@given(st.integers(0, LSN_MAX), st.booleans())
def test_keepalive(position: int, status_requested: bool) -> None:
    assert decode_frame(struct.pack(">cQqB", b"k", position, 5, status_requested)) == Keepalive(
        Lsn(position), status_requested
    )


@given(st.binary(max_size=40))
def test_other_bytes_are_refused_with_a_place(data: bytes) -> None:
    with contextlib.suppress(MalformedMessage):
        decode_frame(data)


@pytest.mark.parametrize("data", [b"", b"x", b"w", b"k" + bytes(16), b"k" + bytes(18)])
def test_wrong_lengths(data: bytes) -> None:
    with pytest.raises(MalformedMessage):
        decode_frame(data)


def test_status_reports_flush_as_applied() -> None:
    status = encode_status(Lsn(9), Lsn(7), POSTGRES_EPOCH_US + 3)
    assert struct.unpack(">cQQQqB", status) == (b"r", 9, 7, 7, 3, 0)
