"""A stream table as the engine sees it: what it is called, what it computes, how its rows are told apart."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

import pyarrow as pa

from applier.plan.nodes import StreamPlan, row_key, scans
from shared_schema.lsn import Window
from shared_schema.table_schema import Column, TableId


class Status(Enum):
    """As stored in pgt_stream_tables.status."""

    INITIALIZING = "INITIALIZING"
    ACTIVE = "ACTIVE"
    PAUSED = "PAUSED"
    SUSPENDED = "SUSPENDED"


@dataclass(frozen=True)
class StreamTable:
    """One stream table with its plan; `columns` are the table's own, in the order of the plan's output."""

    id: int
    table: TableId
    relid: int
    columns: tuple[Column, ...]
    plan: StreamPlan
    sources: frozenset[TableId] = field(init=False)
    key: tuple[int, ...] | None = field(init=False)
    """Ordinals that identify a row; None when rows may repeat."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "sources", frozenset(scan.table for scan in scans(self.plan.root)))
        object.__setattr__(self, "key", row_key(self.plan.root))

    def __str__(self) -> str:
        return str(self.table)


@dataclass(frozen=True)
class TableDelta:
    """The net difference of one stream table over one window: columns c0.., weight `__w`, no row twice, no zero."""

    window: Window
    rows: pa.Table
    whole: pa.Table | None = None
    """The content at the window's end, where PostgreSQL holds neither that of its beginning nor that of its end."""

    @property
    def count(self) -> int:
        """How many net rows."""
        return int(self.rows.num_rows)

    @property
    def is_fill(self) -> bool:
        """Whether it is the whole content, for a place that holds nothing yet."""
        return not self.window.old
