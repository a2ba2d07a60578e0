"""Reads the requested state of the applier, writes its present state, and sends alerts."""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import Enum

from applier import metrics
from applier.catalog.database import Connection, Database
from shared_schema.alert_sender import AlertSender, notify
from shared_schema.alerts import DEFAULT_COOLDOWN_S, AlertEvent
from shared_schema.lsn import Lsn


class Service(Enum):
    """The requested state of the applier, by the words of `pgtrickle._drain_state()`."""

    RUN = "running"
    DRAIN = "asked"
    """Refresh everything up to now, whatever the schedules."""
    REST = "resting"
    """Drained: do nothing until `RUN`."""


class ServiceState:
    """Reads and writes `pgt_service`; every method is one transaction."""

    def __init__(self, database: Database, alerts: AlertSender | None = None) -> None:
        """`alerts` sends those of the whole program; without it this has a sender of its own."""
        self._database = database
        self._alerts = alerts or open_alert_sender()

    @property
    def _connection(self) -> Connection:
        return self._database.connection

    def requested_service(self) -> Service:
        """Return the requested state of the applier."""
        row = self._connection.execute("SELECT pgtrickle._drain_state()").fetchone()
        return Service(str(row[0]) if row else "running")

    def note(self, applier: str, state: str, frontier: Lsn) -> None:
        """Store the present state of the applier: RUNNING, DRAINED or STOPPED."""
        self._connection.execute(
            "INSERT INTO pgtrickle.pgt_service (applier, state, frontier) VALUES (%s, %s, %s::pg_lsn)"
            " ON CONFLICT (applier) DO UPDATE SET state = excluded.state, frontier = excluded.frontier, since = now()",
            (applier, state, str(frontier)),
        )

    def alert(self, event: AlertEvent, **about: int | float | str) -> bool:
        """Notify every listener of the alert channel; return False if that has to wait. Never fails."""
        return self._alerts.send(lambda: self._connection, event, about)


def _count(event: AlertEvent) -> None:
    metrics.ALERTS.labels(event.value).inc()


def open_alert_sender(cooldown_s: Callable[[], float] = lambda: DEFAULT_COOLDOWN_S) -> AlertSender:
    """Return a new sender that counts. One serves a whole program: a cooldown is that of its sender."""
    return AlertSender(time.monotonic, _count, cooldown_s)


def send_alert(connection: Connection, event: AlertEvent, **about: int | float | str) -> None:
    """Notify every listener when the caller's transaction is committed, and count it: for changes of state."""
    notify(connection, event, about)
    _count(event)


_SUSPENDED: set[int] = set()
"""Stream tables that any thread of this process suspended and whose suspension nobody has taken note of yet."""


def note_suspended(*pgt_ids: int) -> None:
    """Remember suspensions, after their commit: they may be over before anybody looks at the status."""
    _SUSPENDED.update(pgt_ids)


def take_suspended() -> frozenset[int]:
    """Return the stream tables that were suspended since the last call."""
    taken = frozenset(_SUSPENDED)
    _SUSPENDED.difference_update(taken)
    return taken
