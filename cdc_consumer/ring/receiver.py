"""Frames for the relay: from the queue when it holds some, otherwise straight from the server.

Usually the queue is empty and costs nothing. While the sink keeps the relay waiting and a hot source is written, the
waiting thread itself goes on receiving into the queue: no second thread, no lock, and the order is plain. Only a wait
that lasts goes to disk, so that an ordinary moment of back pressure does not.
"""

from __future__ import annotations

import logging
import time

from cdc_consumer.metrics import Metrics
from cdc_consumer.ring.hot_sources import HotSources
from cdc_consumer.ring.queue import FrameQueue
from cdc_consumer.wal.feedback import Feedback
from cdc_consumer.wal.session import ReplicationSession

log = logging.getLogger(__name__)

SPILL_AFTER_S = 2.0
"""A relay that has not come back for frames for so long waits for a broker, not for room in a buffer."""

CHUNK_FRAMES = 2_000
"""Received at once into the queue."""

CHUNKS_PER_WAIT = 10
"""Then whoever waits looks again at what it waits for."""

WARN_EVERY_S = 60.0


class Receiver:
    """The relay's source of frames, and what the sink calls while it waits."""

    def __init__(
        self, session: ReplicationSession, feedback: Feedback, queue: FrameQueue, hot: HotSources, metrics: Metrics
    ) -> None:
        self._session = session
        self._feedback = feedback
        self._queue = queue
        self._hot = hot
        self._metrics = metrics
        self._taken_at = time.monotonic()
        self._warned_at = 0.0
        self._spilling = False

    def take(self, limit: int, timeout_s: float) -> list[bytes]:
        """Up to `limit` frames in the order of the stream; waits for the first at most `timeout_s`."""
        self._taken_at = time.monotonic()
        self._hot.look()
        if not self._queue:
            return self._session.receive(limit, timeout_s)
        frames = self._queue.take(limit)
        self._told()
        return frames

    def while_waiting(self) -> None:
        """The relay cannot go on yet: stay in touch with the server, and let it go on if it has much to send."""
        self._feedback.while_waiting()
        if self._hot.any:
            self._fill()

    def close(self) -> None:
        """Forget what was received and not handed on; the server sends it again."""
        self._queue.close()

    def _fill(self) -> None:
        lasting = time.monotonic() - self._taken_at >= SPILL_AFTER_S
        received = False
        for _ in range(CHUNKS_PER_WAIT):
            if not self._queue.accepts(on_disk=lasting):
                break
            frames = self._session.receive(CHUNK_FRAMES, 0.0)
            if not frames:
                break
            received = True
            self._metrics.spilled.inc(self._queue.put(frames))
        if received:
            self._told()

    def _told(self) -> None:
        """Gauges, and a word in the log when the disk is used and when it is not any more."""
        queue = self._queue
        self._metrics.ring_frames.set(len(queue))
        self._metrics.spill_bytes.set(queue.disk_bytes)
        if queue.disk_bytes and not self._spilling:
            self._spilling = True
            if time.monotonic() - self._warned_at >= WARN_EVERY_S:
                self._warned_at = time.monotonic()
                log.warning("the sink does not keep up: received changes go to disk until it does")
        elif self._spilling and not queue:
            self._spilling = False
            log.info("all changes kept on disk were handed on")
        if (error := queue.disk_error) is not None and time.monotonic() - self._warned_at >= WARN_EVERY_S:
            self._warned_at = time.monotonic()
            log.warning("disk refuses received changes, the server keeps the rest", extra={"problem": error.strerror})
