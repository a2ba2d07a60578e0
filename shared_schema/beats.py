"""What the two programs say about themselves every second, and how both measure time: by the clock of the source.

A beat of the consumer is a record of the `<prefix>.beats` topic (JSON, key = slot). It is not part of any transaction
and no row depends on it. It says how far the source is known, and lets readers measure the source's clock.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from shared_schema.alerts import START_GRACE_S
from shared_schema.errors import ContractError
from shared_schema.lsn import Lsn

BEAT_EVERY_S = 1.0

SILENT_AFTER_S = 4.0
"""A program whose last beat is older does not work. Three beats may be lost, and it is still noticed within five
seconds. `pgtrickle._silent_after()` is the same for SQL."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def to_datetime(clock_us: int) -> datetime:
    """Return microseconds since 1970 as a timestamp, exactly."""
    return _EPOCH + timedelta(microseconds=clock_us)


@dataclass(frozen=True, slots=True)
class Completeness:
    """Whatever stands at `frontier` or later includes every source commit before the moment `until_us`.

    The moment is in microseconds since 1970 by the source's clock. A commit counts from when it is durable there.
    """

    frontier: Lsn
    until_us: int


@dataclass(frozen=True, slots=True)
class Beat:
    """One beat of the consumer that streams from a slot."""

    slot: str
    clock_us: int
    """The source's clock, when the beat was made."""
    now: Completeness | None = None
    """For the frontier of the last rows that were published; None before the first."""
    earlier: Completeness | None = None
    """The same for the frontier that was the last one a beat or more ago."""
    problem: str | None = None
    """Why the consumer does not publish."""
    lost_before: Lsn | None = None
    """The server lacks changes that were published from it, all before this position. Then the consumer has ended."""

    @property
    def key(self) -> bytes:
        """The message key."""
        return self.slot.encode()

    def encode(self) -> bytes:
        """Encode the beat -> message value."""
        fields: dict[str, Any] = {
            "slot": self.slot,
            "clock": self.clock_us,
            "now": _fields(self.now),
            "earlier": _fields(self.earlier),
            "problem": self.problem,
            "lost": None if self.lost_before is None else str(self.lost_before),
        }
        return json.dumps({name: value for name, value in fields.items() if value is not None}).encode()


def decode_beat(value: bytes) -> Beat:
    """Decode a message value -> beat."""
    try:
        record: dict[str, Any] = json.loads(value)
        return Beat(
            str(record["slot"]),
            int(record["clock"]),
            _completeness(record.get("now")),
            _completeness(record.get("earlier")),
            record.get("problem"),
            Lsn.parse(record["lost"]) if "lost" in record else None,
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ContractError("a beat is malformed") from error


def _fields(known: Completeness | None) -> dict[str, Any] | None:
    return None if known is None else {"frontier": str(known.frontier), "until": known.until_us}


def _completeness(fields: dict[str, Any] | None) -> Completeness | None:
    return None if fields is None else Completeness(Lsn.parse(fields["frontier"]), int(fields["until"]))


def silence(what: str, heard_at: float | None, now: float, after_s: float = SILENT_AFTER_S) -> str:
    """Return a sentence if something was heard once and is silent now, else ''. Both times are of a monotonic clock."""
    if heard_at is None or now - heard_at < after_s:
        return ""
    return f"{what} for {now - heard_at:.0f} s"


@dataclass
class SilenceWatch:
    """Remembers whether a silence was reported. One that a start finds may be that of a program that starts too."""

    is_reported: bool = False
    """Whether the last report was that of a silence, by this process or the one before."""
    _began: float | None = None
    _is_old: bool = False
    """Whether the silence was there at the first look."""

    def look(self, is_silent: bool, now: float) -> bool:
        """Whether the silence, or its end, is to be reported now."""
        if self._began is None:
            self._began, self._is_old = now, is_silent
        self._is_old &= is_silent
        if is_silent == self.is_reported or (self._is_old and now - self._began < START_GRACE_S):
            return False
        self.is_reported = is_silent
        return True
