"""Refreshes that are about to be computed in; those that may be, as far as earlier ones did not end the process, out.

A computation that uses all memory takes the process along: nobody can say afterwards which one it was. So each that is
long, or fills or repairs a stream table, is counted in the catalog before it begins, until its rows are written or its
failure is known. What was counted by an earlier process is computed again only while no other one of these is: then the
next end of the process names the right one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from applier.catalog.stream_tables import StreamTableStore
from applier.errors import FillCrashed
from applier.refresh.method.refresh import Refresh
from applier.refresh.method.refresh_planner import is_long_refresh
from applier.refresh.method.strategy import RefreshMethod

MAX_UNFINISHED = 3
"""After so many times that a computation began and never ended, it is not tried again by itself."""


@dataclass
class Fills:
    """Counts the computations that began and did not end."""

    store: StreamTableStore
    _begun: set[int] = field(default_factory=set)
    """The stream tables whose computation this process has counted."""
    _suspects: set[int] = field(default_factory=set)
    """Those of them that an earlier process had counted."""

    def begin(
        self, refreshes: Sequence[Refresh], is_busy: Callable[[int], bool]
    ) -> tuple[list[Refresh], list[tuple[Refresh, FillCrashed]]]:
        """Count these refreshes; return those that may be computed now, and those that ended the process too often.

        `is_busy` says whether rows of a stream table are being computed or written beside the ticks.
        """
        self._suspects = {pgt_id for pgt_id in self._suspects if is_busy(pgt_id)}
        admitted: list[Refresh] = []
        refused: list[tuple[Refresh, FillCrashed]] = []
        for refresh in refreshes:
            pgt_id = refresh.table.id
            if not _may_end_the_process(refresh) or pgt_id in self._begun:
                admitted.append(refresh)
                continue
            unfinished = self.store.unfinished_fills(pgt_id)
            if unfinished >= MAX_UNFINISHED:
                self.store.end_fill(pgt_id)
                refused.append((refresh, _crashed(unfinished)))
            elif unfinished and self._suspects:
                continue
            else:
                self.store.begin_fill(pgt_id)
                self._begun.add(pgt_id)
                if unfinished:
                    self._suspects.add(pgt_id)
                admitted.append(refresh)
        return admitted, refused

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


def _may_end_the_process(refresh: Refresh) -> bool:
    """Whether a refresh reads much: PostgreSQL runs a query beside the process."""
    is_fill = not refresh.row.lsn or refresh.row.reinitializes or refresh.row.partial
    return is_fill or (refresh.strategy.method is not RefreshMethod.IN_POSTGRES and is_long_refresh(refresh))


def _crashed(unfinished: int) -> FillCrashed:
    return FillCrashed(
        f"the applier ended {unfinished} times while it computed the rows of the query",
        hint="make the query smaller (alter_stream_table), or give the applier more memory; then SELECT"
        " pgtrickle.resume_stream_table(…)",
    )
