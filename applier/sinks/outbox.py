"""Deltas that cannot be computed again in; the same deltas, until every sink has acknowledged them, out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import psycopg
import pyarrow as pa

from applier.catalog.database import connect
from applier.plan.stream_table import StreamTable
from applier.sinks.delta import DeltaRows, MemoryDelta
from applier.sinks.staging.staged_delta import StagedDelta
from applier.zset import WEIGHT, column_name
from shared_schema.lsn import Lsn, LsnRange

Cursor = psycopg.Cursor[tuple[object, ...]]

PART_ROWS = 65_536


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
        for batch in self.batches(PART_ROWS):
            rows += batch.num_rows
            has_deletions = has_deletions or MemoryDelta(self.lsn_range, batch).has_deletions
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
        return pa.concat_tables(self.batches(PART_ROWS))

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
                for start in range(0, rows.num_rows, size):
                    yield rows.slice(start, size)

    def retain(self) -> None:
        """Nothing to do: it stays until `acknowledge`."""

    def release(self, *, all_holders: bool = False) -> None:
        """Nothing to do: it stays until `acknowledge`."""


def _decode(rows: object) -> pa.Table:
    return pa.ipc.open_stream(rows).read_all()


def _count_parts(cursor: Cursor, pgt_id: int, lsn_range: LsnRange) -> int:
    cursor.execute(
        "SELECT count(*) FROM pgtrickle.pgt_outbox WHERE pgt_id = %s AND new_frontier = %s::pg_lsn",
        (pgt_id, str(lsn_range.upper)),
    )
    return int(str(cursor.fetchall()[0][0]))


def enqueue(cursor: Cursor, table: StreamTable, delta: DeltaRows) -> None:
    """Store the delta, in the transaction that applies it."""
    for part, rows in enumerate(_ordered_parts(cursor, table, delta)):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as stream:
            stream.write_table(rows)
        cursor.execute(
            "INSERT INTO pgtrickle.pgt_outbox VALUES (%s, %s::pg_lsn, %s::pg_lsn, %s, %s) ON CONFLICT DO NOTHING",
            (table.id, str(delta.lsn_range.lower), str(delta.lsn_range.upper), part, sink.getvalue().to_pybytes()),
        )


def _ordered_parts(cursor: Cursor, table: StreamTable, delta: DeltaRows) -> Iterator[pa.Table]:
    """Yield the parts; the two rows of an update are adjacent, because readers of parts need that."""
    if isinstance(delta, StagedDelta):
        # Its parts may have been made in this same transaction.
        return delta.batches(PART_ROWS, cursor.connection)
    if isinstance(delta, MemoryDelta) and delta.count > PART_ROWS and table.key:
        key = [(column_name(i), "ascending") for i in table.key]
        delta = MemoryDelta(delta.lsn_range, delta.rows.sort_by([*key, (WEIGHT, "ascending")]))
    return delta.batches(PART_ROWS)


def pending_deltas(cursor: Cursor, pgt_id: int, since: Lsn, url: str) -> list[MemoryDelta | OutboxDelta]:
    """Return the stored deltas that end after `since`, oldest first."""
    cursor.execute(
        "SELECT min(old_frontier)::text, new_frontier::text, count(*) FROM pgtrickle.pgt_outbox"
        " WHERE pgt_id = %s AND new_frontier > %s::pg_lsn GROUP BY new_frontier ORDER BY new_frontier",
        (pgt_id, str(since)),
    )
    pending: list[MemoryDelta | OutboxDelta] = []
    for old, new, parts in cursor.fetchall():
        delta = OutboxDelta(LsnRange(Lsn.parse(str(old)), Lsn.parse(str(new))), url, pgt_id)
        pending.append(MemoryDelta(delta.lsn_range, delta.rows) if parts == 1 else delta)
    return pending


def acknowledge(cursor: Cursor, pgt_id: int, until: Lsn) -> None:
    """Delete the deltas up to `until`: every sink has that frontier or a later one."""
    cursor.execute(
        "DELETE FROM pgtrickle.pgt_outbox WHERE pgt_id = %s AND new_frontier <= %s::pg_lsn", (pgt_id, str(until))
    )
