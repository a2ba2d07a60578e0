"""The events of the alert channel, a closed list, in; what is to be sent of them, and when, out. Pure.

None is lost: what cannot be sent waits, and what a cooldown holds back is sent, counted, at its end.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import assert_never

ALERT_CHANNEL = "pg_trickle_alert"

PAYLOAD_BYTES = 7_900
"""The server allows 8 000 bytes."""

TEXT_CHARACTERS = 2_000
"""Longer texts are cut; all of them further when the whole is still too long."""

DEFAULT_COOLDOWN_S = 300.0

START_GRACE_S = 30.0
"""What was wrong at the first look after a start is reported if it lasts for so long: it may be the start itself."""

AlertFields = Mapping[str, int | float | str]


class AlertKind(Enum):
    """What a cooldown means for an event."""

    CHANGE = auto()
    """A change of state, which its sender sees once: no cooldown may hide the next one."""
    CONDITION = auto()
    """It lasts, and its sender sees it again and again: sent once per cooldown."""
    OCCURRENCE = auto()
    """It happens, and its sender sees each one once: those within a cooldown are one alert at its end."""


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
    SPILL_THRESHOLD_EXCEEDED = "spill_threshold_exceeded"
    CHANGE_BUFFER_BACKPRESSURE = "change_buffer_backpressure"
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
    APPLIER_TAKEN_OVER = "applier_taken_over"

    @property
    def kind(self) -> AlertKind:
        """What a cooldown means for it."""
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
                | AlertEvent.APPLIER_TAKEN_OVER
            ):
                return AlertKind.CHANGE
            case (
                AlertEvent.STALE_DATA
                | AlertEvent.BUFFER_GROWTH_WARNING
                | AlertEvent.SLOT_LAG_WARNING
                | AlertEvent.SPILL_THRESHOLD_EXCEEDED
                | AlertEvent.CHANGE_BUFFER_BACKPRESSURE
                | AlertEvent.FUSE_BLOWN_REMINDER
            ):
                return AlertKind.CONDITION
            case (
                AlertEvent.REFRESH_FAILED
                | AlertEvent.DISK_FULL
                | AlertEvent.CLEANUP_FAILURE
                | AlertEvent.SCHEDULER_FALLING_BEHIND
                | AlertEvent.PREDICTED_SLA_BREACH
                | AlertEvent.SLOW_REFRESH
            ):
                return AlertKind.OCCURRENCE
            case _:
                assert_never(self)


@dataclass(frozen=True)
class Alert:
    """One alert: its event and what it says."""

    event: AlertEvent
    fields: AlertFields


Subject = tuple[int | float | str, ...]
"""What an alert is about, as far as the cooldown goes."""


def subject_of(fields: AlertFields) -> Subject:
    """Return what distinguishes an alert from others of its event; one that became worse is another one."""
    return tuple(fields.get(name, "") for name in ("pgt_id", "stream_table", "source", "slot", "severity"))


@dataclass(frozen=True)
class Waiting:
    """An alert that is not sent yet."""

    event: AlertEvent
    fields: AlertFields
    noticed_s: float
    """When it was noticed; the last time, if it stands for several occurrences."""
    occurrences: int = 1

    @property
    def key(self) -> tuple[AlertEvent, Subject]:
        """What a cooldown goes by."""
        return self.event, subject_of(self.fields)

    def joined_by(self, later: Waiting) -> Waiting:
        """Return one alert for both: it says what the later one says."""
        return replace(later, occurrences=self.occurrences + later.occurrences)

    def said(self, now_s: float) -> AlertFields:
        """Return the fields to send: those of an alert that is late, or stands for several, say so."""
        extra: dict[str, int | float | str] = {}
        if self.event.kind is AlertKind.OCCURRENCE and self.occurrences > 1:
            extra["occurrences"] = self.occurrences
        if (late_s := round(now_s - self.noticed_s)) > 0:
            extra["late_s"] = late_s
        return {**self.fields, **extra}


@dataclass
class AlertQueue:
    """The alerts that are to be sent, in order, and those that a cooldown holds back.

    Times are of any clock that does not go back. However long nothing can be sent, it holds one alert for each event
    and subject besides the changes of state.
    """

    _ready: deque[Waiting] = field(default_factory=deque)
    _held: dict[tuple[AlertEvent, Subject], Waiting] = field(default_factory=dict)
    _taken_at: dict[tuple[AlertEvent, Subject], float] = field(default_factory=dict)

    def add(self, new: Waiting, cooldown_s: float) -> bool:
        """Take in an alert that is noticed now; return whether it may be sent now."""
        if new.event.kind is AlertKind.CHANGE:
            self._ready.append(new)
            return True
        if self._join(new):
            return True
        # What was sent longer ago decides nothing any more: dropped stream tables leave nothing behind.
        self._taken_at = {
            key: at for key, at in self._taken_at.items() if new.noticed_s - at < cooldown_s or key in self._held
        }
        if new.key not in self._taken_at:
            self._ready.append(new)
            return True
        if new.event.kind is AlertKind.OCCURRENCE:
            held = self._held.get(new.key)
            self._held[new.key] = held.joined_by(new) if held else new
        return False

    def take(self, now_s: float, cooldown_s: float) -> Waiting | None:
        """Return the alert that is to be sent next, which is then no longer here; None if there is none."""
        for key in [key for key in self._held if now_s - self._taken_at.get(key, now_s - cooldown_s) >= cooldown_s]:
            self._ready.append(self._held.pop(key))
        if not self._ready:
            return None
        taken = self._ready.popleft()
        if taken.event.kind is not AlertKind.CHANGE:
            self._taken_at[taken.key] = now_s
        return taken

    def put_back(self, taken: Waiting) -> None:
        """Take back an alert that could not be sent: it is the next one."""
        self._ready.appendleft(taken)

    def _join(self, new: Waiting) -> bool:
        """Whether the alert went into one like it that is to be sent anyway."""
        for place, ready in enumerate(self._ready):
            if ready.key == new.key:
                self._ready[place] = ready.joined_by(new)
                return True
        return False


def encode_alert(event: AlertEvent, fields: AlertFields) -> str:
    """Return the payload, in ASCII: the server's encoding may be any. Texts are cut as far as the server requires."""
    most = TEXT_CHARACTERS
    while True:
        cut = {name: value[:most] if isinstance(value, str) else value for name, value in fields.items()}
        payload = json.dumps({"event": event.value} | cut)
        if len(payload) <= PAYLOAD_BYTES or most == 0:
            return payload
        most //= 2
