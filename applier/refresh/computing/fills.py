"""Refreshes that are about to be computed in; those that may be, as far as earlier ones did not end the process, out.

A computation that uses all memory takes the process along: nobody can say afterwards which one it was. So each that is
long, or fills or repairs a stream table, is counted in the catalog before it begins, until its rows are written or its
failure is known. What was counted by an earlier process is computed again only while no other one of these is: then the
next end of the process names the right one.

Small refreshes are too many to be counted, and one of them may do the same. So a process whose predecessor died watches
them for some time: it notes together those that each tick computes. If it dies too, these are suspected, and the next
process computes them one by one and counts them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from applier.catalog.stream_tables import StreamTableStore
from applier.errors import FillCrashed
from applier.refresh.method.refresh import Refresh
from applier.refresh.method.refresh_planner import is_long_refresh
from applier.refresh.method.strategy import RefreshMethod

MAX_UNFINISHED_FILLS = 3
"""After so many times that a computation began and never ended, it is not tried again by itself."""

WATCH_S = 600.0
"""For so long after a start small refreshes are noted, if the last process died: most that die again do it at once."""


@dataclass
class Fills:
    """Counts the computations that began and did not end."""

    store: StreamTableStore
    clock: Callable[[], float] = time.monotonic
    _begun: set[int] = field(default_factory=set)
    """The stream tables whose computation this process has counted."""
    _suspects: set[int] = field(default_factory=set)
    """Those of them that an earlier process had counted, or was computing when it died."""
    _watch_until: float | None = None
    """Until when small refreshes are noted; None before the first refresh."""
    _noted: frozenset[int] = frozenset()
    """The stream tables that the catalog has as being refreshed, not counted."""

    def begin(
        self, refreshes: Sequence[Refresh], is_busy: Callable[[int], bool]
    ) -> tuple[list[Refresh], list[tuple[Refresh, FillCrashed]]]:
        """Count these refreshes; return those that may be computed now, and those that ended the process too often.

        `is_busy` says whether rows of a stream table are being computed or written beside the ticks.
        """
        is_watching = self._is_watching()
        self._suspects = {pgt_id for pgt_id in self._suspects if is_busy(pgt_id)}
        concerned = [r for r in refreshes if _may_end_the_process(r) or (is_watching and _runs_in_spark(r))]
        doubtful = {r.table.id for r in concerned} - self._begun
        suspected = self.store.suspected(doubtful) if doubtful else {}
        noted = {pgt_id for pgt_id in self._noted if is_busy(pgt_id)}
        admitted: list[Refresh] = []
        refused: list[tuple[Refresh, FillCrashed]] = []
        for refresh in refreshes:
            pgt_id = refresh.table.id
            unfinished = suspected.get(pgt_id, 0)
            if pgt_id not in doubtful:
                admitted.append(refresh)
            elif unfinished >= MAX_UNFINISHED_FILLS:
                self.store.end_fill(pgt_id)
                refused.append((refresh, _crashed(unfinished)))
            elif pgt_id in suspected and self._suspects:
                continue
            elif pgt_id in suspected or _may_end_the_process(refresh):
                self.store.begin_fill(pgt_id)
                self._begun.add(pgt_id)
                if pgt_id in suspected:
                    self._suspects.add(pgt_id)
                admitted.append(refresh)
            else:
                noted.add(pgt_id)
                admitted.append(refresh)
        if noted != self._noted:
            self.store.note_begun(noted)
            self._noted = frozenset(noted)
        return admitted, refused

    def _is_watching(self) -> bool:
        """Whether small refreshes are noted."""
        if self._watch_until is None:
            has_died = self.store.begin_run()
            self._watch_until = self.clock() + (WATCH_S if has_died else 0.0)
        return self.clock() < self._watch_until

    def end(self, pgt_id: int) -> None:
        """Note that a computation ended, whatever came of it."""
        if pgt_id in self._begun:
            self.store.end_fill(pgt_id)
            self._begun.discard(pgt_id)
            self._suspects.discard(pgt_id)

    def end_all(self) -> None:
        """Note that this process ends by itself."""
        for pgt_id in list(self._begun):
            self.end(pgt_id)
        if self._watch_until is not None:
            self.store.end_run()


def _may_end_the_process(refresh: Refresh) -> bool:
    """Whether a refresh reads much: PostgreSQL runs a query beside the process."""
    is_fill = not refresh.row.lsn or refresh.row.reinitializes or refresh.row.partial
    return is_fill or (refresh.strategy.method is not RefreshMethod.IN_POSTGRES and is_long_refresh(refresh))


def _runs_in_spark(refresh: Refresh) -> bool:
    """Whether the process computes something for a refresh."""
    return refresh.strategy.method not in (RefreshMethod.IN_POSTGRES, RefreshMethod.NO_DATA)


def _crashed(unfinished: int) -> FillCrashed:
    return FillCrashed(
        f"the applier ended {unfinished} times while it computed the rows of the query",
        hint="make the query smaller (alter_stream_table), or give the applier more memory; then SELECT"
        " pgtrickle.resume_stream_table(…)",
    )
