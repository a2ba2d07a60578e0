"""Refreshes that are due and their results in; which of them go into a tick, and tier, pace and alerts, out.

Holds what it measured of each stream table; the rules are in `tiers`, `pace` and `deadlines`. No IO of its own: alerts
go to a function that it is given.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from statistics import median
from typing import Protocol

from applier.catalog.history import AssignedPace
from applier.catalog.stream_tables import StreamTableRow
from applier.refresh.method.refresh import Refresh, RefreshResult, initiated_by
from applier.refresh.method.refresh_planner import is_long_refresh
from applier.refresh.method.strategy import NEW_CONTENT, RefreshMethod
from applier.refresh.timing.deadlines import (
    TICK_BUDGET_MS,
    Candidate,
    choose,
    slack_of_tiers,
    tick_budget_ms,
    will_break,
)
from applier.refresh.timing.pace import Pace, pace_after
from applier.refresh.timing.schedule import CONTINUOUS_S, Timed
from applier.refresh.timing.tick_load import TickLoad
from applier.refresh.timing.tiers import (
    Pressure,
    SlaSample,
    Tier,
    factor_of,
    latest_start,
    next_in_tier,
    reassign,
    stretched_s,
)
from shared_schema.alerts import START_GRACE_S, AlertEvent

ONE_MS = timedelta(milliseconds=1)

RECENT = 5
"""Refreshes of one method whose median predicts the next one."""

RECALLED_REFRESHES = 4 * RECENT
"""Refreshes of a stream table that are read from the history at a start: some of each method that it uses."""

MIN_RECENT = 3
"""Fewer of them predict nothing: the first refreshes of a process are slow."""


class SendAlert(Protocol):
    """Notifies whoever listens."""

    def __call__(self, event: AlertEvent, **about: int | float | str) -> bool:
        """Send one alert; return False if that has to wait."""


def _send_nowhere(event: AlertEvent, **about: int | float | str) -> bool:
    """Stand in where nobody listens."""
    return True


@dataclass(frozen=True, slots=True)
class PromiseSettings:
    """The settings of tiers and backoff."""

    tiered_scheduling: bool = True
    auto_backoff: bool = True
    workers: int = 4
    """Stream tables that are computed at the same time."""
    cores: int = 4
    """Tasks that Spark runs at the same time."""

    @property
    def places(self) -> int:
        """How many of the colder stream tables are computed beside the ticks: hot ones keep a thread and a core."""
        return max(min(self.workers, self.cores) - 1, 1)


@dataclass
class Promises:
    """What was measured of the stream tables of one applier, and what follows for their next refreshes."""

    settings: Callable[[], PromiseSettings] = PromiseSettings
    alert: SendAlert = _send_nowhere
    _durations: dict[tuple[int, RefreshMethod], deque[float]] = field(default_factory=dict)
    _delays: dict[int, deque[float]] = field(default_factory=dict)
    """Milliseconds from the start of a refresh until its rows were visible; others of its tick are waited for."""
    _paces: dict[int, tuple[int, Pace]] = field(default_factory=dict)
    _pressures: dict[int, tuple[int, Pressure]] = field(default_factory=dict)
    """What the last refreshes say about a tier, and for which version of schedule, SLA and tier, as the paces."""
    _waited: dict[int, int] = field(default_factory=dict)
    """Ticks that a refresh gave way to others."""
    _budget_ms: float = TICK_BUDGET_MS
    _load: TickLoad = field(default_factory=TickLoad)
    _starts: dict[int, tuple[Tier, datetime]] = field(default_factory=dict)
    """When stream tables must start for their SLA, and their tiers."""
    _beside: dict[int, Tier] = field(default_factory=dict)
    """Stream tables that are refreshed beside the ticks, and their tiers."""
    _catching_up: set[int] = field(default_factory=set)
    """Stream tables whose last refresh was only a step: the next one follows at once, whatever the schedule."""
    _has_steps: bool = False
    """Whether the last tick had such steps."""
    _warned: set[int] = field(default_factory=set)
    """Stream tables whose breach was predicted, until a refresh keeps their SLA."""
    _began: datetime | None = None
    """When SLAs were looked at for the first time."""
    _late_at_start: set[int] = field(default_factory=set)
    """Stream tables that were late then, for as long as they are: nobody refreshed them before."""

    # -- when -----------------------------------------------------------------------------------------------------

    def next_refresh(self, row: StreamTableRow, schedule: Timed, last: datetime) -> datetime | None:
        """Return when a stream table is due after a refresh at `last`; None for every tick, and for a frozen one."""
        tier = Tier(row.tier)
        if tier is Tier.FROZEN:
            return None
        due = next_in_tier(schedule, last, self._factor(row, tier))
        if due is None or row.sla_ms is None:
            return due
        return min(due, latest_start(last, row.sla_ms, self._delay_ms(row.pgt_id)))

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
        return due is None or due <= now or now < last or row.pgt_id in self._catching_up

    def must_start(self, row: StreamTableRow, now: datetime) -> bool:
        """Whether the SLA asks for a refresh now."""
        last = row.refreshed_at
        if row.sla_ms is None or last is None or Tier(row.tier) is Tier.FROZEN:
            return False
        return latest_start(last, row.sla_ms, self._delay_ms(row.pgt_id)) <= now

    def _factor(self, row: StreamTableRow, tier: Tier) -> float:
        settings = self.settings()
        factor = factor_of(tier) if settings.tiered_scheduling else 1.0
        return factor * (self._pace(row).stretch if settings.auto_backoff else 1.0)

    def _pace(self, row: StreamTableRow) -> Pace:
        version, pace = self._paces.get(row.pgt_id, (None, Pace()))
        return pace if version == row.pace_version else Pace(row.interval_stretch)

    def _delay_ms(self, pgt_id: int) -> float:
        delays = self._delays.get(pgt_id)
        return median(delays) if delays else 0.0

    # -- which of those that are due ------------------------------------------------------------------------------

    @property
    def has_deferred(self) -> bool:
        """Whether refreshes that are due wait for the next tick, or steps for those that follow."""
        return bool(self._waited) or self._has_steps

    def choose(
        self, refreshes: Sequence[Refresh], schedules: Mapping[int, Timed], now: datetime, *, all_of_them: bool = False
    ) -> list[Refresh]:
        """Return the refreshes of this tick, the most urgent first; the others wait at their frontier.

        One that takes longer than a whole tick by prediction runs beside the ticks, unless it is the only stream table.
        """
        due = {refresh.table.id: refresh for refresh in refreshes}
        settings = self.settings()
        for ended in self._beside.keys() & due.keys():  # what is due again has ended
            del self._beside[ended]
        if settings.tiered_scheduling and not all_of_them:
            due = {table_id: self._mark_slow(refresh, len(schedules)) for table_id, refresh in due.items()}
            relids = {refresh.row.pgt_relid: table_id for table_id, refresh in due.items()}
            unknown_ms = self._unknown_ms()
            candidates = [self._candidate(refresh, schedules, relids, unknown_ms, now) for refresh in due.values()]
            # Hot ones take no place of the colder ones: they only keep one free.
            places = settings.places - sum(tier is not Tier.HOT for tier in self._beside.values())
            work = self._load.work_per_ms(settings.workers)
            slack_ms = {tier: s * 1000 * work for tier, s in self._slack_s(due, now).items()}
            chosen = choose(candidates, self._budget_ms * work, places, slack_ms)
        else:
            chosen = list(due)
        in_tick = [due[table_id] for table_id in chosen if not is_long_refresh(due[table_id])]
        self._load.begin([self.predicted_ms(refresh) for refresh in in_tick], settings.workers, now)
        self._waited = {table_id: self._waited.get(table_id, 0) + 1 for table_id in due.keys() - set(chosen)}
        self._beside |= {id_: Tier(due[id_].row.tier) for id_ in chosen if is_long_refresh(due[id_])}
        steps = {table_id for table_id in chosen if due[table_id].is_step}
        self._catching_up = self._catching_up.difference(chosen) | steps
        self._has_steps = bool(steps)
        return [due[table_id] for table_id in chosen]

    def _mark_slow(self, refresh: Refresh, stream_tables: int) -> Refresh:
        is_slow = (self.predicted_ms(refresh) or 0.0) > self._budget_ms
        return replace(refresh, runs_beside=True) if is_slow and stream_tables > 1 else refresh

    def _unknown_ms(self) -> tuple[float, float]:
        """Return what a refresh takes of which nothing is known: as the others do; and a colder one, whose first one
        may take far longer, so one of them fills a tick."""
        known = [median(recent) for recent in self._durations.values() if len(recent) >= MIN_RECENT]
        typical = min(median(known), self._budget_ms) if known else 0.0
        return typical, self._budget_ms * self.settings().workers if known else 0.0

    def _slack_s(self, due: Container[int], now: datetime) -> dict[Tier, float]:
        """Return how long each tier may delay the hotter ones. Who is late and not due is held, or computed already."""
        starts = ((id_, tier, (start - now).total_seconds()) for id_, (tier, start) in self._starts.items())
        return slack_of_tiers((tier, start_in_s) for id_, tier, start_in_s in starts if start_in_s >= 0 or id_ in due)

    def _candidate(
        self,
        refresh: Refresh,
        schedules: Mapping[int, Timed],
        relids: Mapping[int, int],
        unknown_ms: tuple[float, float],
        now: datetime,
    ) -> Candidate:
        row, known_ms = refresh.row, self.predicted_ms(refresh)
        predicted = unknown_ms[row.tier != Tier.HOT.value] if known_ms is None else known_ms
        return Candidate(
            table_id=refresh.table.id,
            tier=Tier(row.tier),
            start_in_s=self._start_in_s(row, schedules, predicted, now),
            cost_ms=0.0 if is_long_refresh(refresh) else predicted,
            waited=self._waited.get(refresh.table.id, 0),
            reads=frozenset(relids[relid] for relid in row.reads if relid in relids),
            # Also what nobody waits for in a session: a repair, and the first fill.
            is_requested=row.refresh_requested or row.reinitializes or not row.lsn,
            runs_beside=is_long_refresh(refresh),
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
        """Return what a refresh will take: by its own prediction, else as the last ones; None if nothing is known."""
        if refresh.strategy.method is RefreshMethod.NO_DATA:
            return 0.0
        if refresh.predicted_ms is not None:
            return refresh.predicted_ms
        recent = self._durations.get((refresh.table.id, refresh.strategy.method), ())
        return median(recent) if len(recent) >= MIN_RECENT else None

    def watch(self, rows: Sequence[StreamTableRow], refreshes: Iterable[Refresh], now: datetime) -> None:
        """Send an alert for each of the stream tables whose SLA is about to be broken, due or not; once until it is
        kept again."""
        due = {refresh.table.id: refresh for refresh in refreshes}
        began = self._began = self._began or now
        known = {row.pgt_id for row in rows}
        self._beside = {pgt_id: tier for pgt_id, tier in self._beside.items() if pgt_id in known}
        promised = [row for row in rows if row.sla_ms is not None and Tier(row.tier) is not Tier.FROZEN]
        self._budget_ms = tick_budget_ms(row.sla_ms for row in promised if row.sla_ms is not None)
        self._starts = {
            row.pgt_id: (Tier(row.tier), latest_start(row.refreshed_at, row.sla_ms, self._delay_ms(row.pgt_id)))
            for row in promised
            if row.sla_ms is not None and row.refreshed_at is not None and row.pgt_id not in self._beside
        }
        for row in promised:
            if row.sla_ms is not None:
                refresh = due.get(row.pgt_id)
                self._warn(row, row.sla_ms, self.predicted_ms(refresh) if refresh else None, now, now - began)

    def _warn(
        self, row: StreamTableRow, sla_ms: float, predicted_ms: float | None, now: datetime, since_start: timedelta
    ) -> None:
        if row.fresh_until is None:
            return
        age_ms, predicted = (now - row.fresh_until) / ONE_MS, predicted_ms or 0.0
        if not will_break(sla_ms, age_ms, predicted):
            self._late_at_start.discard(row.pgt_id)
            return
        if not since_start:
            self._late_at_start.add(row.pgt_id)
        is_starting = row.pgt_id in self._late_at_start and since_start.total_seconds() < START_GRACE_S
        if row.pgt_id not in self._warned and not is_starting:
            self._warned.add(row.pgt_id)
            self.alert(
                AlertEvent.PREDICTED_SLA_BREACH,
                pgt_id=row.pgt_id,
                sla_ms=sla_ms,
                age_ms=round(age_ms),
                predicted_ms=round(predicted),
            )

    # -- what was measured ----------------------------------------------------------------------------------------

    def recall(self, history: Iterable[tuple[int, str, float]]) -> None:
        """Take over what the last refreshes took before this process: id, method and milliseconds, oldest first.

        A slow stream table is known as slow at once, and its first refreshes delay nobody.
        """
        methods = {method.value: method for method in RefreshMethod if method is not RefreshMethod.NO_DATA}
        for pgt_id, action, took_ms in history:
            if (method := methods.get(action)) is not None:
                self._durations.setdefault((pgt_id, method), deque(maxlen=RECENT)).append(took_ms)

    def note_success(self, result: RefreshResult, schedule: Timed, now: datetime) -> AssignedPace | None:
        """Learn from a refresh whose rows are visible `now`; return tier and stretch if they are to be stored."""
        refresh, row = result.refresh, result.refresh.row
        took_ms, delay_ms = result.compute_ms + (result.write_time.ms or 0.0), (now - result.started) / ONE_MS
        self._beside.pop(row.pgt_id, None)
        if not is_long_refresh(refresh):
            self._load.note_visible(now)
        if refresh.strategy.reason in NEW_CONTENT:
            self._forget_durations(row.pgt_id)
        if refresh.strategy.method is not RefreshMethod.NO_DATA:
            key = row.pgt_id, refresh.strategy.method
            self._durations.setdefault(key, deque(maxlen=RECENT)).append(took_ms)
            self._delays.setdefault(row.pgt_id, deque(maxlen=RECENT)).append(delay_ms)
        tier = self._reassign(row, schedule, delay_ms, now)
        # A refresh without changes says nothing about one with changes.
        has_changes = refresh.strategy.method is not RefreshMethod.NO_DATA
        is_scheduled = initiated_by(refresh) in ("SCHEDULER", "SELF_MONITOR")
        if has_changes and is_scheduled and row.pgt_id not in self._catching_up:
            self._follow_pace(row, schedule, took_ms)
        stored = AssignedPace(row.assigned_tier, row.assigned_for_ms, row.interval_stretch, row.pace_version)
        pace = replace(stored, interval_stretch=self._pace(row).stretch)
        if tier is not Tier(row.tier):
            pace = replace(pace, tier=tier.value, for_ms=row.sla_ms)
        return None if pace == stored else pace

    def _reassign(self, row: StreamTableRow, schedule: Timed, took_ms: float, now: datetime) -> Tier:
        """Return the tier from now on; one that a person chose stays."""
        tier = Tier(row.tier)
        if row.sla_ms is None or row.fresh_until is None:
            return tier
        age_ms = (now - row.fresh_until) / ONE_MS
        if not will_break(row.sla_ms, age_ms, 0.0):
            self._warned.discard(row.pgt_id)
        if row.tier_by_hand or not self.settings().tiered_scheduling:
            return tier
        cycle = SlaSample(row.sla_ms, age_ms, took_ms, schedule)
        version, pressure = self._pressures.get(row.pgt_id, (row.pace_version, Pressure()))
        tier, pressure = reassign(tier, pressure if version == row.pace_version else Pressure(), cycle)
        self._pressures[row.pgt_id] = row.pace_version, pressure
        return tier

    def _follow_pace(self, row: StreamTableRow, schedule: Timed, took_ms: float) -> None:
        settings, before = self.settings(), self._pace(row)
        factor = factor_of(Tier(row.tier)) if settings.tiered_scheduling and row.tier != Tier.FROZEN.value else 1.0
        interval_ms = stretched_s(schedule, factor) * 1000
        pace = pace_after(before, took_ms, interval_ms, stretches=settings.auto_backoff)
        self._paces[row.pgt_id] = row.pace_version, pace
        if pace.is_behind and not before.is_behind:
            about = {"took_ms": round(took_ms), "interval_ms": round(interval_ms)}
            self.alert(AlertEvent.SCHEDULER_FALLING_BEHIND, pgt_id=row.pgt_id, **about)

    def note_failure(self, pgt_id: int) -> None:
        """Note that a refresh has ended without rows."""
        self._beside.pop(pgt_id, None)

    def forget(self, pgt_id: int) -> None:
        """Forget a stream table that was dropped, resumed or has a new query."""
        self._forget_durations(pgt_id)
        for held in (self._delays, self._paces, self._pressures, self._waited, self._beside):
            held.pop(pgt_id, None)
        for noted in (self._catching_up, self._warned, self._late_at_start):
            noted.discard(pgt_id)

    def _forget_durations(self, pgt_id: int) -> None:
        for method in RefreshMethod:
            self._durations.pop((pgt_id, method), None)
