"""Status updates to the server: often enough to stay connected, never beyond what is on the topics.

The stream's own thread reports as it goes. A second thread reports for it while it is held up by something that cannot
call back (a catalog question, a COPY that finds no row for long), so that a short wal_sender_timeout means a dead or
stopped process and nothing else.
"""

from __future__ import annotations

import threading
import time
from types import TracebackType

from cdc_consumer.errors import SourceError, StopRequested
from cdc_consumer.metrics import Metrics
from cdc_consumer.wal.frontier import Frontier
from cdc_consumer.wal.lag import LagReporter
from cdc_consumer.wal.session import ReplicationSession

STATUS_EVERY_S = 1.0
"""Far below any sensible wal_sender_timeout, and cheap: 34 bytes."""

HUNG_AFTER_S = 900.0
"""A stream that has not moved for this long is not coming back: no more reports, the slot goes to a standby."""


class Feedback:
    """Speaks to the server for the stream; while its context is open, also from a thread of its own."""

    def __init__(
        self, session: ReplicationSession, frontier: Frontier, metrics: Metrics, stop: threading.Event, lag: LagReporter
    ) -> None:
        self._session = session
        self._frontier = frontier
        self._metrics = metrics
        self._stop = stop
        self._lag = lag
        self._sent_at = 0.0
        self._order = threading.Lock()
        """An older position must not be sent after a newer one."""
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._speak_for_a_busy_stream, name="feedback", daemon=True)

    def __enter__(self) -> Feedback:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed.set()
        self._thread.join()

    def send(self) -> None:
        """Report now: everything received, and what is durable."""
        with self._order:
            frontier = self._frontier
            received, published, durable = frontier.received, frontier.published, frontier.durable
            self._session.send_status(received, durable)
            self._sent_at = time.monotonic()
            self._lag.look(max(self._metrics.server_position, received), durable, self._sent_at)
        self._metrics.positions(received, published, durable, behind=self._lag.behind)

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

    def _speak_for_a_busy_stream(self) -> None:
        while not self._closed.wait(STATUS_EVERY_S / 2):
            late = time.monotonic() - self._sent_at >= 1.5 * STATUS_EVERY_S
            if late and self._metrics.quiet_s < HUNG_AFTER_S:
                try:
                    self.send()
                except SourceError:
                    return  # the stream's own thread meets the same error and says so
