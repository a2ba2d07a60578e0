"""The columns of a trace, and at which frontiers the values of each are known. Pure.

Columns are only ever added to a trace. A column is its name and its type: a column that changes its type becomes
another column. A row that was written with another schema fills the columns that both have. The others get NULL and are
*lost* from that row's commit on, until the relation is captured again. Sums over known columns stay exact, so a stream
table that does not read a lost column is not affected.
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
    """The values of the column are right at every frontier with since < frontier <= until."""

    since: Lsn
    until: Lsn | None = None
    reason: SourceChanged | None = None
    """Why the span ended."""


@dataclass(frozen=True, slots=True)
class TraceColumn:
    """One column of a trace and the spans in which it is known, oldest first."""

    name: str
    type: PgType
    spans: tuple[Span, ...]

    def is_written_as(self, column: Column) -> bool:
        """Whether rows with that column contain the values of this one."""
        return self.name == column.name and (self.type.oid, self.type.typmod) == (column.type.oid, column.type.typmod)

    def is_read_as(self, name: str, kind: ValueType) -> bool:
        """Whether a query that reads `name` means this column."""
        return self.name == name and self.type.spark_ddl == kind.spark

    @property
    def is_open(self) -> bool:
        """Whether the column is known up to now."""
        return bool(self.spans) and self.spans[-1].until is None

    @property
    def reason(self) -> SourceChanged | None:
        """Why the column is not known up to now."""
        return self.spans[-1].reason if self.spans else None

    def is_known_at(self, frontier: Lsn) -> bool:
        """Whether the values of the column are right at this frontier."""
        return any(s.since < frontier and (s.until is None or frontier <= s.until) for s in self.spans)

    def is_coming_at(self, frontier: Lsn) -> bool:
        """Whether the column will be known once the frontier passes its capture."""
        return self.is_open and frontier <= self.spans[-1].since

    def with_capture(self, at: Lsn) -> TraceColumn:
        """Return the column after a capture that contains its values."""
        return self if self.is_open else replace(self, spans=(*self.spans, Span(at)))

    def with_loss(self, at: Lsn, reason: SourceChanged) -> TraceColumn:
        """Return the column after a row of the commit at `at` that lacks its value; earlier than the last capture such
        a row changes nothing."""
        if not self.is_open or at < self.spans[-1].since:
            return self
        return replace(self, spans=(*self.spans[:-1], replace(self.spans[-1], until=at, reason=reason)))

    def to_json(self) -> dict[str, Any]:
        """Return the column as JSON for the manifest of a checkpoint."""
        kind = self.type
        spans = [
            [str(s.since), str(s.until) if s.until else None, [s.reason.problem, s.reason.hint] if s.reason else None]
            for s in self.spans
        ]
        return {"name": self.name, "type": [kind.oid, kind.typmod, kind.name, kind.display], "spans": spans}

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> TraceColumn:
        """Read a column from the JSON of `to_json`."""
        spans = tuple(
            Span(
                Lsn.parse(since),
                Lsn.parse(until) if until else None,
                SourceChanged(reason[0], hint=reason[1]) if reason else None,
            )
            for since, until, reason in stored["spans"]
        )
        return cls(stored["name"], PgType(*stored["type"]), spans)


def rows_column(*spans: Span) -> TraceColumn:
    """Return the spans in which all rows of a trace are known, in the form of a column that every scan reads."""
    return TraceColumn("", PgType(16, -1, "bool", "boolean"), spans)


def captured_columns(known: Sequence[TraceColumn], present: Sequence[Column], at: Lsn) -> tuple[TraceColumn, ...]:
    """Return the columns of a trace, old ones first, after a capture at `at` with the `present` columns."""

    def after(column: TraceColumn) -> TraceColumn:
        if any(column.is_written_as(c) for c in present):
            return column.with_capture(at)
        return column.with_loss(at, without_column(column, present))

    new = [c for c in present if not any(k.is_written_as(c) for k in known)]
    return (*map(after, known), *(TraceColumn(c.name, c.type, (Span(at),)) for c in new))


def without_column(column: TraceColumn, present: Sequence[Column]) -> SourceChanged:
    """Return the reason why rows with the `present` columns do not contain this column."""
    now = next((f"is now {c.type.display}" for c in present if c.name == column.name), "is gone")
    return SourceChanged(
        f"column {column.name} {now}; when it was captured it was {column.type.display}",
        hint="SELECT pgtrickle.reinitialize_stream_table(name) once the change is final",
    )
