"""First in, first out, whatever is spilled to disk; bounds hold, and a full disk loses nothing."""

from __future__ import annotations

import resource
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_consumer.ring import segments
from cdc_consumer.ring.queue import Bounds, FrameQueue
from cdc_consumer.ring.segments import Segments

chunks = st.lists(st.binary(min_size=1, max_size=40), min_size=1, max_size=30)
steps = st.lists(st.one_of(chunks, st.integers(1, 50)), max_size=60)


@given(steps, st.integers(1, 40), st.integers(0, 3_000), st.integers(20, 2_000))
def test_frames_leave_in_the_order_they_came(
    steps: list[list[bytes] | int], slots: int, disk: int, memory: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        queue, put, received = FrameQueue(Bounds(slots, disk, memory), Segments(folder)), list[bytes](), list[bytes]()
        for step in steps:
            if isinstance(step, int):
                frames = queue.take(step)
                assert len(frames) <= step
                received += frames
            elif queue.accepts(on_disk=True):
                queue.put(step)
                put += step
                # A chunk is accepted when there is space for its first frame.
                assert len(queue) < slots + 30
                assert queue.disk_bytes < disk + 30 * 44
            assert bool(queue) == (len(received) < len(put))
        while queue:
            received += queue.take(7)
        assert received == put
        assert list(Path(folder).iterdir()) == []
        queue.close()


def test_disk_is_used_only_when_allowed() -> None:
    queue = FrameQueue(Bounds(2, 1 << 20), Segments(None))
    queue.put([b"a", b"b"])
    assert not queue.accepts(on_disk=False) and queue.accepts(on_disk=True)
    queue.put([b"c"])
    assert queue.take(2) == [b"a", b"b"]
    # Memory is free again, but the frames on disk are older than new ones.
    assert not queue.accepts(on_disk=False)
    queue.put([b"d"])
    assert queue.take(9) + queue.take(9) == [b"c", b"d"] and not queue


def test_segments_give_their_disk_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "SEGMENT_BYTES", 100)
    stored = Segments(None)
    for number in range(20):
        stored.append([b"%02d" % number * 20])
    assert len(stored._segments) > 5
    assert [stored.take() for _ in range(20)] == [[b"%02d" % number * 20] for number in range(20)]
    assert stored.take() == [] and not stored._segments


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_chunk_the_disk_refuses_is_kept() -> None:
    queue, put = FrameQueue(Bounds(1, 1 << 20), Segments(None)), list[bytes]()
    with largest_file(10_000):
        while queue.accepts(on_disk=True):
            chunk = [b"%06d" % (len(put) + i) * 50 for i in range(10)]
            queue.put(chunk)
            put += chunk
    assert queue.disk_error is not None and 0 < queue.disk_bytes <= 10_000
    received = list[bytes]()
    while queue:
        received += queue.take(4)
    assert received == put
    assert queue.accepts(on_disk=True)
    queue.close()
