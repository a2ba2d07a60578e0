"""Refreshes that are due and their results in; which of them go into a tick, and tier, pace and alerts, out.

Holds what it measured of each stream table; the rules are in `tiers`, `pace` and `deadlines`. No IO of its own: alerts
go to a function that it is given.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from statistics import fmean
from typing import Protocol

from applier.catalog.history import AssignedPace
from applier.catalog.stream_tables import StreamTableRow
from applier.refresh.deadlines import TICK_BUDGET_MS, Candidate, choose, will_break
from applier.refresh.pace import Pace, pace_after
from applier.refresh.refresh import Refresh, RefreshResult, initiated_by
from applier.refresh.refresh_planner import is_long_refresh
from applier.refresh.schedule import CONTINUOUS_S, Timed
from applier.refresh.strategy import RefreshMethod
from applier.refresh.tiers import Cycle, Pressure, Tier, factor_of, latest_start, next_in_tier, reassign, stretched_s

RECENT = 5
"""Refreshes of one method whose mean predicts the next one."""

MIN_RECENT = 3
"""Fewer of them predict nothing: the first refreshes of a process are slow."""


class SendAlert(Protocol):
    """Notifies whoever listens."""

    def __call__(self, event: str, **about: int | str) -> None:
        """Send one alert."""


def _send_nowhere(event: str, **about: int | str) -> None:
    """Stand in where nobody listens."""


@dataclass(frozen=True, slots=True)
class PromiseSettings:
    """The settings of tiers and backoff."""

    tiered_scheduling: bool = True
    auto_backoff: bool = True
    workers: int = 4
    """Stream tables that are computed at the same time."""


@dataclass
class Promises:
    """What was measured of the stream tables of one applier, and what follows for their next refreshes."""

    settings: Callable[[], PromiseSettings] = PromiseSettings
    alert: SendAlert = _send_nowhere
    predict_ms: Callable[[Refresh], float | None] | None = None
    """Predicts what a refresh takes; the mean of the last ones where it is not given or says None."""
    _durations: dict[tuple[int, RefreshMethod], deque[float]] = field(default_factory=dict)
    _last_took: dict[int, float] = field(default_factory=dict)
    _paces: dict[int, Pace] = field(default_factory=dict)
    _pressures: dict[int, Pressure] = field(default_factory=dict)
    _noted: dict[int, AssignedPace] = field(default_factory=dict)
    _waited: dict[int, int] = field(default_factory=dict)
    """Ticks that a refresh gave way to others."""
    _catching_up: set[int] = field(default_factory=set)
    """Stream tables whose refresh is one of several steps: they have no pace yet."""
    _warned: set[int] = field(default_factory=set)
    """Stream tables whose breach was predicted, until a refresh keeps their SLA."""

    # -- when -----------------------------------------------------------------------------------------------------

    def next_refresh(self, row: StreamTableRow, schedule: Timed, last: datetime) -> datetime | None:
        """Return when a stream table is due after a refresh at `last`; None for every tick, and for a frozen one."""
        tier = Tier(row.tier)
        if tier is Tier.FROZEN:
            return None
        due = next_in_tier(schedule, last, self._factor(row.pgt_id, tier))
        if due is None or row.sla_ms is None:
            return due
        return min(due, latest_start(last, row.sla_ms, self._last_took.get(row.pgt_id, 0.0)))

    def is_due(self, row: StreamTableRow, schedule: Timed, now: datetime) -> bool:
        """Whether the schedule in the tier, or the SLA, asks for a refresh now. The first fill waits for no tier.

        A last refresh in the future means that the clock was set back; the refresh does not wait for that time again.
        """
        last = row.refreshed_at
        if last is None:
            return True
        if Tier(row.tier) is Tier.FROZEN:
            return False
        due = self.next_refresh(row, schedule, last)
        return due is None or due <= now or now < last

    def _factor(self, pgt_id: int, tier: Tier) -> float:
        settings = self.settings()
        factor = factor_of(tier) if settings.tiered_scheduling else 1.0
        return factor * (self._paces.get(pgt_id, Pace()).stretch if settings.auto_backoff else 1.0)

    # -- which of those that are due ------------------------------------------------------------------------------

    @property
    def has_deferred(self) -> bool:
        """Whether refreshes that are due wait for the next tick."""
        return bool(self._waited)

    def choose(
        self, refreshes: Sequence[Refresh], schedules: Mapping[int, Timed], now: datetime, *, all_of_them: bool = False
    ) -> list[Refresh]:
        """Return the refreshes of this tick, the most urgent first; the others wait at their frontier.

        One that takes longer than a whole tick by prediction runs beside the ticks when others are due.
        """
        for refresh in refreshes:
            self._warn(refresh, now)
        settings = self.settings()
        if all_of_them or not settings.tiered_scheduling:
            self._waited.clear()
            return list(refreshes)
        marked = {r.table.id: self._mark_slow(r, is_alone=len(refreshes) == 1) for r in refreshes}
        relids = {refresh.row.pgt_relid: table_id for table_id, refresh in marked.items()}
        candidates = [self._candidate(refresh, schedules, relids, now) for refresh in marked.values()]
        chosen = choose(candidates, TICK_BUDGET_MS * settings.workers)
        self._waited = {table_id: self._waited.get(table_id, 0) + 1 for table_id in marked.keys() - set(chosen)}
        return [marked[table_id] for table_id in chosen]

    def _mark_slow(self, refresh: Refresh, *, is_alone: bool) -> Refresh:
        is_slow = (self.predicted_ms(refresh) or 0.0) > TICK_BUDGET_MS
        return replace(refresh, runs_beside=True) if is_slow and not is_alone else refresh

    def _candidate(
        self, refresh: Refresh, schedules: Mapping[int, Timed], relids: Mapping[int, int], now: datetime
    ) -> Candidate:
        row, predicted = refresh.row, self.predicted_ms(refresh) or 0.0
        return Candidate(
            table_id=refresh.table.id,
            tier=Tier(row.tier),
            start_in_s=self._start_in_s(row, schedules, predicted, now),
            cost_ms=0.0 if is_long_refresh(refresh) else predicted,
            waited=self._waited.get(refresh.table.id, 0),
            reads=frozenset(relids[relid] for relid in row.reads if relid in relids),
            # Also what nobody waits for in a session: a repair, and the first fill.
            is_requested=row.refresh_requested or row.reinitializes or not row.lsn,
        )

    def _start_in_s(
        self, row: StreamTableRow, schedules: Mapping[int, Timed], predicted_ms: float, now: datetime
    ) -> float:
        """Return in how many seconds a refresh must start; without an SLA, rows are to be no older than an interval."""
        last, tier = row.refreshed_at, Tier(row.tier)
        if last is None:
            return 0.0
        if row.sla_ms is not None:
            return (latest_start(last, row.sla_ms, predicted_ms) - now).total_seconds()
        schedule = schedules.get(row.pgt_id)
        interval_s = 0.0 if schedule is None or tier is Tier.FROZEN else stretched_s(schedule, factor_of(tier))
        return (last - now).total_seconds() + max(interval_s, CONTINUOUS_S) - predicted_ms / 1000

    def predicted_ms(self, refresh: Refresh) -> float | None:
        """Return what a refresh will take; None where nothing is known."""
        if refresh.strategy.method is RefreshMethod.NO_DATA:
            return 0.0
        if self.predict_ms is not None and (predicted := self.predict_ms(refresh)) is not None:
            return predicted
        recent = self._durations.get((refresh.table.id, refresh.strategy.method), ())
        return fmean(recent) if len(recent) >= MIN_RECENT else None

    def _warn(self, refresh: Refresh, now: datetime) -> None:
        """Send an alert when the SLA will be broken before the refresh is visible; once until it is kept."""
        row = refresh.row
        if row.sla_ms is None or row.fresh_until is None or row.pgt_id in self._warned:
            return
        age_ms, predicted = (now - row.fresh_until) / timedelta(milliseconds=1), self.predicted_ms(refresh) or 0.0
        if will_break(row.sla_ms, age_ms, predicted):
            self._warned.add(row.pgt_id)
            self.alert(
                "predicted_sla_breach",
                pgt_id=row.pgt_id,
                sla_ms=row.sla_ms,
                age_ms=round(age_ms),
                predicted_ms=round(predicted),
            )

    def note_steps(self, refreshes: Sequence[Refresh], is_whole: Callable[[Refresh], bool]) -> None:
        """Note which stream tables catch up in steps: those have no pace, since the next step follows at once."""
        for refresh in refreshes:
            (self._catching_up.discard if is_whole(refresh) else self._catching_up.add)(refresh.table.id)

    # -- what was measured ----------------------------------------------------------------------------------------

    def note_success(self, result: RefreshResult, schedule: Timed, now: datetime) -> AssignedPace | None:
        """Learn from a refresh whose rows are visible `now`; return tier and stretch if they are to be stored."""
        refresh, row = result.refresh, result.refresh.row
        took_ms = (now - result.started) / timedelta(milliseconds=1)
        if refresh.strategy.method is not RefreshMethod.NO_DATA:
            recent = self._durations.setdefault((row.pgt_id, refresh.strategy.method), deque(maxlen=RECENT))
            recent.append(took_ms)
            self._last_took[row.pgt_id] = fmean(recent)
        tier = self._reassign(row, schedule, took_ms, now)
        if initiated_by(refresh) == "SCHEDULER" and row.pgt_id not in self._catching_up:
            self._follow_pace(row, schedule, took_ms)
        stretch = self._paces.get(row.pgt_id, Pace()).stretch
        stored = self._noted.get(row.pgt_id, AssignedPace(row.assigned_tier, row.assigned_for_ms, row.interval_stretch))
        if tier is not Tier(row.tier):
            pace = AssignedPace(tier.value, row.sla_ms, stretch)
        else:
            pace = replace(stored, interval_stretch=stretch)
        if pace == stored:
            return None
        self._noted[row.pgt_id] = pace
        return pace

    def _reassign(self, row: StreamTableRow, schedule: Timed, took_ms: float, now: datetime) -> Tier:
        """Return the tier from now on; one that a person chose stays."""
        tier = Tier(row.tier)
        if row.sla_ms is None or row.fresh_until is None:
            return tier
        age_ms = (now - row.fresh_until) / timedelta(milliseconds=1)
        if age_ms <= row.sla_ms:
            self._warned.discard(row.pgt_id)
        if row.tier_by_hand or not self.settings().tiered_scheduling:
            return tier
        cycle = Cycle(row.sla_ms, age_ms, took_ms, schedule)
        tier, self._pressures[row.pgt_id] = reassign(tier, self._pressures.get(row.pgt_id, Pressure()), cycle)
        return tier

    def _follow_pace(self, row: StreamTableRow, schedule: Timed, took_ms: float) -> None:
        settings, before = self.settings(), self._paces.get(row.pgt_id, Pace())
        factor = factor_of(Tier(row.tier)) if settings.tiered_scheduling and row.tier != Tier.FROZEN.value else 1.0
        interval_ms = stretched_s(schedule, factor) * 1000
        pace = self._paces[row.pgt_id] = pace_after(before, took_ms, interval_ms, stretches=settings.auto_backoff)
        if pace.is_behind and not before.is_behind:
            about = {"took_ms": round(took_ms), "interval_ms": round(interval_ms * before.stretch)}
            self.alert("scheduler_falling_behind", pgt_id=row.pgt_id, **about)

    def forget(self, pgt_id: int) -> None:
        """Forget a stream table that was dropped, resumed or has a new query."""
        for method in RefreshMethod:
            self._durations.pop((pgt_id, method), None)
        for held in (self._last_took, self._paces, self._pressures, self._noted, self._waited):
            held.pop(pgt_id, None)
        self._catching_up.discard(pgt_id)
        self._warned.discard(pgt_id)
