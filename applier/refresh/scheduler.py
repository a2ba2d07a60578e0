"""Whose turn it is: schedules, who is waited for, who failed and may try again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from applier.catalog.stream_tables import StreamTableRow
from applier.refresh.schedule import Continuous, Every, Timed, is_due, next_due, parse_schedule, resolve_calculated
from applier.refresh.strategy import RefreshMode
from shared_schema.errors import TrickleError

RETRY_S = (0.5, 1.0, 2.0, 5.0, 15.0, 60.0)
"""Before the n-th next attempt of a stream table that failed; the last one stays."""

REST_PER_RUN = 4.0
"""A query that PostgreSQL runs as a whole takes at most a fifth of the time, unless somebody waits for it."""

BY_POSTGRES = Every(1.0)
"""As often as PostgreSQL is asked to run a query whose schedule says at every tick."""


@dataclass(frozen=True)
class _Pause:
    """From a moment on for a while. A clock that was set back stands before the moment: then the pause is over."""

    since: datetime
    until: datetime

    def holds(self, now: datetime) -> bool:
        return self.since <= now < self.until


@dataclass
class _Failing:
    errors: int
    pause: _Pause


@dataclass
class Scheduler:
    """One applier's calendar."""

    max_consecutive_errors: int
    _failing: dict[int, _Failing] = field(default_factory=dict)
    _resting: dict[int, _Pause] = field(default_factory=dict)
    _timed: dict[int, Timed] = field(default_factory=dict)
    _known: tuple[tuple[object, ...], ...] = ()

    def understand(self, rows: Sequence[StreamTableRow]) -> list[tuple[StreamTableRow, TrickleError]]:
        """Read the schedules as they are stored now; return those that cannot be read."""
        known = tuple((r.pgt_id, r.schedule, r.refresh_mode, tuple(r.reads)) for r in rows)
        if known == self._known:
            return []
        bad: list[tuple[StreamTableRow, TrickleError]] = []
        schedules = {}
        for row in rows:
            try:
                schedules[row.pgt_id] = (
                    Continuous()
                    if RefreshMode(row.refresh_mode) is RefreshMode.IMMEDIATE
                    else parse_schedule(row.schedule)
                )
            except TrickleError as error:
                bad.append((row, error))
        ids = {row.pgt_relid: row.pgt_id for row in rows}
        readers: dict[int, set[int]] = {}
        for row in rows:
            for relid in row.reads:
                if relid in ids:
                    readers.setdefault(ids[relid], set()).add(row.pgt_id)
        self._timed = resolve_calculated(schedules, readers)
        self._known = known
        return bad

    def is_due(self, row: StreamTableRow, now: datetime, *, by_postgres: bool) -> bool:
        """Whether a refresh may begin now."""
        if (failing := self._failing.get(row.pgt_id)) and failing.pause.holds(now):
            return False
        if row.refresh_requested:
            return True
        if (resting := self._resting.get(row.pgt_id)) and resting.holds(now):
            return False
        schedule = self._timed.get(row.pgt_id, Continuous())
        if by_postgres and isinstance(schedule, Continuous):
            schedule = BY_POSTGRES
        return is_due(schedule, row.data_timestamp, now)

    def next_refresh(self, row: StreamTableRow, last: datetime) -> datetime | None:
        """When it is due after a refresh at `last`; None for every tick."""
        return next_due(self._timed.get(row.pgt_id, Continuous()), last)

    def seconds_to_next(self, rows: Iterable[StreamTableRow], now: datetime) -> float:
        """Until the calendar has something to do by itself; infinite when only changes will."""
        moments = [self.next_refresh(row, row.data_timestamp) for row in rows if row.data_timestamp]
        moments += [failing.pause.until for failing in self._failing.values()]
        return min(((m - now).total_seconds() for m in moments if m is not None), default=float("inf"))

    def failed(self, pgt_id: int, now: datetime, *, for_ever: bool = False) -> int | None:
        """Note a failure that may pass; how many there were in a row, None when that is enough.

        What is tried `for_ever` is nobody's fault and is never enough.
        """
        errors = self.errors(pgt_id) + 1
        if errors >= self.max_consecutive_errors and not for_ever:
            self._failing.pop(pgt_id, None)
            return None
        pause = RETRY_S[min(errors, len(RETRY_S)) - 1]
        self._failing[pgt_id] = _Failing(errors, _Pause(now, now + timedelta(seconds=pause)))
        return errors

    def errors(self, pgt_id: int) -> int:
        """Failures in a row."""
        return self._failing[pgt_id].errors if pgt_id in self._failing else 0

    def succeeded(self, pgt_id: int) -> bool:
        """Note a success; whether there had been failures."""
        return self._failing.pop(pgt_id, None) is not None

    def rest(self, pgt_id: int, now: datetime, took_ms: float) -> None:
        """PostgreSQL ran a whole query: let it do other things before the next time."""
        self._resting[pgt_id] = _Pause(now, now + timedelta(milliseconds=took_ms * REST_PER_RUN))

    def forget(self, pgt_id: int) -> None:
        """A stream table was dropped or resumed."""
        self._failing.pop(pgt_id, None)
        self._resting.pop(pgt_id, None)
