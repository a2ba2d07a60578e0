"""A bounded first-in-first-out queue of frames: in memory first, then on disk, then it accepts no more.

    take  <-  memory  <-  disk  <-  rest  <-  put

Frames further right arrived later. A frame goes to memory only while disk and rest are empty. `rest` holds the one
chunk that a full disk rejected. `accepts` says in advance whether there is room; a chunk that was put is never dropped.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from cdc_consumer.ring.segments import Segments

MEMORY_MAX_BYTES = 16 * 1024 * 1024
"""A limit in addition to the number of slots, because frames of wide rows fill the memory sooner."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The limits of the queue."""

    slots: int
    disk_bytes: int
    memory_bytes: int = MEMORY_MAX_BYTES


class FrameQueue:
    """Frames that were received and not yet processed, in the chunks in which they were received."""

    def __init__(self, bounds: Bounds, segments: Segments) -> None:
        self._bounds = bounds
        self._segments = segments
        self._memory: deque[list[bytes]] = deque()
        self._frames = 0
        self._memory_bytes = 0
        self._rest: list[bytes] = []
        self.disk_error: OSError | None = None
        """Why the disk rejected a chunk; None again once the queue was emptied."""

    def __len__(self) -> int:
        """Frames in memory."""
        return self._frames + len(self._rest)

    def __bool__(self) -> bool:
        return bool(self._memory or self._rest or self._segments.bytes)

    @property
    def disk_bytes(self) -> int:
        """Bytes on disk."""
        return self._segments.bytes

    @property
    def is_disk_full(self) -> bool:
        """Whether the disk takes no more; not one that may not be used."""
        return self.disk_error is not None or 0 < self._bounds.disk_bytes <= self._segments.bytes

    def accepts(self, *, on_disk: bool) -> bool:
        """Return whether the queue accepts another chunk; `on_disk` says whether it may go to disk."""
        if self._rest or self.disk_error is not None:
            return False
        if not self._segments.bytes and self._fits():
            return True
        return on_disk and self._segments.bytes < self._bounds.disk_bytes

    def put(self, frames: list[bytes]) -> int:
        """Store a chunk -> the number of bytes written to disk for it."""
        if not self._segments.bytes and not self._rest and self._fits():
            self._remember(frames)
            return 0
        try:
            return self._segments.append(frames)
        except OSError as error:
            self.disk_error = error
            self._rest += frames
            return 0

    def take(self, limit: int) -> list[bytes]:
        """Remove and return up to `limit` frames, the oldest first: a chunk, or a part of one."""
        if not self._memory:
            frames = self._segments.take()
            if not frames:
                frames, self._rest, self.disk_error = self._rest, [], None
            if not frames:
                return []
            self._remember(frames)
        chunk = self._memory.popleft()
        if len(chunk) > limit:
            self._memory.appendleft(chunk[limit:])
            chunk = chunk[:limit]
        self._frames -= len(chunk)
        self._memory_bytes -= sum(map(len, chunk))
        return chunk

    def close(self) -> None:
        """Drop everything."""
        self._segments.close()

    def _remember(self, frames: list[bytes]) -> None:
        self._memory.append(frames)
        self._frames += len(frames)
        self._memory_bytes += sum(map(len, frames))

    def _fits(self) -> bool:
        return self._frames < self._bounds.slots and self._memory_bytes < self._bounds.memory_bytes
