"""How soon is a commit visible in a join + aggregate, against refreshing a materialized view of the same query?"""

from __future__ import annotations

import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from deploy.local.stack import Stack
from tests.benchmarks import harness

QUERY = """
SELECT c.segment, count(*) AS orders, sum(o.amount) AS revenue
FROM orders o JOIN customers c ON c.id = o.customer GROUP BY c.segment
"""

COMMITS = 20
ROWS_PER_COMMIT = 5


def load(connection: psycopg.Connection[tuple[object, ...]], orders: int) -> None:
    """Customers, orders, the stream table and the materialized view."""
    connection.execute("CREATE TABLE customers (id int PRIMARY KEY, segment text NOT NULL)")
    connection.execute("CREATE TABLE orders (id int PRIMARY KEY, customer int NOT NULL, amount numeric(10,2))")
    customers = max(1, orders // 10)
    connection.execute(
        "INSERT INTO customers SELECT i, 'segment ' || i %% 50 FROM generate_series(1, %s) i", (customers,)
    )
    connection.execute(
        "INSERT INTO orders SELECT i, 1 + i %% %s, i %% 10000 / 100.0 FROM generate_series(1, %s) i",
        (customers, orders),
    )
    connection.execute("SELECT pgtrickle.create_stream_table('by_segment', %s)", (QUERY,))
    connection.execute(f"CREATE MATERIALIZED VIEW by_segment_view AS {QUERY}".encode())
    connection.execute("SELECT pgtrickle.wait_for('by_segment', timeout => '10 min')")


@contextmanager
def benchmark(short: bool) -> Iterator[harness.Benchmark]:
    """Commit to visible: a stream table kept by Spark, against REFRESH MATERIALIZED VIEW after each commit."""
    orders = 50_000 if short else 1_000_000
    with tempfile.TemporaryDirectory(prefix="pg-trickle-bench-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)
        with Stack(Path(folder)) as stack, psycopg.connect(stack.addresses.database_url, autocommit=True) as connection:
            load(connection, orders)
            rng = random.Random(1)

            def change() -> None:
                with connection.transaction():
                    for _ in range(ROWS_PER_COMMIT):
                        amount, order = rng.randint(0, 999_999) / 100, rng.randint(1, orders)
                        connection.execute("UPDATE orders SET amount = %s WHERE id = %s", (amount, order))

            def measured(make_visible: str) -> harness.Measures:
                times = []
                for _ in range(COMMITS):
                    change()
                    began = time.perf_counter()
                    connection.execute(make_visible.encode())
                    times.append((time.perf_counter() - began) * 1000)
                ordered = sorted(times)
                return {"p50_ms": statistics.median(ordered), "p95_ms": ordered[int(len(ordered) * 0.95) - 1]}

            yield harness.Benchmark(
                "latency",
                f"commit of {ROWS_PER_COMMIT} rows to visible, {orders} orders joined and grouped",
                [
                    harness.Contestant("stream table", lambda: measured("SELECT pgtrickle.wait_for('by_segment')")),
                    harness.Contestant(
                        "materialized view", lambda: measured("REFRESH MATERIALIZED VIEW by_segment_view")
                    ),
                ],
                repeats=5,
                warmups=2,
            )


if __name__ == "__main__":
    sys.exit(harness.main(benchmark))
