"""An event and its fields in; one `NOTIFY pg_trickle_alert` with JSON, and a count, out: at once, or when that works.

Both programs send their alerts through an `AlertSender`, or in a transaction of theirs; nothing else does.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import psycopg

from shared_schema.alerts import (
    ALERT_CHANNEL,
    DEFAULT_COOLDOWN_S,
    AlertEvent,
    AlertFields,
    AlertQueue,
    Waiting,
    encode_alert,
)
from shared_schema.errors import TrickleError

log = logging.getLogger(__name__)

IDLE = 0
"""No transaction is open, by libpq's numbers."""


class HasTransaction(Protocol):
    """The state of a connection."""

    @property
    def transaction_status(self) -> int:
        """IDLE or another number of libpq."""


class Notifies(Protocol):
    """What is needed of a connection."""

    @property
    def info(self) -> HasTransaction:
        """Its state."""

    def execute(self, query: bytes, params: Sequence[object], /) -> object:
        """Execute a statement."""


def notify(connection: Notifies, event: AlertEvent, fields: AlertFields) -> None:
    """Notify every listener; in a transaction, when it is committed."""
    connection.execute(b"SELECT pg_notify(%s, %s)", (ALERT_CHANNEL, encode_alert(event, fields)))


@dataclass
class AlertSender:
    """Sends the alerts of one program; every thread may use it, with a connection of its own."""

    clock: Callable[[], float]
    count: Callable[[AlertEvent], None]
    cooldown_s: Callable[[], float] = lambda: DEFAULT_COOLDOWN_S
    _queue: AlertQueue = field(default_factory=AlertQueue)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _sending: threading.Lock = field(default_factory=threading.Lock)
    """Held by the thread that sends: the order stays, and nobody waits for a server that hangs."""
    _is_waiting: bool = False
    """Whether the last attempt failed."""

    def send(self, connect: Callable[[], Notifies], event: AlertEvent, fields: AlertFields) -> bool:
        """Notify every listener; return False if that has to wait, for the end of a cooldown or for `flush`."""
        with self._lock:
            is_due = self._queue.add(Waiting(event, fields, self.clock()), self.cooldown_s())
        return self.flush(connect) and is_due

    def flush(self, connect: Callable[[], Notifies]) -> bool:
        """Send what waits, as far as cooldowns allow; return whether all of that was sent. Called every second."""
        if not self._sending.acquire(blocking=False):
            return False
        try:
            while (taken := self._take()) is not None:
                if not self._try(connect, taken):
                    return False
            return True
        finally:
            self._sending.release()

    def _take(self) -> Waiting | None:
        with self._lock:
            return self._queue.take(self.clock(), self.cooldown_s())

    def _try(self, connect: Callable[[], Notifies], taken: Waiting) -> bool:
        is_sent = False
        try:
            connection = connect()
            # Not in a transaction of the caller: a rollback would lose it.
            if connection.info.transaction_status == IDLE:
                notify(connection, taken.event, taken.said(self.clock()))
                is_sent, self._is_waiting = True, False
                self.count(taken.event)
        except (TrickleError, psycopg.Error) as error:
            level = logging.DEBUG if self._is_waiting else logging.WARNING
            log.log(level, "alerts wait", extra={"alert": taken.event.value, "error": str(error).splitlines()[0]})
            self._is_waiting = True
        finally:
            if not is_sent:
                with self._lock:
                    self._queue.put_back(taken)
        return is_sent
