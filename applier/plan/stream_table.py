"""A stream table as the engine sees it: its name, its plan, its columns and the key that identifies its rows."""

from __future__ import annotations

from dataclasses import dataclass, field

from applier.plan.keys import row_key
from applier.plan.nodes import Node, Scan, StreamPlan, fields, scans
from shared_schema.dependency_facts import DependencyFacts
from shared_schema.table_schema import Column, TableId


@dataclass(frozen=True)
class PostgresQuery:
    """A query without a plan, so PostgreSQL runs it: its text, the captured tables that it reads, the reason."""

    query: str
    sources: frozenset[TableId]
    is_deterministic: bool
    """Whether its result can change only when those tables change."""
    refusal: str


@dataclass(frozen=True)
class StreamTable:
    """One stream table with its plan; `columns` are the table's own, in the order of the plan's output."""

    id: int
    table: TableId
    relid: int
    columns: tuple[Column, ...]
    plan: StreamPlan | PostgresQuery
    by_count: bool = False
    """Whether rows are identified by all their values and a count, even where there is a key."""
    facts: DependencyFacts | None = field(default=None, compare=False, repr=False)
    """What the catalog said of everything that it reads while it was planned."""
    scans: tuple[Scan, ...] = field(init=False)
    sources: frozenset[TableId] = field(init=False)
    key: tuple[int, ...] | None = field(init=False)
    """Ordinals that identify a row; None when rows may repeat."""
    not_null: frozenset[int] = field(init=False)
    """Ordinals that are never NULL."""

    def __post_init__(self) -> None:
        match self.plan:
            case StreamPlan(root=root):
                read = tuple(scans(root))
                self._set(read, frozenset(scan.table for scan in read), None if self.by_count else row_key(root))
                object.__setattr__(self, "not_null", frozenset(i for i, f in enumerate(fields(root)) if not f.nullable))
            case PostgresQuery(sources=sources):
                self._set((), sources, None)
                object.__setattr__(self, "not_null", frozenset())

    @property
    def root(self) -> Node:
        """The root of the plan; only for a stream table that has one."""
        if not isinstance(self.plan, StreamPlan):
            raise AssertionError(f"{self} has no plan: PostgreSQL runs its query")
        return self.plan.root

    def _set(self, read: tuple[Scan, ...], sources: frozenset[TableId], key: tuple[int, ...] | None) -> None:
        for name, value in (("scans", read), ("sources", sources), ("key", key)):
            object.__setattr__(self, name, value)

    def __str__(self) -> str:
        return str(self.table)
