"""The delta of one stream table over one LSN range, wherever its rows are: in memory, staged in PostgreSQL, or in the
outbox.

Every kind has `lsn_range`, `schema` (columns c0.., then the weight), `count`, `has_deletions`, `is_fill`, `rows` (all
of them, on the driver), `batches`, and `lease`: a reader reads under a lease.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from applier.sinks.lease import Lease
from applier.sinks.outbox_delta import OutboxDelta
from applier.sinks.staging.staged_delta import StagedDelta
from applier.zset import WEIGHT
from shared_schema.lsn import LsnRange

__all__ = ["ComputedDelta", "Delta", "MemoryDelta", "OutboxDelta", "StagedDelta"]


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

    def lease(self) -> Lease[MemoryDelta]:
        """Open a lease; its end deletes nothing: Python frees the memory."""
        return Lease(self)


ComputedDelta = MemoryDelta | StagedDelta
"""A delta that PostgreSQL has not committed yet."""

Delta = ComputedDelta | OutboxDelta
"""Any delta. Readers that treat the kinds differently match all three."""
