"""A delta that the outbox holds: committed in PostgreSQL, and read from there in parts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import psycopg
import pyarrow as pa
import pyarrow.compute as pc

from applier.catalog.database import connect
from applier.sinks.lease import Lease
from applier.zset import WEIGHT
from shared_schema.lsn import LsnRange

OUTBOX_ROWS = 65_536


@dataclass(frozen=True)
class OutboxDelta:
    """A delta that the outbox holds in parts, and that is read part by part."""

    lsn_range: LsnRange
    url: str
    pgt_id: int

    @property
    def is_fill(self) -> bool:
        """Whether it is the full result, for a stream table that is still empty."""
        return not self.lsn_range.lower

    @cached_property
    def _counts(self) -> tuple[int, bool]:
        rows, has_deletions = 0, False
        for batch in self.batches(OUTBOX_ROWS):
            rows += batch.num_rows
            has_deletions = has_deletions or bool(pc.any(pc.less(batch[WEIGHT], 0)).as_py())
        return rows, has_deletions

    @property
    def count(self) -> int:
        """The number of net rows."""
        return self._counts[0]

    @property
    def has_deletions(self) -> bool:
        """Whether a row has a negative weight."""
        return self._counts[1]

    @property
    def schema(self) -> pa.Schema:
        """Columns and weight."""
        return next(self.batches(1)).schema

    @property
    def rows(self) -> pa.Table:
        """All rows, on the driver."""
        return pa.concat_tables(self.batches(OUTBOX_ROWS))

    def batches(self, size: int) -> Iterator[pa.Table]:
        """Yield the rows in batches, in the order in which they were stored."""
        with connect(self.url) as connection:
            for part in range(_count_parts(connection.cursor(), self.pgt_id, self.lsn_range)):
                found = connection.execute(
                    "SELECT rows FROM pgtrickle.pgt_outbox"
                    " WHERE pgt_id = %s AND new_frontier = %s::pg_lsn AND part = %s",
                    (self.pgt_id, str(self.lsn_range.upper), part),
                ).fetchone()
                rows = _decode(found[0] if found else b"")
                # One without rows is a batch too: it says that nothing changed.
                for start in range(0, max(1, rows.num_rows), size):
                    yield rows.slice(start, size)

    def lease(self) -> Lease[OutboxDelta]:
        """Open a lease; its end deletes nothing: the rows stay until `outbox.acknowledge`."""
        return Lease(self)


def _decode(rows: object) -> pa.Table:
    return pa.ipc.open_stream(rows).read_all()


def _count_parts(cursor: psycopg.Cursor[tuple[object, ...]], pgt_id: int, lsn_range: LsnRange) -> int:
    cursor.execute(
        "SELECT count(*) FROM pgtrickle.pgt_outbox WHERE pgt_id = %s AND new_frontier = %s::pg_lsn",
        (pgt_id, str(lsn_range.upper)),
    )
    return int(str(cursor.fetchall()[0][0]))
