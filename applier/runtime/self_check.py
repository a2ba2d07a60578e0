"""The optional self-check: now and then one stream table after the other, a few rows of it against its query.

On a thread and a connection of its own, so no tick waits for it. First without any lock: query and stream table in
one snapshot, which agree whenever nothing is under way. Only where they do not, a few times in a row, the sources are
locked for a moment to tell a difference from a delay. What cannot be decided in little time is left undecided.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

import psycopg

from applier import metrics
from applier.catalog.catalog import Catalog
from applier.catalog.database import Database
from applier.errors import CheckFailed, Infrastructure
from applier.refresh import check
from shared_schema.table_schema import TableId

log = logging.getLogger(__name__)

ROWS = 1_000
GLANCES = 3
BETWEEN_GLANCES_S = 2.0
OFF_LOOK_S = 5.0
STATEMENT_LIMIT_S = 30
WRITERS_WAIT_S = 5


class SelfCheck:
    """Looks at one stream table per interval; an interval of 0 is off."""

    def __init__(self, database: Database, interval_s: Callable[[], float]) -> None:
        self._database = database
        self._interval_s = interval_s
        self._different: set[TableId] = set()

    def run(self, stopping: threading.Event) -> None:
        """Until told to stop; nothing that goes wrong here touches the stream tables."""
        while not stopping.wait(self._interval_s() or OFF_LOOK_S):
            if not self._interval_s():
                continue
            try:
                for table in self._turn():
                    self.look(table, stopping)
                    if stopping.wait(self._interval_s() or OFF_LOOK_S):
                        return
            except (Infrastructure, psycopg.Error) as error:
                log.warning("no self-check was possible", extra={"error": str(error).splitlines()[0]})

    def _turn(self) -> list[TableId]:
        return check.stream_table_names(self._database.connection)

    def look(self, table: TableId, stopping: threading.Event) -> str:
        """`equal`, `different` or `undecided`; counted, and a new difference is told to whoever listens."""
        outcome = self._outcome(table, stopping)
        metrics.SELF_CHECKS.labels(str(table), outcome).inc()
        metrics.SELF_CHECK_DIFFERENT.labels(str(table)).set(outcome == "different")
        if outcome == "different" and table not in self._different:
            log.error("a stream table differs from its query", extra={"table": str(table)})
            Catalog(self._database).service.alert("different", stream_table=str(table))
        (self._different.add if outcome == "different" else self._different.discard)(table)
        return outcome

    def _outcome(self, table: TableId, stopping: threading.Event) -> str:
        connection = self._database.connection
        connection.execute(f"SET statement_timeout = '{STATEMENT_LIMIT_S}s'".encode())
        try:
            for _ in range(GLANCES):
                if check.check_once(connection, table, sample=ROWS).equal:
                    return "equal"
                if stopping.wait(BETWEEN_GLANCES_S):
                    return "undecided"
            result = check.check_stream_table(connection, table, sample=ROWS, wait_s=WRITERS_WAIT_S)
        except (CheckFailed, psycopg.errors.QueryCanceled, psycopg.errors.ObjectNotInPrerequisiteState):
            return "undecided"
        if result.suspended:
            return "undecided"
        return "equal" if result.equal else "different"
