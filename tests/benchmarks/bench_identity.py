"""What REPLICA IDENTITY FULL costs the source: log and time of an UPDATE, against the table's own key (`keep`).

Three tables: two columns, ten columns, and one with a large text outside of the row that the UPDATE does not change.
With FULL the log holds the whole old row, and that text as well.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from deploy.local.postgres import Postgres
from shared_schema.lsn import Lsn
from tests.benchmarks import harness
from tests.fixtures import choice

TABLES = {
    "two_columns": ("id int PRIMARY KEY, v int", "i, 0"),
    "ten_columns": (
        "id int PRIMARY KEY, v int, " + ", ".join(f"c{i} text" for i in range(8)),
        "i, 0, " + ", ".join(["md5(i::text)"] * 8),
    ),
    "large_text": (
        "id int PRIMARY KEY, v int, body text",
        "i, 0, (SELECT string_agg(md5((i * 1000 + k)::text), '') FROM generate_series(1, 256) k)",
    ),
}
"""Columns, and values of row i. 256 times 32 random characters do not compress, so they lie outside of the row."""

ROWS, SHORT_ROWS = 20_000, 2_000

UPDATE_EACH = "DO $$ BEGIN FOR i IN 1..{rows} LOOP UPDATE {table} SET v = v + 1 WHERE id = i; END LOOP; END $$"
"""One UPDATE per row, without a client in between."""


@contextmanager
def benchmark(short: bool) -> Iterator[harness.Benchmark]:
    """UPDATEs of one column under REPLICA IDENTITY FULL, and under that of the key."""
    rows = SHORT_ROWS if short else ROWS
    with choice.server_folder("identity") as folder:
        server = Postgres(folder, major=choice.postgres_major(), durable=False)
        server.start()
        try:
            with psycopg.connect(server.url, autocommit=True) as db:
                for table, (columns, values) in TABLES.items():
                    db.execute(f"CREATE TABLE {table} ({columns}) WITH (fillfactor = 50, autovacuum_enabled = off)")
                    db.execute(f"INSERT INTO {table} SELECT {values} FROM generate_series(1, {rows}) i")
                yield harness.Benchmark(
                    "identity",
                    "What does REPLICA IDENTITY FULL cost an UPDATE?",
                    [
                        harness.Contestant("full", lambda: update(db, "FULL", rows)),
                        harness.Contestant("keep", lambda: update(db, "DEFAULT", rows)),
                    ],
                )
        finally:
            server.stop()


def update(db: psycopg.Connection[tuple[object, ...]], identity: str, rows: int) -> harness.Measures:
    """Update each row of each table once; return bytes of log and microseconds per UPDATE, by table."""
    found: dict[str, float] = {}
    for table in TABLES:
        db.execute(f"ALTER TABLE {table} REPLICA IDENTITY {identity}".encode())
        db.execute(f"VACUUM {table}".encode())
        # Otherwise pages that are changed for the first time since a checkpoint are in the log as well.
        db.execute("CHECKPOINT")
        db.execute(UPDATE_EACH.format(table=table, rows=rows).encode())
        before, began = log_end(db), time.perf_counter()
        db.execute(UPDATE_EACH.format(table=table, rows=rows).encode())
        seconds = time.perf_counter() - began
        found[f"{table}_wal_bytes"] = (log_end(db).value - before.value) / rows
        found[f"{table}_us"] = seconds * 1e6 / rows
    return found


def log_end(db: psycopg.Connection[tuple[object, ...]]) -> Lsn:
    """Return the position up to which the server has written its log."""
    row = db.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone()
    assert row is not None
    return Lsn.parse(str(row[0]))


if __name__ == "__main__":
    sys.exit(harness.main(benchmark))
