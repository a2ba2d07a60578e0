"""One round: what arrived becomes part of the traces, every stream table advances to the same frontier, everywhere.

Reads as the flow and holds no logic of its own: the steps are the ports it is given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Protocol

from applier.registry import Registered
from applier.stream_table import StreamTable, TableDelta
from shared_schema.errors import TrickleError
from shared_schema.lsn import Lsn, Window

Outcome = TableDelta | TrickleError | None
"""A delta; why there is none and cannot be; or None when nothing changed."""


class Ports(Protocol):
    """Everything a tick does to the world, in the order it does it."""

    def take_in(self) -> Lsn:
        """Move complete rows from the inbox to the traces; return the frontier they are complete to."""

    def stream_tables(self) -> list[tuple[Registered, StreamTable]]:
        """The stream tables in service whose query is understood."""

    def catch_up(self, table: StreamTable, at: Lsn) -> None:
        """Once after a start: bring the sinks behind PostgreSQL to the frontier PostgreSQL has."""

    def ready(self, registered: Registered, table: StreamTable, frontier: Lsn) -> bool:
        """Whether everything it reads is known as of the frontier; raises when it will never be."""

    def compute(self, work: Sequence[tuple[StreamTable, Window]]) -> Iterator[Outcome]:
        """The net delta of each, in order; several at a time."""

    def write_back(self, table: StreamTable, delta: TableDelta, as_of: datetime) -> None:
        """Rows and frontier into PostgreSQL, then the delta is owed to the other sinks."""

    def advance(self, unchanged: list[int], window: Window, as_of: datetime) -> None:
        """The frontiers of stream tables that a window does not change."""

    def publish(self) -> None:
        """Everything owed to the topics, in one Kafka transaction."""

    def suspend(self, table: Registered, error: TrickleError) -> None:
        """Take one stream table out of service."""


def run_tick(ports: Ports) -> Lsn:
    """Advance every stream table to the frontier of what has arrived; return it. Safe to repeat after any failure."""
    frontier = ports.take_in()
    as_of = datetime.now(UTC)
    due = [
        (r, t)
        for r, t in ports.stream_tables()
        if r.lsn <= frontier and _succeeds(ports, r, partial(ports.ready, r, t, frontier))
    ]
    due = [(r, t) for r, t in due if not r.lsn or _succeeds(ports, r, partial(ports.catch_up, t, r.lsn))]
    behind = [(r, t) for r, t in due if r.lsn < frontier]
    unchanged: dict[Lsn, list[int]] = {}
    outcomes = ports.compute([(table, Window(registered.lsn, frontier)) for registered, table in behind])
    for (registered, table), outcome in zip(behind, outcomes, strict=True):
        match outcome:
            case TrickleError():
                ports.suspend(registered, outcome)
            case TableDelta() if outcome.is_fill or outcome.count or outcome.whole is not None:
                _succeeds(ports, registered, partial(ports.write_back, table, outcome, as_of))
            case _:
                unchanged.setdefault(registered.lsn, []).append(table.id)
    for at, ids in unchanged.items():
        ports.advance(ids, Window(at, frontier), as_of)
    ports.publish()
    return frontier


def _succeeds(ports: Ports, registered: Registered, step: Callable[[], bool | None]) -> bool:
    """Do it; what fails for good takes this one stream table out of service and nothing else."""
    try:
        return step() is not False
    except TrickleError as error:
        if error.retryable:
            raise
        ports.suspend(registered, error)
        return False
