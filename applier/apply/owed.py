"""Differences that no window can be computed to again, from the commit that applied them until every sink has them."""

from __future__ import annotations

import psycopg
import pyarrow as pa

from applier.stream_table import Delta, TableDelta
from shared_schema.lsn import Lsn, Window

Cursor = psycopg.Cursor[tuple[object, ...]]

PART_ROWS = 65_536


def owe(cursor: Cursor, pgt_id: int, delta: Delta) -> None:
    """Keep the delta, in the transaction that applies it."""
    for part, rows in enumerate(delta.batches(PART_ROWS)):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as stream:
            stream.write_table(rows)
        cursor.execute(
            "INSERT INTO pgtrickle.pgt_owed VALUES (%s, %s::pg_lsn, %s::pg_lsn, %s, %s) ON CONFLICT DO NOTHING",
            (pgt_id, str(delta.window.old), str(delta.window.new), part, sink.getvalue().to_pybytes()),
        )


def owed(cursor: Cursor, pgt_id: int, since: Lsn) -> list[TableDelta]:
    """The kept deltas that end after `since`, oldest first."""
    cursor.execute(
        "SELECT old_frontier::text, new_frontier::text, rows FROM pgtrickle.pgt_owed"
        " WHERE pgt_id = %s AND new_frontier > %s::pg_lsn ORDER BY new_frontier, part",
        (pgt_id, str(since)),
    )
    parts: dict[Window, list[pa.Table]] = {}
    for old, new, rows in cursor.fetchall():
        window = Window(Lsn.parse(str(old)), Lsn.parse(str(new)))
        parts.setdefault(window, []).append(pa.ipc.open_stream(rows).read_all())
    return [TableDelta(window, pa.concat_tables(tables)) for window, tables in parts.items()]


def settle(cursor: Cursor, pgt_id: int, until: Lsn) -> None:
    """Every sink stands at `until` or later."""
    cursor.execute(
        "DELETE FROM pgtrickle.pgt_owed WHERE pgt_id = %s AND new_frontier <= %s::pg_lsn", (pgt_id, str(until))
    )
