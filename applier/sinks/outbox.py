"""Deltas that cannot be computed again in; the same deltas, until every sink has acknowledged them, out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

import psycopg
import pyarrow as pa

from applier.plan.stream_table import StreamTable
from applier.sinks.delta import Delta, MemoryDelta, OutboxDelta, StagedDelta
from applier.sinks.outbox_delta import OUTBOX_ROWS
from applier.zset import WEIGHT, column_name
from shared_schema.lsn import ORIGIN, Lsn, LsnRange

Cursor = psycopg.Cursor[tuple[object, ...]]


def enqueue(cursor: Cursor, table: StreamTable, delta: Delta, *, also_empty: bool = False) -> None:
    """Store the delta, in the transaction that applies it; one without rows only with `also_empty`."""
    is_kept = also_empty and isinstance(delta, MemoryDelta) and not delta.rows.num_rows
    parts = iter([delta.rows]) if is_kept else _ordered_parts(cursor, table, delta)
    for part, rows in enumerate(parts):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as stream:
            stream.write_table(rows)
        cursor.execute(
            "INSERT INTO pgtrickle.pgt_outbox VALUES (%s, %s::pg_lsn, %s::pg_lsn, %s, %s) ON CONFLICT DO NOTHING",
            (table.id, str(delta.lsn_range.lower), str(delta.lsn_range.upper), part, sink.getvalue().to_pybytes()),
        )


def enqueue_refill(cursor: Cursor, pgt_id: int, until: Lsn) -> None:
    """Store that every other sink needs all rows, as of `until`, instead of what the outbox holds for it so far."""
    cursor.execute("DELETE FROM pgtrickle.pgt_outbox WHERE pgt_id = %s", (pgt_id,))
    _enqueue_mark(cursor, pgt_id, until)


def enqueue_gap(cursor: Cursor, pgt_id: int, until: Lsn) -> None:
    """Store that a sink may lack deltas up to `until` that the outbox does not hold: it needs all rows.

    A delta of the outbox that ends there has been stored with all that was lacking before it.
    """
    _enqueue_mark(cursor, pgt_id, until)


def _enqueue_mark(cursor: Cursor, pgt_id: int, until: Lsn) -> None:
    """Store a delta from the origin without rows, which stands for all rows."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, pa.schema([])):
        pass
    cursor.execute(
        "INSERT INTO pgtrickle.pgt_outbox VALUES (%s, %s::pg_lsn, %s::pg_lsn, 0, %s) ON CONFLICT DO NOTHING",
        (pgt_id, str(ORIGIN), str(until), sink.getvalue().to_pybytes()),
    )


def stored_frontiers(cursor: Cursor, pgt_id: int) -> set[Lsn]:
    """Return the upper ends of the deltas that the outbox holds."""
    cursor.execute("SELECT DISTINCT new_frontier::text FROM pgtrickle.pgt_outbox WHERE pgt_id = %s", (pgt_id,))
    return {Lsn.parse(str(row[0])) for row in cursor.fetchall()}


def _ordered_parts(cursor: Cursor, table: StreamTable, delta: Delta) -> Iterator[pa.Table]:
    """Yield the parts; the two rows of an update are adjacent, because readers of parts need that."""
    match delta:
        case StagedDelta():
            # Its parts may have been made in this same transaction.
            return delta.batches(OUTBOX_ROWS, cursor.connection)
        case OutboxDelta():
            return delta.batches(OUTBOX_ROWS)
        case MemoryDelta() if delta.count > OUTBOX_ROWS and table.key:
            key = [(column_name(i), "ascending") for i in table.key]
            return MemoryDelta(delta.lsn_range, delta.rows.sort_by([*key, (WEIGHT, "ascending")])).batches(OUTBOX_ROWS)
        case MemoryDelta():
            return delta.batches(OUTBOX_ROWS)
        case _:
            assert_never(delta)


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
