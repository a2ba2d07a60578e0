"""The outcome of each refresh in; a retry, a suspension or a note of success, in the scheduler and the catalog, out."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from applier import metrics
from applier.catalog.catalog import Catalog
from applier.catalog.stream_tables import StreamTableRow
from applier.errors import RefreshFailed, TargetFull
from applier.refresh.computing.fills import Fills
from applier.refresh.method.refresh import Refresh, RefreshResult
from applier.refresh.method.strategy import RefreshMethod, RefreshReason
from applier.refresh.scheduler import Scheduler
from applier.unexpected import to_own_error
from shared_schema.alerts import AlertEvent
from shared_schema.errors import TrickleError

log = logging.getLogger(__name__)


@dataclass
class FailurePolicy:
    """Decides what a failure means for a stream table. One that is retryable is not its own: the tick is repeated."""

    scheduler: Scheduler
    catalog: Catalog
    _noted: dict[int, tuple[RefreshMethod, RefreshReason, datetime | None]] = field(default_factory=dict)
    """The state of each stream table that was last written to the catalog."""
    _paced: dict[int, int] = field(default_factory=dict)
    """The version of schedule, SLA and tier for which it is stored when a stream table is due."""

    fills: Fills = field(init=False)

    def __post_init__(self) -> None:
        self.fills = Fills(self.catalog.stream_tables)

    def begin(self, refreshes: Sequence[Refresh], is_busy: Callable[[int], bool]) -> list[Refresh]:
        """Return the refreshes that may be computed now; one that ended the process too often is suspended."""
        admitted, refused = self.fills.begin(refreshes, is_busy)
        for refresh, error in refused:
            self.fail(refresh.row, error)
        return admitted

    @contextmanager
    def contain(self, row: StreamTableRow, result: RefreshResult | None = None) -> Iterator[None]:
        """Run the block; any failure in it affects only this stream table. A retryable one is raised."""
        try:
            yield
        except Exception as error:
            self.fail(row, to_own_error(row.table, error), result)

    def fail(self, row: StreamTableRow, error: TrickleError, result: RefreshResult | None = None) -> None:
        """Schedule a retry when other rows may solve the problem; else suspend the stream table with the reason."""
        self.fills.end(row.pgt_id)
        if result is not None:
            self.catalog.history.record_failure(row.pgt_id, result.execution, result.lsn_range, error)
        errors, is_full = None, isinstance(error, TargetFull)
        if isinstance(error, RefreshFailed):
            errors = self.scheduler.note_failure(row.pgt_id, datetime.now(UTC), for_ever=is_full)
        if errors is not None:
            event = AlertEvent.DISK_FULL if is_full else AlertEvent.REFRESH_FAILED
            about: dict[str, int | float | str] = {
                "stream_table": str(row.table),
                "errors": errors,
                "detail": error.problem,
                "hint": error.hint,
            }
            self.catalog.service.alert(event, pgt_id=row.pgt_id, **about)
            log.warning("refresh failed", extra={"table": str(row.table), "error": error.log_text, "errors": errors})
            self.catalog.history.note_errors(row.pgt_id, errors)
            self._noted.pop(row.pgt_id, None)
            return
        log.error("stream table suspended", extra={"table": str(row.table), "error": error.log_text})
        self.scheduler.forget(row.pgt_id)
        self.catalog.stream_tables.suspend(row.pgt_id, error)
        metrics.SUSPENSIONS.inc()

    def note_schedules(self, rows: Iterable[StreamTableRow]) -> None:
        """Store when those are due whose schedule, SLA or tier was altered, or that this process has not seen yet."""
        altered = [row for row in rows if self._paced.get(row.pgt_id) != row.pace_version]
        if altered:
            due = {
                row.pgt_id: self.scheduler.next_refresh(row, row.refreshed_at) for row in altered if row.refreshed_at
            }
            self.catalog.history.note_due(due)
            for row in altered:
                self._paced[row.pgt_id] = row.pace_version
                self._noted.pop(row.pgt_id, None)

    def note_success(self, result: RefreshResult) -> None:
        """Forget the failures of a stream table; write its method and next refresh to the catalog if they are new."""
        row, strategy = result.refresh.row, result.refresh.strategy
        self.fills.end(row.pgt_id)
        if strategy.method is RefreshMethod.IN_POSTGRES:
            self.scheduler.pause_after_query(row.pgt_id, datetime.now(UTC), result.compute_ms)
        self.scheduler.note_success(row.pgt_id)
        noted = self._noted.get(row.pgt_id)
        method, reason = (
            (strategy.method, strategy.reason)
            if strategy.method is not RefreshMethod.NO_DATA or noted is None
            else noted[:2]
        )
        pace = self.scheduler.note_measured(result, datetime.now(UTC))
        if pace is not None and pace.tier is not None and pace.for_ms == row.sla_ms and not row.tier_by_hand:
            row = replace(row, tier=pace.tier)
        if self._paced.get(row.pgt_id) != row.pace_version:
            # It was altered meanwhile: when it is due is stored once more.
            self._paced.pop(row.pgt_id, None)
        state = method, reason, self.scheduler.next_refresh(row, result.refresh.as_of)
        if noted != state:
            self.catalog.history.note_state(row.pgt_id, method.value, reason.value, state[2])
            self._noted[row.pgt_id] = state
        if pace is not None:
            self.catalog.history.note_pace(row.pgt_id, pace)
