"""Takes the positions of server and stream, decides whether the stream falls behind, and logs that once.

Bytes alone would cause a warning on every busy server, whose log grows by megabytes during one Kafka transaction. So an
earlier position of the server is stored as a mark, and the stream is behind if the mark is still not published after
some time.
"""

from __future__ import annotations

import logging

from shared_schema.lsn import Lsn

log = logging.getLogger(__name__)


class LagReporter:
    """Reports lag: more than `limit_bytes` are unpublished, and a mark was not reached within `patience_s`."""

    def __init__(self, limit_bytes: int, patience_s: float) -> None:
        self._limit = limit_bytes
        self._patience_s = patience_s
        self._mark: tuple[float, Lsn] | None = None
        self._warned_at_bytes = 0
        self.behind = False
        self.server_position = Lsn(0)
        """The end of the server's log when it was last read, or what was received since."""

    def record_server_position(self, position: Lsn) -> None:
        """Record the end of the server's log."""
        self.server_position = position

    def check(self, received: Lsn, published: Lsn, now: float) -> None:
        """Check the lag between the server and what is published.

        Logs when the stream falls behind, when the lag has doubled, and when the stream has caught up.
        """
        position = self.server_position = max(self.server_position, received)
        lag = max(0, position.value - published.value)
        if self.behind and lag <= self._limit:
            self.behind = False
            log.info("caught up", extra={"lag_bytes": lag})
        if self._mark is None or published >= self._mark[1]:
            self._mark = now, position
            return
        late_s = now - self._mark[0]
        worse = not self.behind or lag >= 2 * self._warned_at_bytes
        if lag > self._limit and late_s >= self._patience_s and worse:
            self.behind, self._warned_at_bytes = True, lag
            log.warning("falling behind the server", extra={"lag_bytes": lag, "lag_s": round(late_s, 1)})
