"""Status updates to the server: often enough to stay connected, never beyond what is on the topics."""

from __future__ import annotations

import threading
import time

from cdc_consumer.errors import StopRequested
from cdc_consumer.metrics import Metrics
from cdc_consumer.wal.frontier import Frontier
from cdc_consumer.wal.session import ReplicationSession

STATUS_EVERY_S = 1.0
"""Far below any sensible wal_sender_timeout, and cheap: 34 bytes."""


class Feedback:
    """Speaks to the server for the stream."""

    def __init__(
        self, session: ReplicationSession, frontier: Frontier, metrics: Metrics, stop: threading.Event
    ) -> None:
        self._session = session
        self._frontier = frontier
        self._metrics = metrics
        self._stop = stop
        self._sent_at = 0.0

    def send(self) -> None:
        """Report now: everything received, and what is durable."""
        frontier = self._frontier
        self._session.send_status(frontier.received, frontier.published)
        self._metrics.positions(frontier.received, frontier.published, frontier.published)
        self._sent_at = time.monotonic()

    def if_due(self) -> None:
        """Report when the last report is old; called wherever something may take long."""
        self._metrics.beat()
        if time.monotonic() - self._sent_at >= STATUS_EVERY_S:
            self.send()

    def while_waiting(self) -> None:
        """The same from inside a wait, which ends when the process is asked to stop."""
        if self._stop.is_set():
            raise StopRequested
        self.if_due()
