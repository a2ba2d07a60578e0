"""One applier per database and slot: an advisory lock, held as long as the connection of the catalog."""

from __future__ import annotations

import time

from applier.catalog.database import Connection
from applier.catalog.install import check_version
from applier.errors import AnotherApplier, Infrastructure

APPLIER_LOCK = 0x7067_7470
"""The class of the advisory lock; the slot's name is the other half."""

LOST_SESSION_S = 60.0
"""How long a session that the network cut off may live on at the server, which looks after it every few seconds."""


class ApplierLock:
    """The lock of one applier. It guards the stream tables, so it belongs to the connection that writes their rows."""

    def __init__(self, slot: str) -> None:
        self._slot = slot
        self._confirmed_at: float | None = None
        """When the lock was last known to be ours."""

    def acquire(self, connection: Connection) -> None:
        """Lock out every other applier; AnotherApplier when one is there, InstallError before `install`."""
        check_version(connection)
        locked = connection.execute(
            "SELECT pg_try_advisory_lock(%s, hashtext(%s))", (APPLIER_LOCK, self._slot)
        ).fetchone()
        if locked == (True,):
            self.confirm()
        elif self._confirmed_at is not None and time.monotonic() - self._confirmed_at < LOST_SESSION_S:
            raise Infrastructure("the session this applier lost still lives on the server and holds its lock")
        else:
            raise AnotherApplier(
                f"another applier maintains the stream tables of slot {self._slot}", hint="stop it first"
            )

    def confirm(self) -> None:
        """The connection was used, so the lock is still ours."""
        self._confirmed_at = time.monotonic()
