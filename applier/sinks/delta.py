"""The delta of one stream table over one LSN range: the interface that all sinks read, and the form in memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from applier.zset import WEIGHT
from shared_schema.lsn import LsnRange


class DeltaRows(Protocol):
    """The delta of one stream table over one LSN range, wherever its rows are stored."""

    @property
    def lsn_range(self) -> LsnRange:
        """The range that it covers."""

    @property
    def schema(self) -> pa.Schema:
        """Columns c0.., then the weight."""

    @property
    def rows(self) -> pa.Table:
        """All rows, on the driver."""

    @property
    def count(self) -> int:
        """The number of net rows."""

    @property
    def has_deletions(self) -> bool:
        """Whether a row has a negative weight."""

    @property
    def is_fill(self) -> bool:
        """Whether it is the full result, for a stream table that is still empty."""

    def batches(self, size: int) -> Iterator[pa.Table]:
        """Yield the rows in batches; with a key, the two rows of an update are adjacent unless all are in memory."""

    def retain(self) -> None:
        """Add a holder: a sink that will read it."""

    def release(self, *, all_holders: bool = False) -> None:
        """Remove one holder, or all of them."""


@dataclass(frozen=True)
class MemoryDelta:
    """A delta in Arrow: columns c0.., weight `__w`, no row twice, no weight zero."""

    lsn_range: LsnRange
    rows: pa.Table
    appended: bool = False
    """Whether it only inserts, into an append-only stream table: PostgreSQL need not look its rows up."""

    @property
    def schema(self) -> pa.Schema:
        """Columns c0.., then the weight."""
        return self.rows.schema

    @property
    def count(self) -> int:
        """The number of net rows."""
        return int(self.rows.num_rows)

    @property
    def has_deletions(self) -> bool:
        """Whether a row has a negative weight."""
        return bool(pc.any(pc.less(self.rows[WEIGHT], 0)).as_py())

    @property
    def is_fill(self) -> bool:
        """Whether it is the full result, for a stream table that is still empty."""
        return not self.lsn_range.lower

    def batches(self, size: int) -> Iterator[pa.Table]:
        """Yield the rows in batches."""
        for start in range(0, self.rows.num_rows, size):
            yield self.rows.slice(start, size)

    def retain(self) -> None:
        """Nothing to do: Python frees the memory."""

    def release(self, *, all_holders: bool = False) -> None:
        """Nothing to do: Python frees the memory."""
