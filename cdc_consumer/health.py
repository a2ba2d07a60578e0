"""The state of the process: what its session does, whether source and sink answer, whether the loop runs. Pure.

Control flow, `/healthz`, `/readyz` and `/status` read this object. Metrics are written from it and are never read.
"""

from __future__ import annotations

import datetime
import time
from dataclasses import dataclass
from typing import Any, assert_never

from shared_schema.beats import SILENT_AFTER_S, silence
from shared_schema.lsn import Lsn

BROKER_SILENT_AFTER_S = 3.0
"""A broker that confirms no beat for this long does not work. Shorter than SILENT_AFTER_S: others learn it from the
next beat in the database."""

STUCK_AFTER_S = 10.0
"""The consumer is not ready if the main loop has not run for this long: nothing moves."""

ATTEMPTS_KEPT = 5
"""So many times of failed sessions are reported, the newest first."""

ALIVE_WITHIN_S = 30.0
"""The loop runs many times a second; if it has not run for this long, it is stuck."""


@dataclass(frozen=True, slots=True)
class Connecting:
    """The process has just started."""


@dataclass(frozen=True, slots=True)
class StandingBy:
    """Another instance streams from the slot, through the server process `pid`."""

    pid: int


@dataclass(frozen=True, slots=True)
class LoadingTables:
    """This instance has the slot; tables that were found at its start are not copied yet."""


@dataclass(frozen=True, slots=True)
class Streaming:
    """Every table that was found at the start is copied."""


@dataclass(frozen=True, slots=True)
class Restarting:
    """The session failed and is restarted."""

    problem: str


SessionState = Connecting | StandingBy | LoadingTables | Streaming | Restarting


@dataclass(frozen=True, slots=True)
class SlotReading:
    """The state of the slot, read once."""

    position: Lsn
    """The end of the server's log."""
    confirmed_flush: Lsn
    restart: Lsn
    wal_status: str
    safe_bytes: int | None
    """Bytes of log that may still be written before the server invalidates the slot; None without a limit."""
    catalog_age: int
    """Number of transactions since the oldest one whose catalog rows the server retains for the slot."""
    spilled_transactions: int
    spilled_bytes: int
    """What the server's decoder had to spill to its disk."""
    oldest_transaction_s: float
    """Age of the oldest open write transaction: the server retains log at least from its beginning."""


@dataclass(frozen=True, slots=True)
class Spill:
    """What waits on local disk for the sink."""

    bytes: int = 0
    is_full: bool = False
    """Whether the disk takes no more: the server retains the rest."""


class Health:
    """The health of one process; one object, passed down to all parts.

    Several threads use it without a lock: every write is one assignment, and only the main thread changes the session.
    """

    def __init__(self) -> None:
        self.session: SessionState = Connecting()
        self.source_problem: str | None = None
        self.sink_problem: str | None = None
        """Why the source or the sink did not answer the last probe; None if it did."""
        self.is_behind = False
        """Whether the consumer falls behind the server."""
        self.spill = Spill()
        """What waits on disk at present."""
        self.restarts = 0
        """Sessions that were restarted after an error."""
        self.last_error: tuple[float, str] | None = None
        """When a session last failed, and why."""
        self.attempted_at_s: tuple[float, ...] = ()
        """When the last sessions failed, by the source's clock in seconds since 1970, the newest first."""
        self._beat = time.monotonic()
        self._source_at: float | None = None
        """When the server answered a beat; None before the first."""
        self._offset_s: float | None = None
        """The source's clock minus the monotonic clock."""
        self._broker_at: float | None = None
        """When the broker confirmed a beat; None before the first."""
        self._applier_at: float | None = None
        """When the applier beat last; None if this process never heard it: it need not exist."""

    def enter(self, state: SessionState) -> None:
        """Record what the session does from now on."""
        if isinstance(state, Restarting):
            self.is_behind = False
            self.last_error = time.time(), state.problem
            self.attempted_at_s = (self.source_now_s, *self.attempted_at_s)[:ATTEMPTS_KEPT]
            # Last: the thread of the beats writes the others when this one is new.
            self.restarts += 1
        self.session = state

    @property
    def has_slot(self) -> bool:
        """Whether this instance has the slot: a standby says nothing for it."""
        return not isinstance(self.session, Connecting | StandingBy)

    def record_lag(self, *, behind: bool) -> None:
        """Record whether the stream falls behind the server."""
        self.is_behind = behind

    def record_spill(self, spill: Spill) -> None:
        """Record what waits on disk."""
        self.spill = spill

    def record_probe(self, source_problem: str | None, sink_problem: str | None) -> None:
        """Record why source and sink did not answer; None for one that did."""
        self.source_problem, self.sink_problem = source_problem, sink_problem

    def hear_source(self, at: float, clock_us: int) -> None:
        """Record that the server answered a beat at this time of the monotonic clock, and its own clock then."""
        self._source_at, self._offset_s = at, clock_us / 1_000_000 - at

    @property
    def source_now_s(self) -> float:
        """The source's clock at present, in seconds since 1970; this machine's before it was read."""
        return time.time() if self._offset_s is None else self._offset_s + time.monotonic()

    def hear_broker(self, at: float | None) -> None:
        """Record when the broker confirmed a beat; None while this instance sends none."""
        self._broker_at = at

    def hear_applier(self, beat_at: float, now: float) -> None:
        """Record when the applier beat; what was silent before this process started was never heard."""
        if self._applier_at is not None or now - beat_at < SILENT_AFTER_S:
            self._applier_at = beat_at

    def age_of(self, what: str) -> float:
        """Return the seconds since the last sign of life of `source`, `broker` or `applier`; -1 if there was none."""
        at = {"source": self._source_at, "broker": self._broker_at, "applier": self._applier_at}[what]
        return -1.0 if at is None else max(0.0, time.monotonic() - at)

    def beat(self) -> None:
        """Record that the loop is running."""
        self._beat = time.monotonic()

    @property
    def quiet_s(self) -> float:
        """Seconds since the loop last ran."""
        return time.monotonic() - self._beat

    @property
    def alive(self) -> bool:
        """Whether the loop ran recently."""
        return self.quiet_s < ALIVE_WITHIN_S

    @property
    def ready(self) -> bool:
        """Whether the consumer streams, source and sink answer, and it keeps up with the server."""
        return not self.reason

    @property
    def reason(self) -> str:
        """Why the consumer is not ready; empty if it is ready."""
        match self.session:
            case Connecting():
                return "connecting"
            case StandingBy(pid=pid):
                return f"standing by: server process {pid} streams from the slot"
            case LoadingTables():
                return "loading tables"
            case Restarting(problem=problem):
                return f"restarting the session: {problem}"
            case Streaming():
                late = "the consumer falls behind the server" if self.is_behind else ""
                return self.problem or late or self.applier_problem
            case other:
                assert_never(other)

    @property
    def problem(self) -> str:
        """Why nothing is published, as far as the consumer itself can see; empty while it streams or copies."""
        if isinstance(self.session, Restarting):
            return f"restarting the session: {self.session.problem}"
        now = time.monotonic()
        return (
            self.source_problem
            or self.sink_problem
            or silence("PostgreSQL has not answered", self._source_at, now)
            or silence("no Kafka broker has confirmed a beat", self._broker_at, now, BROKER_SILENT_AFTER_S)
            or silence("the main loop has not run", self._beat, now, STUCK_AFTER_S)
        )

    @property
    def applier_problem(self) -> str:
        """Whether the applier is silent, in words; empty if it is not or was never heard."""
        return silence("pg-trickle-applier has not been heard of", self._applier_at, time.monotonic())


def health_report(health: Health) -> dict[str, Any]:
    """Return what `/status` serves: `pg-trickle-cdc status` reads it from a running instance."""
    at, problem = health.last_error or (None, None)
    return {
        "ready": health.ready and health.alive,
        "standby": isinstance(health.session, StandingBy),
        "blocked": health.reason or None,
        "last_error": problem,
        "last_error_at": at and datetime.datetime.fromtimestamp(at, datetime.UTC).isoformat(timespec="seconds"),
        "reconnects": health.restarts,
    }
