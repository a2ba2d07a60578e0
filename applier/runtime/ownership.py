"""Says who maintains the stream tables of a slot: one owner at a time, each with an epoch of its own.

The owner holds an advisory lock, which tells others that it runs, and an epoch, which every session of it names in what
it writes. A new owner takes the next epoch; from then on the server refuses what the old one still sends, whenever it
arrives. So it does not matter whether the old one has ended, hangs or is cut off from the network.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from importlib.metadata import version
from typing import LiteralString
from uuid import uuid4

import psycopg

from applier.catalog.database import Connection, Database, connect, taken_over
from applier.catalog.epochs import SESSION_LOCK, drop_epoch, epoch_of, has_ended, hold_epoch, name_epoch
from applier.errors import AnotherApplier, Infrastructure
from applier.runtime.lock import ApplierLock

log = logging.getLogger(__name__)

BEAT_S = 1.0

STANDBY_AGE_S = 3
"""A standby that has not beaten for so long is not counted."""

TAKE_WITHIN_S = 10.0

_TAKE: LiteralString = """
INSERT INTO pgtrickle.pgt_ownership AS o (slot, epoch, holder, reason)
VALUES (%(slot)s, nextval('pgtrickle.pgt_epochs'), %(holder)s, %(reason)s)
ON CONFLICT (slot) DO UPDATE SET epoch = excluded.epoch, holder = excluded.holder, taken_at = clock_timestamp(),
    reason = excluded.reason
RETURNING epoch
"""

_END_SESSIONS: LiteralString = """
SELECT pg_terminate_backend(l.pid) FROM pg_locks l JOIN pgtrickle.pgt_ownership o ON o.slot = %s
WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 2 AND l.classid::int8 = %s
  AND l.objid::int8 = o.epoch %% 2147483648
  AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
  AND l.pid <> pg_backend_pid() AND pgtrickle._is_ours(l.pid)
"""
"""Whatever locks they hold: nobody else could end the transactions of a process that hangs."""

_FORGET_OTHERS: LiteralString = """
DELETE FROM pgtrickle.pgt_applier_instances i
WHERE i.slot = %(slot)s AND i.holder <> %(holder)s
  AND (i.role = 'owner' OR i.beat_at < clock_timestamp() - interval '1 day')
"""

_BEAT: LiteralString = """
INSERT INTO pgtrickle.pgt_applier_instances AS i (slot, holder, role, version)
SELECT %(slot)s, %(holder)s, %(role)s, %(version)s
WHERE %(epoch)s::bigint IS NULL OR EXISTS (SELECT FROM pgtrickle.pgt_ownership o WHERE o.epoch = %(epoch)s)
ON CONFLICT (slot, holder) DO UPDATE SET role = excluded.role, beat_at = clock_timestamp()
RETURNING true
"""

_HAS_STANDBY: LiteralString = """
SELECT EXISTS (SELECT FROM pgtrickle.pgt_applier_instances i WHERE i.slot = %s AND i.role = 'standby'
               AND i.beat_at > clock_timestamp() - make_interval(secs => %s))
"""

_LEAVE: LiteralString = "DELETE FROM pgtrickle.pgt_applier_instances i WHERE i.slot = %s AND i.holder = %s"


def end_sessions(connection: Connection, query: LiteralString, values: tuple[object, ...] = ()) -> None:
    """Run a query that ends sessions of the applier. That is a right of the login, not of a role that it acts as."""
    try:
        with connection.transaction():
            connection.execute("SET LOCAL ROLE NONE")
            connection.execute(query, values)
    except psycopg.errors.InsufficientPrivilege as error:
        log.warning("sessions of the applier before this one cannot be ended", extra={"error": str(error)})


class Ownership:
    """The ownership of one process; `reason` says why it takes the epoch, for people."""

    def __init__(self, url: str, slot: str) -> None:
        self._url = url
        self.slot = slot
        self.lock = ApplierLock(slot)
        self.reason = "started while no other one ran"
        self._holder = uuid4()
        self._epoch: int | None = None
        self._is_released = False

    @property
    def epoch(self) -> int | None:
        """The epoch of this process; None before it owns anything, and after it gave it up."""
        return self._epoch

    def acquire(self, connection: Connection) -> None:
        """Prepare each connection of the catalog: it holds the lock. The first one also takes an epoch.

        Raises AnotherApplier when another applier runs, or has taken over.
        """
        if self._is_released:
            raise Infrastructure("the applier is stopping, and another one takes over")
        if self._epoch is not None:
            self._confirm(connection)
        self.lock.acquire(connection)
        if self._epoch is None:
            self._epoch = self._take(connection)
            hold_epoch(self._url, self._epoch)
            log.info("ownership taken", extra={"slot": self.slot, "epoch": self._epoch, "reason": self.reason})
            name_epoch(connection, self._epoch)

    def _take(self, connection: Connection) -> int:
        """Store the next epoch. The sessions of the last one are ended first: nobody waits for what they hold."""
        values = {"slot": self.slot, "holder": self._holder, "reason": self.reason}
        deadline = time.monotonic() + TAKE_WITHIN_S
        while True:
            end_sessions(connection, _END_SESSIONS, (self.slot, SESSION_LOCK))
            try:
                with connection.transaction():
                    connection.execute("SET LOCAL lock_timeout = '500ms'")
                    row = connection.execute(_TAKE, values).fetchone()
                    connection.execute(_FORGET_OTHERS, values)
                    connection.execute(_BEAT, self._beat_values("owner", None))
                if row is None:
                    raise AssertionError("an upsert returns its row")
                return int(str(row[0]))
            except psycopg.errors.LockNotAvailable as error:
                if time.monotonic() >= deadline:
                    raise Infrastructure("writes of the applier before this one do not end") from error

    def _beat_values(self, role: str, epoch: int | None) -> dict[str, object]:
        return {
            "slot": self.slot,
            "holder": self._holder,
            "role": role,
            "version": version("pg-trickle-spark"),
            "epoch": epoch,
        }

    def confirm(self) -> None:
        """Make sure, by a session of its own, that the epoch of this process has not ended; raise AnotherApplier if it
        has. It may end at any moment after that."""
        if epoch_of(self._url) is None:
            return
        with connect(self._url) as connection:
            self._confirm(connection)

    def _confirm(self, connection: Connection) -> None:
        try:
            connection.execute("SELECT pgtrickle._confirm_epoch()")
        except psycopg.OperationalError as error:
            if has_ended(error):
                raise self.lost() from error
            raise Infrastructure(f"the epoch cannot be confirmed: {str(error).splitlines()[0]}") from error

    def lost(self) -> AnotherApplier:
        """Return the error with which the process ends once its epoch has ended."""
        return taken_over()

    def renew(self, database: Database, stopping: threading.Event, on_lost: Callable[[BaseException], None]) -> None:
        """Beat until `stopping` is set; `database` is a connection of its own. Call `on_lost` once the epoch has
        ended."""
        while not stopping.wait(BEAT_S):
            try:
                if self._epoch is not None and not self.beat(database, "owner"):
                    on_lost(self.lost())
                    return
            except AnotherApplier as error:
                on_lost(error)
                return
            except (Infrastructure, psycopg.Error) as error:
                log.debug("a beat of the owner was not written", extra={"error": str(error).splitlines()[0]})

    def beat(self, database: Database, role: str) -> bool:
        """Write that this process is alive; return False when its epoch has ended."""
        values = self._beat_values(role, self._epoch if role == "owner" else None)
        return database.connection.execute(_BEAT, values).fetchone() is not None

    def has_standby(self, database: Database) -> bool:
        """Whether another process waits to take over."""
        row = database.connection.execute(_HAS_STANDBY, (self.slot, STANDBY_AGE_S)).fetchone()
        return row == (True,)

    def leave(self, database: Database) -> None:
        """Forget that this process was alive: at a clean stop."""
        database.connection.execute(_LEAVE, (self.slot, self._holder))

    def release(self, database: Database) -> None:
        """Close the connection that holds the lock, for good: the standby takes the next epoch."""
        self._is_released = True
        database.close()

    def give_up(self) -> None:
        """Name no epoch any more."""
        self._epoch = None
        drop_epoch(self._url)
