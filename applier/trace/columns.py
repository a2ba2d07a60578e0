"""What a trace knows of each column, and for which frontiers. Pure.

A trace's columns only ever become more. A column is its name and its type: one that changes its type is another
column. A row that was written with another schema fills the columns it shares; the others get NULL and are *lost* from
that row's commit on, until the relation is captured again. Sums over the columns that are known stay exact, so a stream
table that does not read a lost column never notices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from applier.errors import SourceChanged
from applier.plan.expr import ValueType
from shared_schema.lsn import Lsn
from shared_schema.pg_types import PgType
from shared_schema.table_schema import Column


@dataclass(frozen=True, slots=True)
class Span:
    """The column's values are right at every frontier with since < frontier <= until."""

    since: Lsn
    until: Lsn | None = None
    reason: SourceChanged | None = None
    """Why it ended."""


@dataclass(frozen=True, slots=True)
class TraceColumn:
    """One column of a trace and the spans in which it is known, oldest first."""

    name: str
    type: PgType
    spans: tuple[Span, ...]

    def is_written_as(self, column: Column) -> bool:
        """Whether rows with that column carry this one's values."""
        return self.name == column.name and (self.type.oid, self.type.typmod) == (column.type.oid, column.type.typmod)

    def is_read_as(self, name: str, kind: ValueType) -> bool:
        """Whether a query that reads `name` means this column."""
        return self.name == name and self.type.spark_ddl == kind.spark

    @property
    def open(self) -> bool:
        """Whether it is known up to now."""
        return bool(self.spans) and self.spans[-1].until is None

    @property
    def reason(self) -> SourceChanged | None:
        """Why it is not known up to now."""
        return self.spans[-1].reason if self.spans else None

    def known_at(self, frontier: Lsn) -> bool:
        """Whether its values are right there."""
        return any(s.since < frontier and (s.until is None or frontier <= s.until) for s in self.spans)

    def coming_at(self, frontier: Lsn) -> bool:
        """Whether it will be known, but the frontier has not yet passed the capture."""
        return self.open and frontier <= self.spans[-1].since

    def captured(self, at: Lsn) -> TraceColumn:
        """A capture brought its values."""
        return self if self.open else replace(self, spans=(*self.spans, Span(at)))

    def lost(self, at: Lsn, reason: SourceChanged) -> TraceColumn:
        """A row of the commit at `at` did not bring its value. One from before the last capture says nothing."""
        if not self.open or at < self.spans[-1].since:
            return self
        return replace(self, spans=(*self.spans[:-1], replace(self.spans[-1], until=at, reason=reason)))

    def to_json(self) -> dict[str, Any]:
        """For the checkpoint's manifest."""
        kind = self.type
        spans = [
            [str(s.since), str(s.until) if s.until else None, [s.reason.problem, s.reason.hint] if s.reason else None]
            for s in self.spans
        ]
        return {"name": self.name, "type": [kind.oid, kind.typmod, kind.name, kind.display], "spans": spans}

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> TraceColumn:
        """The inverse of to_json."""
        spans = tuple(
            Span(
                Lsn.parse(since),
                Lsn.parse(until) if until else None,
                SourceChanged(reason[0], hint=reason[1]) if reason else None,
            )
            for since, until, reason in stored["spans"]
        )
        return cls(stored["name"], PgType(*stored["type"]), spans)


def captured_columns(known: Sequence[TraceColumn], present: Sequence[Column], at: Lsn) -> tuple[TraceColumn, ...]:
    """The trace's columns after a capture at `at` of a relation with the `present` ones: the old, then the new."""

    def after(column: TraceColumn) -> TraceColumn:
        if any(column.is_written_as(c) for c in present):
            return column.captured(at)
        return column.lost(at, without_column(column, present))

    new = [c for c in present if not any(k.is_written_as(c) for k in known)]
    return (*map(after, known), *(TraceColumn(c.name, c.type, (Span(at),)) for c in new))


def without_column(column: TraceColumn, present: Sequence[Column]) -> SourceChanged:
    """Why rows with the `present` columns do not bring this one."""
    now = next((f"is now {c.type.display}" for c in present if c.name == column.name), "is gone")
    return SourceChanged(
        f"column {column.name} {now}, it was {column.type.display} when it was captured",
        hint="drop and create the stream table once the change is final",
    )
