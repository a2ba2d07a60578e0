"""Plans that were made before the first look at the catalog in; those that the first tick may use out.

A plan is exact when its analysis stands between two equal readings of what it rests on. Here the first reading comes
before all analyses, and the second one is the first look: if not one row of the catalog about any of the objects was
written in between (`DependencyStore.digest`), the plans are those that would be made after the look. Else none is used.
So a query is analysed once, and while Spark starts. A stream table that reads another one is planned over that one's
query: the definitions of all must be the same too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from applier.catalog.dependencies import ObjectIds
from applier.catalog.stream_tables import StreamTableRow
from applier.plan.stream_table import StreamTable


@dataclass
class PlansAhead:
    """The plans that were made ahead; each is taken once."""

    first_reading: tuple[ObjectIds, str] | None = None
    """The objects of all stored facts, and their digest before the first query was analysed."""
    tables: dict[int, StreamTable] = field(default_factory=dict)
    """Only those whose facts are the stored ones, so that all they rest on is in the digest."""
    definitions: Mapping[int, tuple[object, ...]] = field(default_factory=dict)
    """The definitions of all stream tables, also of those that were not planned."""

    def compare(self, reading: tuple[ObjectIds, str] | None) -> None:
        """Drop all plans unless this reading is like the first one."""
        if reading != self.first_reading:
            self.tables.clear()

    def compare_definitions(self, rows: Iterable[StreamTableRow]) -> None:
        """Drop all plans unless every stream table is still defined as it was; others may have joined."""
        if self.tables and not self.definitions.items() <= definitions(rows).items():
            self.tables.clear()

    def take(self, row: StreamTableRow) -> StreamTable | None:
        """Return the plan of a stream table, unless all of it is to be computed: then it is planned in the tick."""
        table = self.tables.pop(row.pgt_id, None)
        return None if row.reinitializes else table


def definitions(rows: Iterable[StreamTableRow]) -> dict[int, tuple[object, ...]]:
    """Return by stream table what plans are made from, besides the catalog."""
    return {row.pgt_id: _inputs(row) for row in rows}


def _inputs(row: StreamTableRow) -> tuple[object, ...]:
    return (
        row.pgt_relid,
        row.table,
        row.original_query,
        row.defining_query,
        row.created_at,
        row.refresh_mode,
        row.full_policy,
        tuple(row.reads),
        row.reads_uncaptured,
    )
