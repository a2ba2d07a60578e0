"""A connection in, the advisory lock of the one applier per database and slot out; held as long as the connection.

It says whether an applier runs. Who may write is decided by the epoch (`ownership.py`): a process that hangs keeps its
lock, and one that lost its session may not know it.

Anybody may take an advisory lock. A session whose login is no member of the catalog's owner does not keep the applier
out: the slot gets another number, which nobody knows before the applier holds its lock.
"""

from __future__ import annotations

import logging
import secrets
import time
from typing import LiteralString

from applier.catalog.database import Connection
from applier.catalog.install import check_version
from applier.errors import AnotherApplier, Infrastructure

log = logging.getLogger(__name__)

APPLIER_LOCK = 0x7067_7470
"""The class of the advisory lock; the slot's number is the other half."""

LOST_SESSION_S = 60.0
"""How long the server may keep a session that lost its network; it checks every few seconds."""

_ADD: LiteralString = (
    "INSERT INTO pgtrickle.pgt_lock_numbers (slot, number) VALUES (%(slot)s, hashtext(%(slot)s)) ON CONFLICT DO NOTHING"
)
_READ: LiteralString = "SELECT number FROM pgtrickle.pgt_lock_numbers WHERE slot = %s FOR UPDATE"
_NUMBER: LiteralString = "SELECT number FROM pgtrickle.pgt_lock_numbers WHERE slot = %s"
_LOCK: LiteralString = "SELECT pg_try_advisory_lock(%s, %s)"
_HOLDERS: LiteralString = """
SELECT l.pid, pg_get_userbyid(a.usesysid)::text, pgtrickle._is_ours(l.pid)
FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid
WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 2 AND l.classid::int8 = %s
  AND l.objid::int8 = %s::int8 & 4294967295
  AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
"""


class ApplierLock:
    """The lock of one applier, held by the connection of its catalog."""

    def __init__(self, slot: str) -> None:
        self._slot = slot
        self._confirmed_at: float | None = None
        """When this applier last knew that it holds the lock."""

    def acquire(self, connection: Connection) -> None:
        """Lock out every other applier; raise AnotherApplier when one runs, InstallError before `install`."""
        check_version(connection)
        if self._try_lock(connection):
            self.confirm()
        elif self._confirmed_at is not None and time.monotonic() - self._confirmed_at < LOST_SESSION_S:
            raise Infrastructure("a session that this applier lost is still open on the server and holds its lock")
        else:
            raise AnotherApplier(
                f"another applier maintains the stream tables of slot {self._slot}", hint="stop it first"
            )

    def _try_lock(self, connection: Connection) -> bool:
        with connection.transaction():
            connection.execute(_ADD, {"slot": self._slot})
            number = int(str(connection.execute(_READ, (self._slot,)).fetchall()[0][0]))
            if connection.execute(_LOCK, (APPLIER_LOCK, number)).fetchone() == (True,):
                return True
            holders = connection.execute(_HOLDERS, (APPLIER_LOCK, number)).fetchall()
            if any(ours for _, _, ours in holders):
                return False
            for pid, role, _ in holders:
                log.warning("a session without rights held the applier's lock", extra={"pid": pid, "role": role})
            # The new number is invisible to others until the commit, and then the lock is held.
            number = secrets.randbits(32) - 2**31
            connection.execute(
                "UPDATE pgtrickle.pgt_lock_numbers SET number = %s WHERE slot = %s", (number, self._slot)
            )
            return connection.execute(_LOCK, (APPLIER_LOCK, number)).fetchone() == (True,)

    def holders(self, connection: Connection) -> list[int]:
        """Return the server processes of sessions with rights that hold the lock."""
        row = connection.execute(_NUMBER, (self._slot,)).fetchone()
        holders = connection.execute(_HOLDERS, (APPLIER_LOCK, row[0])).fetchall() if row is not None else []
        return [int(str(pid)) for pid, _, ours in holders if ours]

    def confirm(self) -> None:
        """Note that the connection was used, so this applier still holds the lock."""
        self._confirmed_at = time.monotonic()
