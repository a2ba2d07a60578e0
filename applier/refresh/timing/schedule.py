"""The text of a schedule and the time of the last refresh in; whether a refresh is due out. Pure: no clock, no catalog.

'1s', '5m', '1h30m'     at most this old: due once per interval, on a grid that all stream tables share, so that stream
                        tables with the same schedule advance together. Up to CONTINUOUS_S it means: at every tick.
'continuous'            at every tick
'*/5 * * * *', '@daily' cron, in UTC
'calculated'            as often as the fastest stream table that reads it; at every tick when none does
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Set
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import assert_never

from cronsim import CronSim, CronSimError

from shared_schema.errors import TrickleError

CONTINUOUS_S = 1.0
"""A shorter interval means the same as every tick."""

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
    """The text of a schedule is not valid."""


@dataclass(frozen=True, slots=True)
class Continuous:
    """At every tick."""


@dataclass(frozen=True, slots=True)
class Every:
    """Once per interval of the grid that begins at the epoch."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Cron:
    """At the times of a cron expression, in UTC."""

    expression: str


@dataclass(frozen=True, slots=True)
class Calculated:
    """As often as its fastest reader."""


Timed = Continuous | Every | Cron
Schedule = Timed | Calculated


def parse_schedule(text: str) -> Schedule:
    """Parse the stored text of a schedule; raise BadSchedule when it is not valid."""
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
    """Replace every `calculated` by the fastest schedule among its direct and indirect readers."""
    resolved: dict[int, Timed] = {}

    def resolve(table: int, path: frozenset[int]) -> Timed:
        if table not in resolved:
            match schedules[table]:
                case Calculated():
                    table_readers = [r for r in readers.get(table, ()) if r in schedules and r not in path]
                    candidates = [resolve(reader, path | {table}) for reader in table_readers]
                    resolved[table] = min(candidates, key=period_s, default=Continuous())
                case Continuous() | Every() | Cron() as own:
                    resolved[table] = own
        return resolved[table]

    return {table: resolve(table, frozenset({table})) for table in schedules}


@cache
def period_s(schedule: Timed) -> float:
    """Return the seconds between two refreshes; for cron, between the first two after a fixed time."""
    match schedule:
        case Continuous():
            return 0.0
        case Every(seconds):
            return seconds
        case Cron(expression):
            times = CronSim(expression, datetime(2000, 1, 1, tzinfo=UTC))
            first, second = next(times), next(times)
            return (second - first) / timedelta(seconds=1)
        case _:
            assert_never(schedule)


def next_due(schedule: Timed, last: datetime | None) -> datetime | None:
    """Return the first time after `last` at which a refresh is due; None when it always is."""
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
    """Whether a scheduled time has passed since the last refresh.

    A last refresh in the future means that the clock was set back; the refresh does not wait for that time again.
    """
    due_at = next_due(schedule, last)
    return due_at is None or due_at <= now or (last is not None and now < last)
