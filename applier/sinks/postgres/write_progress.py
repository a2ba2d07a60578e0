"""Counts of written rows in; the progress of a long write in the log and, in another transaction, the catalog, out."""

from __future__ import annotations

import logging
import time
from types import TracebackType
from typing import Self

from applier.catalog.database import Connection, connect
from applier.plan.stream_table import StreamTable

log = logging.getLogger(__name__)

REPORT_EVERY_S = 1.0


class WriteProgress:
    """Reports at most once a second; a shorter write is not reported."""

    def __init__(self, url: str, table: StreamTable) -> None:
        self._url = url
        self._table = table
        self._started = self._reported_at = time.monotonic()
        self._connection: Connection | None = None

    def __enter__(self) -> Self:
        return self

    def report(self, done: int, total: int) -> None:
        """Report that `done` of `total` rows are written; the total may be an estimate."""
        now = time.monotonic()
        if now - self._reported_at < REPORT_EVERY_S:
            return
        self._reported_at = now
        rate = done / (now - self._started)
        eta = (total - done) / rate if rate else 0.0
        extra = {"table": str(self._table), "rows": done, "of": total, "per_s": round(rate), "eta_s": round(eta, 1)}
        log.info("writing", extra=extra)
        if self._connection is None:
            self._connection = connect(self._url)
        self._connection.execute(
            "INSERT INTO pgtrickle.pgt_writes VALUES (%(id)s, now() - make_interval(secs => %(s)s), now(),"
            " %(done)s, %(total)s) ON CONFLICT (pgt_id) DO UPDATE SET started_at = excluded.started_at,"
            " updated_at = excluded.updated_at, rows_done = excluded.rows_done, rows_total = excluded.rows_total",
            {"id": self._table.id, "s": now - self._started, "done": done, "total": total},
        )

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._connection is not None:
            with self._connection as connection:
                connection.execute("DELETE FROM pgtrickle.pgt_writes WHERE pgt_id = %s", (self._table.id,))
