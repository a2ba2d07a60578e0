"""Whether the stream falls behind the server, said once and not every second. Pure but for the log.

Bytes alone would alarm on every busy server, whose log grows by megabytes while a Kafka transaction is on its way. So a
position the server had some time ago is kept as a mark, and we are behind when it is still not published.
"""

from __future__ import annotations

import logging

from shared_schema.lsn import Lsn

log = logging.getLogger(__name__)


class LagReporter:
    """`limit_bytes` may always be unpublished; more is late once a mark is not reached within `patience_s`."""

    def __init__(self, limit_bytes: int, patience_s: float) -> None:
        self._limit = limit_bytes
        self._patience_s = patience_s
        self._mark: tuple[float, Lsn] | None = None
        self._warned_at_bytes = 0
        self.behind = False

    def look(self, position: Lsn, published: Lsn, now: float) -> None:
        """The server's log ends at `position`; logs when we fall behind, when it doubles, and when we caught up."""
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
