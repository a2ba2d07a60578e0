"""A stream table as the engine sees it: what it is called, what it computes, how its rows are told apart."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from applier.plan.nodes import Node, Scan, StreamPlan, fields, row_key, scans
from applier.zset import WEIGHT
from shared_schema.lsn import Window
from shared_schema.table_schema import Column, TableId


class Status(Enum):
    """As stored in pgt_stream_tables.status."""

    INITIALIZING = "INITIALIZING"
    ACTIVE = "ACTIVE"
    PAUSED = "PAUSED"
    SUSPENDED = "SUSPENDED"


@dataclass(frozen=True)
class RunByPostgres:
    """A query that has no plan, so PostgreSQL runs it: its text, the captured tables it reads, why it has none."""

    query: str
    sources: frozenset[TableId]
    steady: bool
    """Whether its result can only change with those tables."""
    refusal: str


@dataclass(frozen=True)
class StreamTable:
    """One stream table with its plan; `columns` are the table's own, in the order of the plan's output."""

    id: int
    table: TableId
    relid: int
    columns: tuple[Column, ...]
    plan: StreamPlan | RunByPostgres
    counted: bool = False
    """Whether rows are told apart by counting them even where there is a key."""
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
                self._set(read, frozenset(scan.table for scan in read), None if self.counted else row_key(root))
                object.__setattr__(self, "not_null", frozenset(i for i, f in enumerate(fields(root)) if not f.nullable))
            case RunByPostgres(sources=sources):
                self._set((), sources, None)
                object.__setattr__(self, "not_null", frozenset())

    @property
    def root(self) -> Node:
        """Of the plan; nobody may ask who did not make sure that there is one."""
        if not isinstance(self.plan, StreamPlan):
            raise AssertionError(f"{self} has no plan: PostgreSQL runs its query")
        return self.plan.root

    def _set(self, read: tuple[Scan, ...], sources: frozenset[TableId], key: tuple[int, ...] | None) -> None:
        for name, value in (("scans", read), ("sources", sources), ("key", key)):
            object.__setattr__(self, name, value)

    def __str__(self) -> str:
        return str(self.table)


class Delta(Protocol):
    """The net difference of one stream table over one window, wherever its rows are."""

    @property
    def window(self) -> Window:
        """What it covers."""

    @property
    def schema(self) -> pa.Schema:
        """Columns c0.., then the weight."""

    @property
    def rows(self) -> pa.Table:
        """All of it on the driver."""

    @property
    def count(self) -> int:
        """How many net rows."""

    @property
    def leaving(self) -> bool:
        """Whether any row leaves."""

    @property
    def is_fill(self) -> bool:
        """Whether it is the whole content, for a place that holds nothing yet."""

    def batches(self, size: int) -> Iterator[pa.Table]:
        """The rows in pieces; with a key, the two rows of an update are neighbours unless they are in memory anyway."""

    def retain(self) -> None:
        """A sink is handed it."""

    def release(self, *, all_holders: bool = False) -> None:
        """A sink has read it and needs it no more, or nobody does."""


@dataclass(frozen=True)
class TableDelta:
    """The net difference of one stream table over one window: columns c0.., weight `__w`, no row twice, no zero."""

    window: Window
    rows: pa.Table
    appended: bool = False
    """Whether its rows only come, into a stream table that says so of itself: they need not be looked for."""

    @property
    def schema(self) -> pa.Schema:
        """Columns c0.., then the weight."""
        return self.rows.schema

    @property
    def count(self) -> int:
        """How many net rows."""
        return int(self.rows.num_rows)

    @property
    def leaving(self) -> bool:
        """Whether any row leaves."""
        return bool(pc.any(pc.less(self.rows[WEIGHT], 0)).as_py())

    @property
    def is_fill(self) -> bool:
        """Whether it is the whole content, for a place that holds nothing yet."""
        return not self.window.old

    def batches(self, size: int) -> Iterator[pa.Table]:
        """The same rows in pieces."""
        for start in range(0, self.rows.num_rows, size):
            yield self.rows.slice(start, size)

    def retain(self) -> None:
        """It stays while somebody has it."""

    def release(self, *, all_holders: bool = False) -> None:
        """It goes when nobody has it."""
