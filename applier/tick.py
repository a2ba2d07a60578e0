"""One round: what arrived becomes part of the traces, every stream table advances to the same frontier, everywhere.

Reads as the flow and holds no logic of its own: the steps are the ports it is given.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Protocol

from applier.errors import Infrastructure
from applier.registry import Registered
from applier.stream_table import StreamTable, TableDelta
from shared_schema.errors import TrickleError
from shared_schema.lsn import Lsn, Window


class Ports(Protocol):
    """Everything a tick does to the world, in the order it does it."""

    def take_in(self) -> Lsn:
        """Move complete rows from the inbox to the traces; return the frontier they are complete to."""

    def stream_tables(self) -> list[tuple[Registered, StreamTable]]:
        """The stream tables in service whose query is understood."""

    def catch_up(self, table: StreamTable, at: Lsn) -> None:
        """Once after a start: bring the sinks behind PostgreSQL to the frontier PostgreSQL has."""

    def ready(self, table: StreamTable, frontier: Lsn) -> bool:
        """Whether every relation it reads is known as of the frontier."""

    def compute(self, table: StreamTable, window: Window) -> TableDelta | None:
        """Its net delta; None when nothing changed."""

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
    unchanged: dict[Lsn, list[int]] = {}
    for registered, table in ports.stream_tables():
        at = registered.lsn
        if at > frontier or not ports.ready(table, frontier):
            continue
        try:
            if at:
                ports.catch_up(table, at)
            if at == frontier:
                continue
            delta = ports.compute(table, Window(at, frontier))
            if delta is None or (at and not delta.rows.num_rows):
                unchanged.setdefault(at, []).append(table.id)
            else:
                ports.write_back(table, delta, as_of)
        except Infrastructure:
            raise
        except TrickleError as error:
            ports.suspend(registered, error)
    for at, ids in unchanged.items():
        ports.advance(ids, Window(at, frontier), as_of)
    ports.publish()
    return frontier
