"""The schema of the DDL fuzz: tables, partitions, views, an enum, a domain, a function, stream tables over them.

Every stream table has an *oracle*: a view of the same query. PostgreSQL itself makes it follow what happens to its
sources, by identity, as a stream table has to. Where a view forbids a change, the oracle is dropped before and made
again from the text that it had; if that is not possible any more, the stream table must be marked.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import psycopg
from psycopg import sql

Connection = psycopg.Connection[tuple[object, ...]]

SCHEMA = "world"

TABLES = """
CREATE SCHEMA world;
CREATE SCHEMA elsewhere;
SET search_path = world;
CREATE TYPE mood AS ENUM ('sad', 'ok', 'glad');
CREATE DOMAIN price AS numeric(12,2);
CREATE TABLE customers (id int PRIMARY KEY, name text NOT NULL, region text, m mood, credit int);
CREATE TABLE orders (id int PRIMARY KEY, customer int, amount price, v int, w int, doubled int
                     GENERATED ALWAYS AS (v * 2) STORED);
CREATE TABLE events (at int, kind text, v int, id int, PRIMARY KEY (at, kind, id)) PARTITION BY RANGE (at);
CREATE TABLE events_0 PARTITION OF events FOR VALUES FROM (0) TO (100);
CREATE TABLE events_1 PARTITION OF events FOR VALUES FROM (100) TO (200);
CREATE TABLE events_2 PARTITION OF events FOR VALUES FROM (200) TO (300) PARTITION BY LIST (kind);
CREATE TABLE events_2_a PARTITION OF events_2 FOR VALUES IN ('a');
CREATE TABLE events_2_x PARTITION OF events_2 DEFAULT;
CREATE TABLE notes (k int, body text, n int) PARTITION BY LIST (k);
CREATE TABLE notes_0 PARTITION OF notes FOR VALUES IN (0);
CREATE TABLE notes_1 PARTITION OF notes FOR VALUES IN (1);
CREATE TABLE notes_x PARTITION OF notes DEFAULT;
CREATE FUNCTION weight(int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT $1 * 2';
CREATE VIEW big_orders AS SELECT id, customer, amount, v FROM orders WHERE v > 3;
CREATE VIEW bigger_orders AS SELECT id, customer, v FROM big_orders WHERE v > 5;
INSERT INTO customers SELECT i, 'c' || i, (ARRAY['n', 's', NULL])[1 + i % 3], (enum_range(NULL::mood))[1 + i % 3], i
  FROM generate_series(1, 30) i;
INSERT INTO orders (id, customer, amount, v, w) SELECT i, 1 + i % 30, i * 1.5, i % 10, i % 7
  FROM generate_series(1, 200) i;
INSERT INTO events SELECT i % 300, (ARRAY['a', 'b', 'c'])[1 + i % 3], i % 11, i FROM generate_series(1, 300) i;
INSERT INTO notes SELECT i % 4, 'n' || i % 5, i FROM generate_series(1, 60) i;
RESET search_path;
"""

QUERIES = {
    "st_orders": "SELECT id, v, w FROM world.orders WHERE v > 2",
    "st_sums": "SELECT customer, count(*) AS n, sum(v) AS s, sum(w) AS t FROM world.orders GROUP BY customer",
    "st_star": "SELECT * FROM world.customers",
    "st_moods": "SELECT m, count(*) AS n, max(credit) AS top FROM world.customers GROUP BY m",
    "st_joined": "SELECT o.id, c.name, o.amount FROM world.orders o JOIN world.customers c ON c.id = o.customer",
    "st_absent": "SELECT c.id, c.region FROM world.customers c WHERE c.credit NOT IN (SELECT o.w FROM world.orders o)",
    "st_events": "SELECT kind, count(*) AS n, sum(v) AS s FROM world.events GROUP BY kind",
    "st_event_rows": "SELECT at, id, v FROM world.events WHERE v < 9",
    "st_notes": "SELECT k, count(*) AS n, sum(n) AS s FROM world.notes GROUP BY k",
    "st_view": "SELECT customer, sum(v) AS s FROM world.bigger_orders GROUP BY customer",
    "st_function": "SELECT id, world.weight(v) AS heavy FROM world.orders",
    "st_generated": "SELECT doubled, count(*) AS n FROM world.orders GROUP BY doubled",
    "st_names": "SELECT region, min(name) AS first, count(DISTINCT name) AS n FROM world.customers GROUP BY region",
}
CHAINS = {
    "st_above": "SELECT s, count(*) AS n FROM world.st_sums GROUP BY s",
    "st_both": "SELECT a.customer, a.n, b.s FROM world.st_sums a LEFT JOIN world.st_view b ON b.customer = a.customer",
}


@dataclass
class World:
    """The stream tables of a run and their oracles; `lost` are those whose query cannot be run any more."""

    connection: Connection
    texts: dict[str, str] = field(default_factory=dict)
    """Stream table -> the text of its oracle, as PostgreSQL printed it last."""
    lost: dict[str, str] = field(default_factory=dict)

    def build(self) -> None:
        """Drop what is there and create everything anew."""
        self.drop()
        self.connection.execute(TABLES.encode())
        for name, query in QUERIES.items():
            self.create(name, query)
        for name, query in CHAINS.items():
            self.create(name, query)

    def create(self, name: str, query: str) -> None:
        """Create a stream table and its oracle; an oracle reads the oracles of the stream tables that it reads."""
        self.connection.execute("SELECT pgtrickle.create_stream_table(%s, %s)", (f"world.{name}", query))
        oracle = query.replace("world.st_", "world.oracle_st_")
        self.connection.execute(f"CREATE VIEW world.oracle_{name} AS {oracle}".encode())
        self._remember(name)
        self.lost.pop(name, None)

    def drop(self) -> None:
        """Drop all stream tables and everything under them."""
        self.texts, self.lost = {}, {}
        rows = self.connection.execute(
            "SELECT format('%I.%I', pgt_schema, pgt_name) FROM pgtrickle.pgt_stream_tables ORDER BY pgt_id DESC"
        ).fetchall()
        for (name,) in rows:
            self.connection.execute("SELECT pgtrickle.drop_stream_table(%s, cascade => true)", (name,))
        self.connection.execute("DROP SCHEMA IF EXISTS world, elsewhere CASCADE")

    def _remember(self, name: str) -> None:
        found = self.connection.execute("SELECT pg_get_viewdef(to_regclass(%s))", (f"world.oracle_{name}",)).fetchone()
        self.texts[name] = str(found[0]) if found else ""

    def change(self, text: str) -> str:
        """Run a change -> '' or why PostgreSQL refused it. Oracles that stand in its way are made again after it."""
        refused = self._attempt(text)
        if refused is None:
            self.remember_oracles()
            return ""
        if not isinstance(refused, (psycopg.errors.DependentObjectsStillExist, psycopg.errors.FeatureNotSupported)):
            return str(refused).splitlines()[0]
        for name in self.texts:
            self._remember(name)
        for name in reversed(self.texts):
            self.connection.execute(f"DROP VIEW IF EXISTS world.oracle_{name} CASCADE".encode())
        refused = self._attempt(text)
        for name in self.texts:
            self._make_oracle_again(name)
        return "" if refused is None else str(refused).splitlines()[0]

    def _attempt(self, text: str) -> psycopg.Error | None:
        try:
            self.connection.execute(text.encode())
        except psycopg.Error as error:
            if self.connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
                self.connection.execute("ROLLBACK")
            return error
        return None

    def _make_oracle_again(self, name: str) -> None:
        try:
            self.connection.execute(f"CREATE VIEW world.oracle_{name} AS {self.texts[name]}".encode())
        except psycopg.Error as error:
            self.lost[name] = str(error).splitlines()[0]

    def remember_oracles(self) -> None:
        """Take over how PostgreSQL prints the oracles now."""
        for name in self.texts:
            if name not in self.lost:
                self._remember(name)

    def relation(self, name: str) -> sql.Identifier:
        """Return a name of the schema as SQL."""
        return sql.Identifier(SCHEMA, name)
