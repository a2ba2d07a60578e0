"""The net difference of one stream table over one window, wherever its rows are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from applier.zset import WEIGHT
from shared_schema.lsn import LsnRange


class DeltaRows(Protocol):
    """The net difference of one stream table over one window, wherever its rows are."""

    @property
    def lsn_range(self) -> LsnRange:
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
class MemoryDelta:
    """The net difference of one stream table over one window: columns c0.., weight `__w`, no row twice, no zero."""

    lsn_range: LsnRange
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
        return not self.lsn_range.lower

    def batches(self, size: int) -> Iterator[pa.Table]:
        """The same rows in pieces."""
        for start in range(0, self.rows.num_rows, size):
            yield self.rows.slice(start, size)

    def retain(self) -> None:
        """It stays while somebody has it."""

    def release(self, *, all_holders: bool = False) -> None:
        """It goes when nobody has it."""
