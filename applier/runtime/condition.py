"""What the main loop and the beats saw in; whether the applier is alive and ready, and why not, out.

Everything is decided when somebody asks, from the age of what was seen last: a thread that hangs says nothing.
"""

from __future__ import annotations

import time

from shared_schema.beats import silence

ALIVE_WITHIN_S = 600.0
"""A tick may compute for minutes (a large initial fill); one that takes longer is stuck."""

TICK_LATE_S = 10.0
"""An idle applier ticks every second. If none has finished for this long, stream tables wait."""


class ApplierCondition:
    """Alive while the main loop runs; ready while ticks finish, the database answers and the consumer is heard.

    Several threads write it without a lock: every write is one assignment.
    """

    def __init__(self) -> None:
        self._beat = time.monotonic()
        self._ticked_at: float | None = None
        self._failure: str | None = None
        self._database_at: float | None = None
        self._heard_at: float | None = None
        """When a beat of the consumer arrived through the broker."""
        self._consumer_at: float | None = None
        """When the consumer wrote its last beat into the database."""
        self._consumer_problem: str | None = None
        self.is_standby = False
        """Whether another applier maintains the stream tables, and this one waits."""

    def beat(self) -> None:
        """Note that the main loop ran once more."""
        self._beat = time.monotonic()

    def note_ready(self) -> None:
        """Note that a tick has finished."""
        self._ticked_at, self._failure = time.monotonic(), None

    def note_failure(self, problem: str) -> None:
        """Note that a tick failed and will be repeated."""
        self._failure = problem

    def hear_database(self, at: float) -> None:
        """Note that the database answered a beat, at this time of the monotonic clock."""
        self._database_at = at

    def hear_beat(self, at: float, problem: str | None) -> None:
        """Note a beat of the consumer that arrived through the broker, and what is wrong according to it."""
        self._heard_at, self._consumer_problem = at, problem

    def hear_consumer(self, beat_at: float, problem: str | None) -> None:
        """Note when the consumer wrote its last beat into the database, and what is wrong according to it."""
        self._consumer_at, self._consumer_problem = beat_at, problem

    @property
    def has_ticked(self) -> bool:
        """Whether a tick has finished since the start."""
        return self._ticked_at is not None

    @property
    def alive(self) -> bool:
        """Whether the main loop ran within the last ALIVE_WITHIN_S."""
        return time.monotonic() - self._beat < ALIVE_WITHIN_S

    @property
    def ready(self) -> bool:
        """Whether stream tables are kept fresh."""
        return not self.reason

    @property
    def reason(self) -> str:
        """Why the applier is not ready; empty if it is."""
        return self.problem or self.consumer_problem

    @property
    def problem(self) -> str:
        """What is wrong with the applier itself; empty if nothing is."""
        now = time.monotonic()
        if self.is_standby:
            return "it stands by: another applier maintains the stream tables"
        if self._ticked_at is None:
            return "no tick has finished yet"
        return (
            (f"the tick is repeated: {self._failure}" if self._failure else "")
            or silence("PostgreSQL has not answered", self._database_at, now)
            or silence("no tick has finished", self._ticked_at, now, TICK_LATE_S)
        )

    @property
    def consumer_problem(self) -> str:
        """What is wrong with the consumer or the broker; empty if nothing is, or if the consumer never beat."""
        now = time.monotonic()
        last = max((at for at in (self._heard_at, self._consumer_at) if at is not None), default=None)
        if silent := silence("pg-trickle-cdc has not been heard of", last, now):
            return silent
        if self._consumer_problem:
            return f"pg-trickle-cdc: {self._consumer_problem}"
        return silence("no beat of pg-trickle-cdc has arrived through the broker", self._heard_at, now)

    @property
    def consumer_age_s(self) -> float:
        """Seconds since the consumer was last heard of; -1 if it never was."""
        last = max((at for at in (self._heard_at, self._consumer_at) if at is not None), default=None)
        return -1.0 if last is None else max(0.0, time.monotonic() - last)
