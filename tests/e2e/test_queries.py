"""Queries with row order, set operations and recursion, maintained by the whole stack."""

from __future__ import annotations

import random
from collections.abc import Iterator

import psycopg
import pytest

from applier.refresh.check import check_stream_table
from deploy.local.stack import Stack
from shared_schema.table_schema import TableId

Connection = psycopg.Connection[tuple[object, ...]]

QUERIES = {
    "q_top": "SELECT id, amount FROM sales ORDER BY amount DESC NULLS LAST, id LIMIT 5",
    "q_ties": "SELECT id, quantity FROM sales ORDER BY quantity FETCH FIRST 2 ROWS WITH TIES",
    "q_latest": "SELECT DISTINCT ON (buyer) buyer, id, amount FROM sales ORDER BY buyer, id DESC",
    "q_ranked": "SELECT id, buyer, row_number() OVER (PARTITION BY buyer ORDER BY amount, id) AS place,"
    " sum(amount) OVER (PARTITION BY buyer ORDER BY id) AS so_far, lag(quantity) OVER (ORDER BY id) AS before"
    " FROM sales",
    "q_lateral": "SELECT b.id, t.number, t.amount FROM buyers b LEFT JOIN LATERAL (SELECT s.id AS number, s.amount"
    " FROM sales s WHERE s.buyer = b.id ORDER BY s.amount, s.id LIMIT 2) t ON true",
    "q_labels": "SELECT s.id, v.label FROM sales s JOIN (VALUES (0, 'none'), (1, 'one')) v(n, label)"
    " ON v.n = s.quantity",
    "q_scales": "SELECT buyer, sum(CASE WHEN quantity > 1 THEN amount ELSE 0 END) AS several,"
    " avg(coalesce(amount, 0)) AS mean, coalesce(sum(amount), 0) AS total FROM sales GROUP BY buyer",
    "q_pieces": "SELECT s.id, g AS piece FROM sales s, generate_series(1, s.quantity) g",
    "q_written": "SELECT n, n * n AS square FROM generate_series(1, 4) n",
    "q_below": "WITH RECURSIVE below(id, top) AS (SELECT id, id FROM buyers WHERE boss IS NULL"
    " UNION SELECT b.id, w.top FROM buyers b JOIN below w ON b.boss = w.id) SELECT id, top FROM below",
}


@pytest.fixture
def db(stack: Stack) -> Iterator[Connection]:
    with psycopg.connect(stack.addresses.database_url, autocommit=True) as connection:
        yield connection


def _write(db: Connection, chance: random.Random) -> None:
    with db.transaction():
        for _ in range(8):
            values = (chance.randint(1, 20), chance.randint(1, 4), chance.choice([None, 1, 2.5]), chance.randint(0, 3))
            db.execute(
                "INSERT INTO sales VALUES (%s, %s, %s, %s) ON CONFLICT (id)"
                " DO UPDATE SET buyer = excluded.buyer, amount = excluded.amount, quantity = excluded.quantity",
                values,
            )
        db.execute("DELETE FROM sales WHERE id = %s", (chance.randint(1, 20),))
        db.execute("UPDATE buyers SET boss = %s WHERE id = %s", (chance.choice([None, 1, 2]), chance.randint(3, 5)))


def test_they_equal_postgres_after_every_change(db: Connection) -> None:
    db.execute("CREATE TABLE buyers (id int PRIMARY KEY, boss int)")
    db.execute("CREATE TABLE sales (id int PRIMARY KEY, buyer int, amount numeric(8,2), quantity int)")
    db.execute("INSERT INTO buyers VALUES (1, NULL), (2, 1), (3, 1), (4, 3), (5, 4)")
    chance = random.Random(7)
    _write(db, chance)
    for name, query in QUERIES.items():
        db.execute("SELECT pgtrickle.create_stream_table(%s, %s)", (name, query))
    for _ in range(2):
        for name in QUERIES:
            if name == "q_written":
                continue
            checked = check_stream_table(db, TableId("public", name))
            assert checked.equal, checked
        _write(db, chance)
    db.execute("SELECT pgtrickle.wait_for('q_written')")
    assert db.execute("SELECT n, square FROM q_written ORDER BY n").fetchall() == [(1, 1), (2, 4), (3, 9), (4, 16)]


def test_a_tie_across_the_border_suspends_and_says_what_to_write(db: Connection) -> None:
    db.execute("CREATE TABLE scores (id int PRIMARY KEY, points int)")
    db.execute("INSERT INTO scores VALUES (1, 10), (2, 20), (3, 30)")
    query = "SELECT id, points FROM scores ORDER BY points DESC LIMIT 2"
    db.execute("SELECT pgtrickle.create_stream_table('winners', %s)", (query,))
    assert check_stream_table(db, TableId("public", "winners")).equal
    db.execute("UPDATE scores SET points = 20 WHERE id = 1")
    with pytest.raises(psycopg.Error, match="equal in ORDER BY"):
        db.execute("SELECT pgtrickle.wait_for('winners')")
