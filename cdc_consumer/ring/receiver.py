"""Gives frames to the relay: from the queue if it holds some, otherwise directly from the server.

Usually the queue is empty and costs nothing. While the relay waits for the sink and a hot source is written, the
waiting thread itself continues to receive into the queue: no second thread, no lock, and the order is obvious. Only
during a long wait do frames go to disk; a short moment of back pressure does not cause disk writes.
"""

from __future__ import annotations

import logging
import time

from cdc_consumer.health import Health, Spill
from cdc_consumer.metrics import Metrics
from cdc_consumer.ring.hot_sources import HotSources
from cdc_consumer.ring.queue import FrameQueue
from cdc_consumer.wal.feedback import Feedback
from cdc_consumer.wal.session import ReplicationSession

log = logging.getLogger(__name__)

SPILL_AFTER_S = 2.0
"""If the relay has not taken frames for this long, it waits for a broker, not only for room in a buffer."""

CHUNK_FRAMES = 2_000
"""Frames received at once into the queue."""

CHUNKS_PER_WAIT = 10
"""After so many chunks the waiting code checks again what it waits for."""

WARN_EVERY_S = 60.0


class Receiver:
    """The relay's source of frames; the sink calls `while_waiting` while it waits."""

    def __init__(
        self,
        session: ReplicationSession,
        feedback: Feedback,
        queue: FrameQueue,
        hot: HotSources,
        *,
        health: Health,
        metrics: Metrics,
    ) -> None:
        self._session = session
        self._feedback = feedback
        self._queue = queue
        self._hot = hot
        self._health = health
        self._metrics = metrics
        self._taken_at = time.monotonic()
        self._warned_at = 0.0
        self._spilling = False

    def take(self, limit: int, timeout_s: float) -> list[bytes]:
        """Return up to `limit` frames in the order of the stream; waits at most `timeout_s` for the first one."""
        self._taken_at = time.monotonic()
        if not self._queue:
            return self._session.receive(limit, timeout_s)
        frames = self._queue.take(limit)
        self._report()
        return frames

    def while_waiting(self) -> None:
        """Report to the server while the relay waits, and receive into the queue if a source is hot."""
        self._feedback.while_waiting()
        if self._hot.any_hot:
            self._fill()

    def close(self) -> None:
        """Drop the frames that were received and not processed; the server sends them again."""
        self._queue.close()
        self._health.record_spill(Spill())

    def _fill(self) -> None:
        is_long_wait = time.monotonic() - self._taken_at >= SPILL_AFTER_S
        received = False
        for _ in range(CHUNKS_PER_WAIT):
            if not self._queue.accepts(on_disk=is_long_wait):
                break
            frames = self._session.receive(CHUNK_FRAMES, 0.0)
            if not frames:
                break
            received = True
            self._metrics.spilled.inc(self._queue.put(frames))
        if received:
            self._report()

    def _report(self) -> None:
        """Show what is in the queue, for the alert too, and log when it starts and stops using the disk."""
        queue = self._queue
        self._metrics.ring_frames.set(len(queue))
        self._metrics.spill_bytes.set(queue.disk_bytes)
        self._health.record_spill(Spill(queue.disk_bytes, is_full=queue.is_disk_full))
        if queue.disk_bytes and not self._spilling:
            self._spilling = True
            if time.monotonic() - self._warned_at >= WARN_EVERY_S:
                self._warned_at = time.monotonic()
                log.warning("the sink does not keep up, received changes go to disk")
        elif self._spilling and not queue:
            self._spilling = False
            log.info("all changes from disk are processed")
        if (error := queue.disk_error) is not None and time.monotonic() - self._warned_at >= WARN_EVERY_S:
            self._warned_at = time.monotonic()
            log.warning("disk rejects received changes, the server retains the rest", extra={"problem": error.strerror})
