"""An event and its fields in; at most one `NOTIFY pg_trickle_alert` with JSON, and a count, out.

Both programs send their alerts through an `AlertSender`, and nothing else does. The events are a closed list. A change
of state is sent each time, because whoever sends it sees the change once. Any other event is sent at most once per
cooldown for each stream table (or source, slot), however often it is seen.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol, assert_never

ALERT_CHANNEL = "pg_trickle_alert"

PAYLOAD_BYTES = 7_900
"""The server allows 8 000 bytes."""

TEXT_CHARACTERS = 2_000
"""Longer texts are cut; all of them further when the whole is still too long."""

DEFAULT_COOLDOWN_S = 300.0

Fields = Mapping[str, int | float | str]


class AlertEvent(Enum):
    """Every event of the alert channel; `docs/operations.md` says when it is sent and what to do."""

    STALE_DATA = "stale_data"
    AUTO_SUSPENDED = "auto_suspended"
    RESUMED = "resumed"
    REINITIALIZE_NEEDED = "reinitialize_needed"
    REFRESH_FAILED = "refresh_failed"
    ALTERATION_REFUSED = "alteration_refused"
    APPEND_ONLY_REVERTED = "append_only_reverted"
    DIFFERENT = "different"
    DISK_FULL = "disk_full"
    BUFFER_GROWTH_WARNING = "buffer_growth_warning"
    SLOT_LAG_WARNING = "slot_lag_warning"
    CLEANUP_FAILURE = "cleanup_failure"
    SCHEDULER_FALLING_BEHIND = "scheduler_falling_behind"
    PREDICTED_SLA_BREACH = "predicted_sla_breach"
    SLOW_REFRESH = "slow_refresh"
    FROZEN_TIER_SKIP = "frozen_tier_skip"
    FUSE_BLOWN = "fuse_blown"
    FUSE_BLOWN_REMINDER = "fuse_blown_reminder"
    WATERMARK_STUCK = "watermark_stuck"
    WATERMARK_RESUMED = "watermark_resumed"
    STREAM_SILENT = "stream_silent"
    STREAM_BACK = "stream_back"
    APPLIER_SILENT = "applier_silent"
    APPLIER_BACK = "applier_back"

    @property
    def is_change_of_state(self) -> bool:
        """Whether it tells of a change that its sender sees once: then no cooldown may hide the next one."""
        match self:
            case (
                AlertEvent.AUTO_SUSPENDED
                | AlertEvent.RESUMED
                | AlertEvent.REINITIALIZE_NEEDED
                | AlertEvent.ALTERATION_REFUSED
                | AlertEvent.APPEND_ONLY_REVERTED
                | AlertEvent.DIFFERENT
                | AlertEvent.FROZEN_TIER_SKIP
                | AlertEvent.FUSE_BLOWN
                | AlertEvent.WATERMARK_STUCK
                | AlertEvent.WATERMARK_RESUMED
                | AlertEvent.STREAM_SILENT
                | AlertEvent.STREAM_BACK
                | AlertEvent.APPLIER_SILENT
                | AlertEvent.APPLIER_BACK
            ):
                return True
            case (
                AlertEvent.STALE_DATA
                | AlertEvent.REFRESH_FAILED
                | AlertEvent.DISK_FULL
                | AlertEvent.BUFFER_GROWTH_WARNING
                | AlertEvent.SLOT_LAG_WARNING
                | AlertEvent.CLEANUP_FAILURE
                | AlertEvent.SCHEDULER_FALLING_BEHIND
                | AlertEvent.PREDICTED_SLA_BREACH
                | AlertEvent.SLOW_REFRESH
                | AlertEvent.FUSE_BLOWN_REMINDER
            ):
                return False
            case _:
                assert_never(self)


@dataclass(frozen=True)
class Alert:
    """One alert: its event and what it says."""

    event: AlertEvent
    fields: Fields


Subject = tuple[int | float | str, ...]
"""What an alert is about, as far as the cooldown goes."""


def subject_of(fields: Fields) -> Subject:
    """Return what distinguishes an alert from others of its event; one that became worse is another one."""
    return tuple(fields.get(name, "") for name in ("pgt_id", "stream_table", "source", "slot", "severity"))


@dataclass
class AlertLimit:
    """When each alert was sent last. Times are of any clock that does not go back."""

    _sent_at: dict[tuple[AlertEvent, Subject], float] = field(default_factory=dict)

    def claim(self, event: AlertEvent, subject: Subject, now_s: float, cooldown_s: float) -> bool:
        """Whether the alert may be sent now; if so, it counts as sent."""
        if event.is_change_of_state:
            return True
        last = self._sent_at.get((event, subject))
        if last is not None and now_s - last < cooldown_s:
            return False
        # What was sent longer ago decides nothing any more: dropped stream tables leave nothing behind.
        self._sent_at = {key: at for key, at in self._sent_at.items() if now_s - at < cooldown_s}
        self._sent_at[event, subject] = now_s
        return True

    def release(self, event: AlertEvent, subject: Subject) -> None:
        """Undo a claim: the alert could not be sent."""
        self._sent_at.pop((event, subject), None)


def encode_alert(event: AlertEvent, fields: Fields) -> str:
    """Return the payload, in ASCII: the server's encoding may be any. Texts are cut as far as the server requires."""
    most = TEXT_CHARACTERS
    while True:
        cut = {name: value[:most] if isinstance(value, str) else value for name, value in fields.items()}
        payload = json.dumps({"event": event.value} | cut)
        if len(payload) <= PAYLOAD_BYTES or most == 0:
            return payload
        most //= 2


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


@dataclass(frozen=True)
class AlertSender:
    """Sends the alerts of one program; every thread may use it."""

    clock: Callable[[], float]
    count: Callable[[AlertEvent], None]
    cooldown_s: Callable[[], float] = lambda: DEFAULT_COOLDOWN_S
    _limit: AlertLimit = field(default_factory=AlertLimit)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def send(self, connection: Notifies, event: AlertEvent, fields: Fields) -> bool:
        """Notify every listener, in the caller's transaction if it has one; return False if the cooldown forbids it.

        An alert of a transaction begins no cooldown: a rollback would silence it.
        """
        subject = subject_of(fields)
        with self._lock:
            if not self._limit.claim(event, subject, self.clock(), self.cooldown_s()):
                return False
        is_final = connection.info.transaction_status == IDLE
        try:
            connection.execute(b"SELECT pg_notify(%s, %s)", (ALERT_CHANNEL, encode_alert(event, fields)))
        except BaseException:
            is_final = False
            raise
        finally:
            if not is_final:
                with self._lock:
                    self._limit.release(event, subject)
        self.count(event)
        return True
