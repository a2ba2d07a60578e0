"""Stream tables over stream tables: chains and diamonds, always at one frontier."""

from __future__ import annotations

import random

import psycopg
import pytest
from psycopg import errors

from applier.refresh.check import check_stream_table
from shared_schema.table_schema import TableId

Connection = psycopg.Connection[tuple[object, ...]]

CHAIN = {
    "per_account": "SELECT account, count(*) AS n, sum(amount) AS total FROM payments GROUP BY account",
    "rich": "SELECT account, total FROM per_account WHERE total > 100",
    "busy": "SELECT account, n FROM per_account WHERE n > 2",
    # The end of a diamond: both sides read per_account.
    "rich_and_busy": "SELECT r.account, r.total, b.n FROM rich r JOIN busy b ON b.account = r.account",
    "summary": "SELECT count(*) AS accounts, sum(total) AS total FROM rich_and_busy",
}


def test_a_diamond_of_stream_tables(db: Connection) -> None:
    db.execute("CREATE TABLE payments (id int PRIMARY KEY, account int, amount numeric(10,2))")
    db.execute("INSERT INTO payments SELECT i, i % 20, i % 50 FROM generate_series(1, 200) i")
    for name, query in CHAIN.items():
        db.execute("SELECT pgtrickle.create_stream_table(%s, %s)", (name, query))
    rng = random.Random(5)
    for _ in range(3):
        for _ in range(5):
            db.execute("UPDATE payments SET amount = %s WHERE id = %s", (rng.randint(0, 90), rng.randint(1, 200)))
            db.execute("DELETE FROM payments WHERE id = %s", (rng.randint(1, 200),))
        for name in CHAIN:
            checked = check_stream_table(db, TableId("public", name))
            assert checked.equal and checked.rows, checked
    frontiers = db.execute(
        "SELECT count(DISTINCT frontier) FROM pgtrickle.pg_stat_stream_tables WHERE pgt_name = ANY(%s)", (list(CHAIN),)
    )
    assert frontiers.fetchone() == (1,)
    checks = db.execute("SELECT check_name, severity FROM pgtrickle.health_check()").fetchall()
    health = {name: severity for name, severity in checks}
    assert (health["applier_running"], health["slot_lag"]) == ("OK", "OK")
    assert db.execute("SELECT pgtrickle.refresh_if_stale('summary', '1 hour')").fetchone() == (False,)
    assert db.execute("SELECT pgtrickle.refresh_if_stale('summary', '0 s')").fetchone() == (True,)
    assert db.execute("SELECT count(*) > 0 FROM pgtrickle.refresh_timeline()").fetchone() == (True,)


def test_a_table_with_readers_is_dropped_only_with_them(db: Connection) -> None:
    db.execute("CREATE TABLE roots (id int PRIMARY KEY)")
    for name, query in {"below": "TABLE roots", "middle": "TABLE below", "above": "SELECT id FROM middle"}.items():
        db.execute("SELECT pgtrickle.create_stream_table(%s, %s)", (name, query))
    with pytest.raises(errors.DependentObjectsStillExist, match="below") as refused:
        db.execute("SELECT pgtrickle.drop_stream_table('below')")
    assert "public.middle, public.above" in str(refused.value)
    db.execute("SELECT pgtrickle.drop_stream_table('below', cascade => true)")
    left = db.execute("SELECT pgt_name FROM pgtrickle.pgt_stream_tables WHERE pgt_name IN ('below', 'middle', 'above')")
    assert left.fetchall() == []
    assert db.execute("SELECT to_regclass('middle'), to_regclass('above')").fetchone() == (None, None)
