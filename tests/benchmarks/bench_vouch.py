"""The time of one look at the catalog when nothing changed: 50 stream tables over 200 sources, 2 000 other tables.

`python -m tests.benchmarks.bench_vouch` prints the median in milliseconds.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

import psycopg

from applier.catalog.catalog import Catalog
from applier.catalog.database import Database
from applier.catalog.dependencies import ids_of
from applier.catalog.install import install_catalog
from applier.plan.depth import Thresholds
from applier.refresh.plan_stream_table import StreamTablePlanner
from deploy.local.postgres import Postgres

SOURCES, STREAM_TABLES, OTHERS, COLUMNS, LOOKS = 200, 50, 2_000, 10, 200


def main() -> None:
    """Build the tables, plan the stream tables and measure."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    server = Postgres(folder, durable=False)
    server.start()
    try:
        with psycopg.connect(server.url, autocommit=True) as connection:
            install_catalog(connection)
            _create(connection)
        _measure(server.url)
    finally:
        server.stop()


def _create(connection: psycopg.Connection[tuple[object, ...]]) -> None:
    columns = ", ".join(f"c{i} int" for i in range(COLUMNS - 1))
    with connection.transaction():
        for i in range(SOURCES):
            connection.execute(f"CREATE TABLE s{i} (id int PRIMARY KEY, {columns})".encode())
    for first in range(0, OTHERS, 500):
        with connection.transaction():
            for i in range(first, first + 500):
                connection.execute(f"CREATE TABLE other{i} (id int, {columns})".encode())
    each = SOURCES // STREAM_TABLES
    for i in range(STREAM_TABLES):
        joined = " JOIN ".join(
            f"s{k}" + (" USING (id)" if k > i * each else "") for k in range(i * each, (i + 1) * each)
        )
        connection.execute("SELECT pgtrickle.create_stream_table(%s, %s)", (f"st{i}", f"SELECT id FROM {joined}"))


def _measure(url: str) -> None:
    catalog = Catalog(Database(url))
    planner = StreamTablePlanner(Database(url), catalog, Thresholds(4, 5))
    planned = [planner(row) for row in catalog.stream_tables.all()]
    ids = ids_of(table.facts for table in planned if table.facts is not None)
    store = catalog.dependencies
    for name, look in (
        ("sessions", store.sessions_at_work),
        ("digest", lambda: store.digest(ids)),
        ("facts, only after a change", lambda: store.read(ids)),
    ):
        times = []
        for _ in range(LOOKS if name != "facts, only after a change" else 5):
            began = time.perf_counter()
            look()
            times.append((time.perf_counter() - began) * 1000)
        print(f"{name}: {statistics.median(times):.2f} ms, at most {max(times):.2f} ms")


if __name__ == "__main__":
    main()
