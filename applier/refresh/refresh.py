"""One refresh of one stream table: what is to be done, and what came of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from applier.catalog.history import Executed
from applier.catalog.stream_tables import StreamTableRow
from applier.plan.stream_table import StreamTable
from applier.refresh.strategy import Strategy, Why
from applier.sinks.delta import TableDelta
from applier.sinks.postgres.full_diff import TableContents
from applier.sinks.staging.staged_delta import Difference, StagedDelta
from shared_schema.errors import TrickleError
from shared_schema.lsn import Window

Rows = Difference | TableContents
"""A difference, or everything there should be."""

Outcome = Rows | TrickleError | None
"""The rows; why there are none; or None when nothing changed."""


@dataclass(frozen=True)
class Task:
    """A refresh that is due. PostgreSQL chooses the window's end itself when it runs the query."""

    registered: StreamTableRow
    table: StreamTable
    window: Window
    strategy: Strategy
    changes: int
    """Change rows of its sources in the window."""
    source_rows: int
    as_of: datetime


@dataclass(frozen=True)
class Done:
    """A refresh whose rows are known, not yet written."""

    task: Task
    outcome: Outcome
    started: datetime
    compute_ms: float

    @property
    def window(self) -> Window:
        """Where it leads."""
        return (
            self.outcome.window
            if isinstance(self.outcome, TableDelta | StagedDelta | TableContents)
            else self.task.window
        )

    def discard(self) -> None:
        """Nobody writes it."""
        if isinstance(self.outcome, TableDelta | StagedDelta | TableContents):
            self.outcome.release(all_holders=True)

    @property
    def executed(self) -> Executed:
        """For the history."""
        task, strategy = self.task, self.task.strategy
        return Executed(
            action=strategy.way.value,
            reason=strategy.why.value,
            detail=strategy.detail,
            initiated_by=initiator(task),
            started=self.started,
            rows_in=task.changes,
            compute_ms=self.compute_ms,
        )


Change = tuple[Done, Rows]
"""A refresh with the rows it came to."""


def initiator(task: Task) -> str:
    """Who wanted the refresh."""
    if task.strategy.why is Why.INITIAL:
        return "INITIAL"
    return "MANUAL" if task.registered.refresh_requested else "SCHEDULER"


def together(unchanged: Iterable[Done]) -> dict[Window, list[Done]]:
    """Those that share a window, so that one statement moves them."""
    groups: dict[Window, list[Done]] = {}
    for done in unchanged:
        groups.setdefault(done.window, []).append(done)
    return groups
