"""Stores frames on disk, first in first out, in files without a name.

A file that has no name in any folder disappears with the process, no matter how the process ends. So nothing has to be
cleaned up at the next start, and no old file can be mistaken for data. Nothing is lost either, because the slot's
position is still before everything in these files.
"""

from __future__ import annotations

import os
import struct
import tempfile
from collections import deque
from dataclasses import dataclass
from typing import BinaryIO

SEGMENT_BYTES = 64 * 1024 * 1024
"""Disk space is freed file by file."""

_LENGTH = struct.Struct(">I")


@dataclass(slots=True)
class _Segment:
    """A file, the number of bytes written to it, and the chunks that were not read yet as (offset, size)."""

    file: BinaryIO
    end: int
    chunks: deque[tuple[int, int]]


class Segments:
    """Chunks of frames in the file system of a folder."""

    def __init__(self, folder: str | None) -> None:
        self._folder = folder
        self._segments: deque[_Segment] = deque()
        self.bytes = 0
        """Bytes on disk that were not read yet."""

    def append(self, frames: list[bytes]) -> int:
        """Store a whole chunk -> its size. On OSError nothing of the chunk is stored."""
        chunk = b"".join([part for frame in frames for part in (_LENGTH.pack(len(frame)), frame)])
        if not self._segments or self._segments[-1].end >= SEGMENT_BYTES:
            # The segment below owns the file and closes it.
            file = tempfile.TemporaryFile(dir=self._folder, prefix="pg-trickle-", buffering=0)  # noqa: SIM115
            self._segments.append(_Segment(file, 0, deque()))
        segment = self._segments[-1]
        written, view = 0, memoryview(chunk)
        while written < len(chunk):
            written += os.pwrite(segment.file.fileno(), view[written:], segment.end + written)
        segment.chunks.append((segment.end, len(chunk)))
        segment.end += len(chunk)
        self.bytes += len(chunk)
        return len(chunk)

    def take(self) -> list[bytes]:
        """Remove the oldest chunk -> its frames; empty if there is none."""
        while self._segments and not self._segments[0].chunks:
            self._segments.popleft().file.close()
        if not self._segments:
            return []
        segment = self._segments[0]
        offset, size = segment.chunks.popleft()
        chunk = os.pread(segment.file.fileno(), size, offset)
        while len(chunk) < size:
            more = os.pread(segment.file.fileno(), size - len(chunk), offset + len(chunk))
            if not more:
                raise OSError(f"a spilled chunk of {size} bytes ends after {len(chunk)}")
            chunk += more
        self.bytes -= size
        frames, at = [], 0
        while at < size:
            (length,) = _LENGTH.unpack_from(chunk, at)
            at += _LENGTH.size
            frames.append(chunk[at : at + length])
            at += length
        return frames

    def close(self) -> None:
        """Close all files, which frees their disk space."""
        for segment in self._segments:
            segment.file.close()
        self._segments.clear()
        self.bytes = 0
