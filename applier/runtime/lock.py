"""A connection in, the advisory lock of the one applier per database and slot out; held as long as the connection."""

from __future__ import annotations

import time

from applier.catalog.database import Connection
from applier.catalog.install import check_version
from applier.errors import AnotherApplier, Infrastructure

APPLIER_LOCK = 0x7067_7470
"""The class of the advisory lock; the slot's name is the other half."""

LOST_SESSION_S = 60.0
"""How long the server may keep a session that lost its network; it checks every few seconds."""


class ApplierLock:
    """The lock of one applier. It protects the stream tables, so the connection that writes their rows holds it."""

    def __init__(self, slot: str) -> None:
        self._slot = slot
        self._confirmed_at: float | None = None
        """When this applier last knew that it holds the lock."""

    def acquire(self, connection: Connection) -> None:
        """Lock out every other applier; raise AnotherApplier when one runs, InstallError before `install`."""
        check_version(connection)
        locked = connection.execute(
            "SELECT pg_try_advisory_lock(%s, hashtext(%s))", (APPLIER_LOCK, self._slot)
        ).fetchone()
        if locked == (True,):
            self.confirm()
        elif self._confirmed_at is not None and time.monotonic() - self._confirmed_at < LOST_SESSION_S:
            raise Infrastructure("a session that this applier lost is still open on the server and holds its lock")
        else:
            raise AnotherApplier(
                f"another applier maintains the stream tables of slot {self._slot}", hint="stop it first"
            )

    def confirm(self) -> None:
        """Note that the connection was used, so this applier still holds the lock."""
        self._confirmed_at = time.monotonic()
