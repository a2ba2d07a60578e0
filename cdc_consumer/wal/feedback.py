"""Sends status updates to the server: often enough to stay connected, never beyond what is durable in the sink.

The main thread sends them during its work. A second thread sends them while the main thread is busy with something that
cannot call back (a catalog query, a COPY that finds no row for a long time). So an expired short wal_sender_timeout
always means that the process is dead or stopped.
"""

from __future__ import annotations

import threading
import time
from types import TracebackType

from cdc_consumer.errors import SourceError, StopRequested
from cdc_consumer.health import Health
from cdc_consumer.metrics import Metrics
from cdc_consumer.wal.frontier import Frontier
from cdc_consumer.wal.lag import LagReporter
from cdc_consumer.wal.session import ReplicationSession

STATUS_EVERY_S = 1.0
"""Far below every useful wal_sender_timeout, and cheap: an update has 34 bytes."""

HUNG_AFTER_S = 900.0
"""A main thread that has not run for this long hangs: the updates stop, so that a standby gets the slot."""


class Feedback:
    """Sends status updates; while its context is open, also from a separate thread."""

    def __init__(
        self,
        session: ReplicationSession,
        frontier: Frontier,
        lag: LagReporter,
        *,
        stop: threading.Event,
        health: Health,
        metrics: Metrics,
    ) -> None:
        self._session = session
        self._frontier = frontier
        self._lag = lag
        self._stop = stop
        self._health = health
        self._metrics = metrics
        self._sent_at = 0.0
        self._order = threading.Lock()
        """An older position must not be sent after a newer one."""
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._send_while_busy, name="feedback", daemon=True)

    def __enter__(self) -> Feedback:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed.set()
        self._thread.join()

    def send(self) -> None:
        """Send a status update now: what was received, and what is durable."""
        with self._order:
            frontier = self._frontier
            received, published, durable = frontier.received, frontier.published, frontier.durable
            self._session.send_status(received, durable)
            self._sent_at = time.monotonic()
            self._lag.check(received, durable, self._sent_at)
        self._health.record_lag(behind=self._lag.behind)
        self._metrics.show_positions(self._lag.server_position, received, published, durable)

    def send_if_due(self) -> None:
        """Send a status update if the last one is old; called from everything that may take long."""
        self._health.beat()
        if time.monotonic() - self._sent_at >= STATUS_EVERY_S:
            self.send()

    def while_waiting(self) -> None:
        """Do the same inside a wait; raises StopRequested if the process must stop."""
        if self._stop.is_set():
            raise StopRequested
        self.send_if_due()

    def _send_while_busy(self) -> None:
        while not self._closed.wait(STATUS_EVERY_S / 2):
            late = time.monotonic() - self._sent_at >= 1.5 * STATUS_EVERY_S
            if late and self._health.quiet_s < HUNG_AFTER_S:
                try:
                    self.send()
                except SourceError:
                    return  # the main thread gets the same error and reports it
