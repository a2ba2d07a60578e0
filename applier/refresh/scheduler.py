"""Decides which stream tables are due: by schedule, by request, and by the pauses after failures and long queries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from applier.catalog.history import AssignedPace
from applier.catalog.stream_tables import StreamTableRow
from applier.refresh.method.refresh import Refresh, RefreshResult
from applier.refresh.method.strategy import RefreshMode
from applier.refresh.promises import Promises
from applier.refresh.timing.schedule import Continuous, Every, Timed, parse_schedule, resolve_calculated
from shared_schema.errors import TrickleError

RETRY_S = (0.5, 1.0, 2.0, 5.0, 15.0, 60.0)
"""Pause before the n-th retry of a stream table that failed; the last value applies to all later ones."""

REST_PER_RUN = 4.0
"""A query that PostgreSQL runs takes at most a fifth of the time, unless a refresh was requested."""

BY_POSTGRES = Every(1.0)
"""How often PostgreSQL runs a query whose schedule says every tick."""


@dataclass(frozen=True)
class _Pause:
    """A span of time. When the clock is set back to before `since`, the pause is over."""

    since: datetime
    until: datetime

    def is_active(self, now: datetime) -> bool:
        return self.since <= now < self.until


@dataclass
class _Failures:
    errors: int
    pause: _Pause


@dataclass
class Scheduler:
    """The schedules, failures and pauses of the stream tables of one applier."""

    max_consecutive_errors: Callable[[], int]
    """Returns the failures in a row, at present, after which there is no retry."""
    promises: Promises = field(default_factory=Promises)
    """What tiers, SLAs and backoff make of the schedules."""
    _failures: dict[int, _Failures] = field(default_factory=dict)
    _pauses: dict[int, _Pause] = field(default_factory=dict)
    _schedules: dict[int, Timed] = field(default_factory=dict)
    _loaded: tuple[tuple[object, ...], ...] = ()

    def load(self, rows: Sequence[StreamTableRow]) -> list[tuple[StreamTableRow, TrickleError]]:
        """Parse the schedules as they are stored now; return the rows whose schedule is not valid."""
        stored = tuple((r.pgt_id, r.schedule, r.refresh_mode, tuple(r.reads)) for r in rows)
        if stored == self._loaded:
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
        self._schedules = resolve_calculated(schedules, readers)
        self._loaded = stored
        return bad

    def is_due(self, row: StreamTableRow, now: datetime, *, by_postgres: bool) -> bool:
        """Whether a refresh may start now; `by_postgres` when PostgreSQL runs the query."""
        if (failures := self._failures.get(row.pgt_id)) and failures.pause.is_active(now):
            return False
        if row.refresh_requested or row.reinitializes:
            return True
        if (pause := self._pauses.get(row.pgt_id)) and pause.is_active(now) and not self.promises.must_start(row, now):
            return False
        schedule = self._schedules.get(row.pgt_id, Continuous())
        if by_postgres and isinstance(schedule, Continuous):
            schedule = BY_POSTGRES
        return self.promises.is_due(row, schedule, now)

    def next_refresh(self, row: StreamTableRow, last: datetime) -> datetime | None:
        """Return when the stream table is due after a refresh at `last`; None for every tick or never."""
        return self.promises.next_refresh(row, self._schedules.get(row.pgt_id, Continuous()), last)

    def choose(self, refreshes: Sequence[Refresh], now: datetime, *, all_of_them: bool) -> list[Refresh]:
        """Return the refreshes of this tick; the others wait for the next one, if not `all_of_them` are wanted."""
        return self.promises.choose(refreshes, self._schedules, now, all_of_them=all_of_them)

    def note_measured(self, result: RefreshResult, now: datetime) -> AssignedPace | None:
        """Learn from a refresh whose rows are visible; return tier and stretch if they are to be stored."""
        return self.promises.note_success(result, self._schedules.get(result.refresh.row.pgt_id, Continuous()), now)

    def seconds_to_next(self, rows: Iterable[StreamTableRow], now: datetime) -> float:
        """Return the seconds until a schedule or a retry is due; infinite when only changes cause refreshes."""
        times = [self.next_refresh(row, row.refreshed_at) for row in rows if row.refreshed_at]
        times += [failures.pause.until for failures in self._failures.values()]
        return min(((time - now).total_seconds() for time in times if time is not None), default=float("inf"))

    def note_failure(self, pgt_id: int, now: datetime, *, for_ever: bool = False) -> int | None:
        """Count a failure that may pass; return the consecutive failures, or None when no retry is left.

        With `for_ever` retries are unlimited: the cause is not the stream table itself.
        """
        self.promises.note_failure(pgt_id)
        errors = self._count_errors(pgt_id) + 1
        if errors >= self.max_consecutive_errors() and not for_ever:
            self._failures.pop(pgt_id, None)
            return None
        pause = RETRY_S[min(errors, len(RETRY_S)) - 1]
        self._failures[pgt_id] = _Failures(errors, _Pause(now, now + timedelta(seconds=pause)))
        return errors

    def _count_errors(self, pgt_id: int) -> int:
        return self._failures[pgt_id].errors if pgt_id in self._failures else 0

    def note_success(self, pgt_id: int) -> bool:
        """Forget the failures of a stream table; return whether there were any."""
        return self._failures.pop(pgt_id, None) is not None

    def pause_after_query(self, pgt_id: int, now: datetime, took_ms: float) -> None:
        """Leave PostgreSQL time for other work after it ran the query of a stream table."""
        self._pauses[pgt_id] = _Pause(now, now + timedelta(milliseconds=took_ms * REST_PER_RUN))

    def forget(self, pgt_id: int) -> None:
        """Forget failures and pauses: the stream table was dropped or resumed."""
        self._failures.pop(pgt_id, None)
        self._pauses.pop(pgt_id, None)
        self.promises.forget(pgt_id)
