"""The applier as a whole: what is asked of it, what it does, and alerts to whoever listens."""

from __future__ import annotations

import json
from enum import Enum

from applier.catalog.database import Connection, Database
from shared_schema.lsn import Lsn

ALERT_CHANNEL = "pg_trickle_alert"


class Service(Enum):
    """What is asked of the applier as a whole."""

    RUN = "running"
    DRAIN = "asked"
    """Bring everything up to now, without regard to schedules."""
    REST = "resting"


class ServiceState:
    """Reads and writes `pgt_service`; every method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @property
    def _connection(self) -> Connection:
        return self._database.connection

    def requested(self) -> Service:
        """What is asked of the applier as a whole."""
        row = self._connection.execute("SELECT pgtrickle._drain_state()").fetchone()
        return Service(str(row[0]) if row else "running")

    def note(self, applier: str, state: str, frontier: Lsn) -> None:
        """Say what the applier as a whole does: RUNNING, DRAINED or STOPPED."""
        self._connection.execute(
            "INSERT INTO pgtrickle.pgt_service (applier, state, frontier) VALUES (%s, %s, %s::pg_lsn)"
            " ON CONFLICT (applier) DO UPDATE SET state = excluded.state, frontier = excluded.frontier, since = now()",
            (applier, state, str(frontier)),
        )

    def alert(self, event: str, **about: int | str) -> None:
        """Notify every listener of the alert channel."""
        send_alert(self._connection, event, **about)


def send_alert(connection: Connection, event: str, **about: int | str) -> None:
    """Notify every listener, in the caller's transaction; long texts are cut: the server takes at most 8 000 bytes."""
    content = {name: value[:2000] if isinstance(value, str) else value for name, value in about.items()}
    connection.execute("SELECT pg_notify(%s, %s)", (ALERT_CHANNEL, json.dumps({"event": event} | content)))
