"""Reads the requested state of the applier, writes its present state, and sends alerts."""

from __future__ import annotations

import json
from enum import Enum

from applier.catalog.database import Connection, Database
from shared_schema.lsn import Lsn

ALERT_CHANNEL = "pg_trickle_alert"


class Service(Enum):
    """The requested state of the applier, by the words of `pgtrickle._drain_state()`."""

    RUN = "running"
    DRAIN = "asked"
    """Refresh everything up to now, whatever the schedules."""
    REST = "resting"
    """Drained: do nothing until `RUN`."""


class ServiceState:
    """Reads and writes `pgt_service`; every method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

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

    def alert(self, event: str, **about: int | str) -> None:
        """Notify every listener of the alert channel."""
        send_alert(self._connection, event, **about)


def send_alert(connection: Connection, event: str, **about: int | str) -> None:
    """Notify every listener, in the caller's transaction; cut long texts, because the server allows 8 000 bytes."""
    content = {name: value[:2000] if isinstance(value, str) else value for name, value in about.items()}
    connection.execute("SELECT pg_notify(%s, %s)", (ALERT_CHANNEL, json.dumps({"event": event} | content)))
