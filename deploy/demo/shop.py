"""The shop of the demo: tables, stream tables and a writer that writes all the time."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import psycopg

from shared_schema.connections import connect_with_statement

CUSTOMERS = 1_000
ORDERS = 20_000

TABLES = f"""
CREATE TABLE shop_customers (id int PRIMARY KEY, name text NOT NULL, segment text NOT NULL);
CREATE TABLE shop_orders
    (id bigint PRIMARY KEY, customer int NOT NULL, amount numeric(10,2) NOT NULL, status text NOT NULL);
INSERT INTO shop_customers
    SELECT i, 'customer ' || i, (ARRAY['retail','wholesale','online','partner'])[1 + i % 4]
    FROM generate_series(1, {CUSTOMERS}) i;
INSERT INTO shop_orders
    SELECT i, 1 + i * 7919 % {CUSTOMERS}, (i * 31 % 50000) / 100.0, (ARRAY['open','paid','sent'])[1 + i % 3]
    FROM generate_series(1, {ORDERS}) i;
"""

STREAM_TABLES = {
    "large_open_orders": "SELECT id, customer, amount FROM shop_orders WHERE status = 'open' AND amount > 450",
    "orders_by_status": "SELECT status, count(*) AS orders, sum(amount) AS revenue FROM shop_orders GROUP BY status",
    "revenue_by_segment": "SELECT c.segment, count(*) AS orders, sum(o.amount) AS revenue"
    " FROM shop_orders o JOIN shop_customers c ON c.id = o.customer GROUP BY c.segment",
}


def open_shop(url: str) -> psycopg.Connection[tuple[object, ...]]:
    """Open a session that prints values as those of the applier, and in which the shop's tables need no schema."""
    connection = connect_with_statement(url, application_name="pg-trickle demo")
    connection.execute("SET search_path = public")
    return connection


@dataclass
class Writer:
    """Commits small random transactions on its own thread, and measures how soon they are visible."""

    url: str
    per_second: float
    commits: int = 0
    rows: int = 0
    latencies_s: list[float] = field(default_factory=list)
    error: BaseException | None = None
    _stop: threading.Event = field(default_factory=threading.Event)
    _random: random.Random = field(default_factory=lambda: random.Random(7))

    def start(self) -> list[threading.Thread]:
        """Start writing and measuring; `stop` ends both."""
        threads = [
            threading.Thread(target=self._guarded, args=(work,), name="writer") for work in (self._write, self._probe)
        ]
        for thread in threads:
            thread.start()
        return threads

    def stop(self) -> None:
        """Stop writing."""
        self._stop.set()

    def _guarded(self, work: Callable[[psycopg.Connection[tuple[object, ...]]], None]) -> None:
        try:
            with open_shop(self.url) as connection:
                work(connection)
        except psycopg.Error as error:
            self.error = error

    def _write(self, connection: psycopg.Connection[tuple[object, ...]]) -> None:
        while not self._stop.wait(1 / self.per_second):
            self._transaction(connection)

    def _probe(self, connection: psycopg.Connection[tuple[object, ...]]) -> None:
        """Measure the time from a commit until the joined stream table includes it."""
        while not self._stop.wait(0.5):
            connection.execute("UPDATE shop_customers SET name = name WHERE id = 1")
            began = time.monotonic()
            connection.execute("SELECT pgtrickle.wait_for('revenue_by_segment')")
            self.latencies_s.append(time.monotonic() - began)

    def _transaction(self, connection: psycopg.Connection[tuple[object, ...]]) -> None:
        r = self._random
        with connection.transaction():
            for _ in range(r.randint(1, 5)):
                order, amount = r.randint(1, ORDERS * 2), r.randint(1, 50_000) / 100
                kind = r.random()
                if kind < 0.15:
                    connection.execute("DELETE FROM shop_orders WHERE id = %s", (order,))
                else:
                    connection.execute(
                        "INSERT INTO shop_orders VALUES (%s, %s, %s, %s) ON CONFLICT (id) DO UPDATE"
                        " SET amount = excluded.amount, status = excluded.status",
                        (order, r.randint(1, CUSTOMERS), amount, r.choice(["open", "paid", "sent"])),
                    )
                self.rows += 1
        self.commits += 1
