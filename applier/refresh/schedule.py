"""When a stream table is due. Pure: clocks and the catalog are somebody else's.

'1s', '5m', '1h30m'     at most that old: due once per interval, on a grid that all stream tables share, so that those
                        with the same schedule advance together. Up to CONTINUOUS_S it means: at every tick.
'continuous'            at every tick
'*/5 * * * *', '@daily' cron, in UTC
'calculated'            as often as the fastest stream table that reads it; at every tick when nobody does
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Set
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import assert_never

from cronsim import CronSim, CronSimError

from shared_schema.errors import TrickleError

CONTINUOUS_S = 1.0
"""Shorter intervals cannot be told from every tick."""

_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(?:\d+(?:ms|s|m|h|d))+")
_PART = re.compile(r"(\d+)(ms|s|m|h|d)")
_ALIASES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}


class BadSchedule(TrickleError):
    """A schedule that cannot be read."""


@dataclass(frozen=True, slots=True)
class Continuous:
    """At every tick."""


@dataclass(frozen=True, slots=True)
class Every:
    """Once per interval of the grid that begins at the epoch."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Cron:
    """At the moments a cron expression names, in UTC."""

    expression: str


@dataclass(frozen=True, slots=True)
class Calculated:
    """As its readers need it."""


Timed = Continuous | Every | Cron
Schedule = Timed | Calculated


def parse_schedule(text: str) -> Schedule:
    """A stored schedule -> its meaning; BadSchedule for anything else."""
    word = text.strip().lower()
    if word == "calculated":
        return Calculated()
    if word in ("continuous", "@continuous"):
        return Continuous()
    if _DURATION.fullmatch(word):
        seconds = sum(int(number) * _UNITS_S[unit] for number, unit in _PART.findall(word))
        return Every(seconds) if seconds > CONTINUOUS_S else Continuous()
    try:
        expression = _ALIASES.get(word, text.strip())
        next(CronSim(expression, datetime(2000, 1, 1, tzinfo=UTC)))
    except (CronSimError, StopIteration) as error:
        raise BadSchedule(
            f"schedule {text!r} is not understood{f': {error}' if str(error) else ''}",
            hint="write a duration (30s, 5m, 1h30m), a cron expression (*/5 * * * *), continuous or calculated",
        ) from None
    return Cron(expression)


def resolve_calculated(schedules: Mapping[int, Schedule], readers: Mapping[int, Set[int]]) -> dict[int, Timed]:
    """Every `calculated` one replaced by the fastest schedule among those who read it, directly or not."""
    known: dict[int, Timed] = {}

    def timed(table: int, path: frozenset[int]) -> Timed:
        if table not in known:
            match schedules[table]:
                case Calculated():
                    below = [r for r in readers.get(table, ()) if r in schedules and r not in path]
                    needs = [timed(reader, path | {table}) for reader in below]
                    known[table] = min(needs, key=period_s, default=Continuous())
                case Continuous() | Every() | Cron() as own:
                    known[table] = own
        return known[table]

    return {table: timed(table, frozenset({table})) for table in schedules}


def period_s(schedule: Timed) -> float:
    """Seconds between two refreshes; of a cron expression, between the next two of a fixed moment."""
    match schedule:
        case Continuous():
            return 0.0
        case Every(seconds):
            return seconds
        case Cron(expression):
            moments = CronSim(expression, datetime(2000, 1, 1, tzinfo=UTC))
            first, second = next(moments), next(moments)
            return (second - first) / timedelta(seconds=1)
        case _:
            assert_never(schedule)


def next_due(schedule: Timed, last: datetime | None) -> datetime | None:
    """The moment after `last` from which it is due; None when it always is."""
    if last is None:
        return None
    match schedule:
        case Continuous():
            return None
        case Every(seconds):
            steps = math.floor(last.timestamp() / seconds) + 1
            return datetime.fromtimestamp(steps * seconds, UTC)
        case Cron(expression):
            return next(CronSim(expression, last.astimezone(UTC)))
        case _:
            assert_never(schedule)


def is_due(schedule: Timed, last: datetime | None, now: datetime) -> bool:
    """Whether a moment of the schedule has passed since it was last refreshed.

    A refresh in the future says that the clock was set back since; nobody should wait until it is there again.
    """
    moment = next_due(schedule, last)
    return moment is None or moment <= now or (last is not None and now < last)
