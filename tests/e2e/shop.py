"""A small shop: its tables, its stream tables, and random transactions over it."""

from __future__ import annotations

import random
from dataclasses import dataclass

import psycopg

TABLES = """
CREATE TABLE customers (id int PRIMARY KEY, segment text, since date);
CREATE TABLE orders (id int PRIMARY KEY, customer int, amount numeric(10,2), quantity int, note text);
CREATE TABLE visits (customer int, page text, seconds int);
"""

TABLE_NAMES = ("customers", "orders", "visits")

STREAM_TABLES = {
    "big_orders": "SELECT id, customer, amount, note FROM orders WHERE amount > 50 AND quantity IS NOT NULL",
    "pages": "SELECT page, seconds FROM visits WHERE seconds >= 0",
    "per_customer": "SELECT customer, count(*) AS n, count(note) AS noted, sum(amount) AS total, sum(quantity) AS items"
    " FROM orders GROUP BY customer",
    "totals": "SELECT count(*) AS n, sum(amount) AS total FROM orders",
    "order_segments": "SELECT o.id, o.amount, c.segment FROM orders o JOIN customers c ON c.id = o.customer",
    "per_segment": "SELECT c.segment, count(*) AS n, sum(o.amount) AS total"
    " FROM orders o JOIN customers c ON c.id = o.customer GROUP BY c.segment HAVING count(*) > 1",
    "with_orders": "SELECT c.id, c.segment, o.id AS order_id, o.amount"
    " FROM customers c LEFT JOIN orders o ON o.customer = c.id AND o.amount > 20",
    "visited": "SELECT o.id, o.amount FROM orders o"
    " WHERE EXISTS (SELECT 1 FROM visits v WHERE v.customer = o.customer AND v.seconds > 0)",
    "unvisited": "SELECT id, customer FROM orders"
    " WHERE customer NOT IN (SELECT customer FROM visits WHERE page = '/buy')",
    "best_orders": "SELECT id, amount FROM orders ORDER BY amount DESC NULLS LAST, id LIMIT 5",
    "places": "SELECT id, customer, row_number() OVER (PARTITION BY customer ORDER BY amount, id) AS place FROM orders",
    "latest": "SELECT DISTINCT ON (customer) customer, id, amount FROM orders ORDER BY customer, id DESC",
    "extremes": "SELECT customer, min(amount) AS least, max(amount) AS most, count(DISTINCT quantity) AS kinds"
    " FROM orders GROUP BY customer",
    "silent": "SELECT customer FROM orders EXCEPT SELECT customer FROM visits",
    "above": "SELECT id, amount FROM orders WHERE amount >= (SELECT max(amount) FROM orders WHERE quantity = 1)",
    "of_big": "SELECT customer, count(*) AS n FROM big_orders GROUP BY customer",
    "all_notes": "SELECT customer, note FROM orders UNION ALL SELECT customer, page FROM visits",
}


def create_stream_tables(connection: psycopg.Connection[tuple[object, ...]]) -> None:
    """Create all stream tables of the shop."""
    for name, query in STREAM_TABLES.items():
        connection.execute("SELECT pgtrickle.create_stream_table(%s, %s)", (name, query))


@dataclass
class Shop:
    """Writes random transactions: inserts, updates of values and of keys, deletes, rollbacks."""

    connection: psycopg.Connection[tuple[object, ...]]
    random: random.Random
    ids: int = 60

    def create(self) -> None:
        self.connection.execute(TABLES.encode())
        for _ in range(10):
            self.transaction()

    def transaction(self) -> None:
        with self.connection.transaction(force_rollback=self.random.random() < 0.1):
            for _ in range(self.random.randint(1, 6)):
                self.random.choice([self._order, self._order, self._customer, self._visit, self._delete, self._move])()

    def truncate(self) -> None:
        self.connection.execute("TRUNCATE visits")

    def _id(self) -> int:
        return self.random.randint(1, self.ids)

    def _order(self) -> None:
        r = self.random
        values = (
            self._id(),
            r.choice([None, r.randint(1, 8)]),
            r.choice([None, r.randint(-500, 20000) / 100]),
            r.choice([None, r.randint(0, 5)]),
            r.choice([None, "", "x", "ünïcode \\ tab\t"]),
        )
        self.connection.execute(
            "INSERT INTO orders VALUES (%s, %s, %s, %s, %s) ON CONFLICT (id)"
            " DO UPDATE SET customer = excluded.customer,"
            " amount = excluded.amount, quantity = excluded.quantity, note = excluded.note",
            values,
        )

    def _customer(self) -> None:
        self.connection.execute(
            "INSERT INTO customers VALUES (%s, %s, %s) ON CONFLICT (id) DO UPDATE SET segment = excluded.segment",
            (self.random.randint(1, 8), self.random.choice([None, "a", "b", "c"]), "2024-02-29"),
        )

    def _visit(self) -> None:
        row = (self.random.choice([None, 1, 2]), self.random.choice(["/", "/buy", None]), self.random.randint(-1, 2))
        self.connection.execute("INSERT INTO visits VALUES (%s, %s, %s)", row)

    def _delete(self) -> None:
        self.connection.execute("DELETE FROM orders WHERE id = %s", (self._id(),))
        self.connection.execute("DELETE FROM customers WHERE id = %s", (self.random.randint(1, 8),))
        self.connection.execute(
            "DELETE FROM visits WHERE ctid IN (SELECT ctid FROM visits LIMIT %s)", (self.random.randint(0, 1),)
        )

    def _move(self) -> None:
        self.connection.execute(
            "UPDATE orders SET id = %s WHERE id = %s AND NOT EXISTS (SELECT FROM orders WHERE id = %s)",
            ((new := self._id()), self._id(), new),
        )
