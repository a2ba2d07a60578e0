"""The optional self-check: stream tables in; per interval a comparison of some rows with the query, as a metric, out.

It has a thread and a connection of its own, so no tick waits for it. It first compares without a lock: query and stream
table in one snapshot, which agree when no change is pending. Only when they differ several times in a row it locks the
sources for a moment, to distinguish a difference from a delay. What takes too long is reported as undecided.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

import psycopg

from applier import metrics
from applier.catalog.database import Database
from applier.catalog.service import ServiceState
from applier.errors import CheckFailed
from applier.refresh import check
from applier.unexpected import to_trickle_error
from shared_schema.alerts import AlertEvent
from shared_schema.table_schema import TableId

log = logging.getLogger(__name__)

ROWS = 1_000
COMPARE_ATTEMPTS = 3
BETWEEN_ATTEMPTS_S = 2.0
OFF_RECHECK_S = 5.0
STATEMENT_LIMIT_S = 30
WRITERS_WAIT_S = 5


class SelfCheck:
    """Checks one stream table per interval; an interval of 0 switches it off."""

    def __init__(
        self, database: Database, interval_s: Callable[[], float], service: ServiceState | None = None
    ) -> None:
        """`service` sends the alerts."""
        self._database = database
        self._service = service or ServiceState(database)
        self._interval_s = interval_s
        self._different: set[TableId] = set()

    def run(self, stopping: threading.Event) -> None:
        """Check until `stopping` is set; no failure here affects the stream tables."""
        while not stopping.wait(self._interval_s() or OFF_RECHECK_S):
            if not self._interval_s():
                continue
            try:
                for table in check.stream_table_names(self._database.connection):
                    self.check(table, stopping)
                    if stopping.wait(self._interval_s() or OFF_RECHECK_S):
                        return
            except Exception as error:
                log.warning("self-check failed", extra={"error": to_trickle_error("the self-check", error).problem})

    def check(self, table: TableId, stopping: threading.Event) -> str:
        """Return `equal`, `different`, `skipped` or `undecided` and count it; a new difference is logged and sent as an
        alert. Changes that somebody skipped are no difference that nobody knows of."""
        outcome = self._compare(table, stopping)
        metrics.SELF_CHECKS.labels(str(table), outcome).inc()
        metrics.SELF_CHECK_DIFFERENT.labels(str(table)).set(outcome == "different")
        if outcome == "different" and table not in self._different:
            log.error("a stream table differs from its query", extra={"table": str(table)})
            self._service.alert(AlertEvent.DIFFERENT, stream_table=str(table))
        (self._different.add if outcome == "different" else self._different.discard)(table)
        return outcome

    def _compare(self, table: TableId, stopping: threading.Event) -> str:
        connection = self._database.connection
        connection.execute(f"SET statement_timeout = '{STATEMENT_LIMIT_S}s'".encode())
        try:
            for _ in range(COMPARE_ATTEMPTS):
                found = check.check_once(connection, table, sample=ROWS)
                if found.equal:
                    return "equal"
                if found.skipped:
                    log.warning("not compared", extra={"table": str(table), "reason": found.skipped})
                    return "skipped"
                if stopping.wait(BETWEEN_ATTEMPTS_S):
                    return "undecided"
            result = check.check_stream_table(connection, table, sample=ROWS, wait_s=WRITERS_WAIT_S)
        except (CheckFailed, psycopg.errors.QueryCanceled):
            return "undecided"
        if result.suspended:
            return "undecided"
        return "equal" if result.equal else "different"
