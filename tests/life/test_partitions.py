"""Leaf partitions are truncated, detached, attached, created and dropped under running stream tables."""

from __future__ import annotations

import psycopg
import pytest
from psycopg import errors

from applier.refresh.check import check_stream_table
from deploy.local.stack import Stack
from shared_schema.table_schema import TableId
from tests import oracle

Connection = psycopg.Connection[tuple[object, ...]]

ANNOUNCE = """
SELECT pgtrickle._announce_ddl(
    ARRAY[%(root)s::regclass::oid, to_regclass(%(created)s)::oid], %(tag)s,
    ARRAY(SELECT l::oid FROM jsonb_object_keys(%(before)s::jsonb) l WHERE NOT EXISTS (
        SELECT FROM pg_class c WHERE c.oid = l::oid)))
"""


def create(db: Connection, name: str, query: str) -> None:
    db.execute("SELECT pgtrickle.create_stream_table(%s, %s)", (name, query))


def alter(db: Connection, root: str, statement: str, created: str = "") -> None:
    """Run DDL and tell the leaves of the root in the same transaction."""
    with db.transaction():
        before = db.execute("SELECT pgtrickle._partition_tree(%s::regclass)::text", (root,)).fetchone() or ("{}",)
        db.execute(statement.encode())
        tag = "CREATE TABLE" if created else "ALTER TABLE"
        db.execute(ANNOUNCE, {"tag": tag, "created": created, "root": root, "before": before[0]})


def assert_equal(db: Connection, *names: str) -> None:
    for name in names:
        checked = check_stream_table(db, TableId("public", name))
        assert checked.equal, checked


def changed(db: Connection, name: str, since: int) -> tuple[int, int]:
    """Return the rows that the refreshes after `since` inserted and deleted."""
    row = db.execute(
        "SELECT coalesce(sum(h.rows_inserted), 0)::int, coalesce(sum(h.rows_deleted), 0)::int"
        " FROM pgtrickle.pgt_refresh_history h JOIN pgtrickle.pgt_stream_tables s USING (pgt_id)"
        " WHERE s.pgt_name = %s AND h.refresh_id > %s",
        (name, since),
    ).fetchone()
    assert row is not None
    return int(str(row[0])), int(str(row[1]))


def last_refresh(db: Connection) -> int:
    row = db.execute("SELECT coalesce(max(refresh_id), 0) FROM pgtrickle.pgt_refresh_history").fetchone()
    return int(str(row[0])) if row else 0


def test_leaves_come_and_go(db: Connection, stack: Stack) -> None:
    """TRUNCATE, DETACH, ATTACH, DROP and CREATE of leaves, sub-partitions, and rows that move across partitions."""
    db.execute(
        """
        CREATE TABLE parted_sales (id int, region text, v int, PRIMARY KEY (id, region)) PARTITION BY LIST (region);
        CREATE TABLE parted_sales_a PARTITION OF parted_sales FOR VALUES IN ('a');
        CREATE TABLE parted_sales_b PARTITION OF parted_sales FOR VALUES IN ('b');
        INSERT INTO parted_sales SELECT g, (ARRAY['a', 'b'])[1 + g % 2], g FROM generate_series(1, 40) g
        """
    )
    names = ("sale_rows", "sale_sums")
    create(db, "sale_rows", "SELECT id, region, v FROM parted_sales")
    create(
        db,
        "sale_sums",
        "SELECT region, count(*) AS n, sum(v) AS total, max(v) AS most FROM parted_sales GROUP BY region",
    )
    assert_equal(db, *names)

    def step(statement: str, expected: tuple[int, int], *, created: str | None = None, ddl: bool = True) -> None:
        """Run a statement; the delta is exactly `expected`: (inserted, deleted) rows."""
        since = last_refresh(db)
        if ddl:
            alter(db, "parted_sales", statement, created or "")
        else:
            db.execute(statement.encode())
        assert_equal(db, *names)
        assert changed(db, "sale_rows", since) == expected, statement

    step("TRUNCATE parted_sales_a", (0, 20), ddl=False)
    step("ALTER TABLE parted_sales DETACH PARTITION parted_sales_b", (0, 20))
    step("DELETE FROM parted_sales_b WHERE id < 11; INSERT INTO parted_sales_b VALUES (100, 'b', 7)", (0, 0), ddl=False)
    step("ALTER TABLE parted_sales ATTACH PARTITION parted_sales_b FOR VALUES IN ('b')", (16, 0))
    step("CREATE TABLE parted_sales_c PARTITION OF parted_sales FOR VALUES IN ('c')", (0, 0), created="parted_sales_c")
    step("UPDATE parted_sales SET region = 'c' WHERE id IN (100, 11)", (2, 2), ddl=False)
    step("DROP TABLE parted_sales_c", (0, 2))
    db.execute(
        """
        CREATE TABLE parted_sales_d (v int, gone text, region text NOT NULL, id int NOT NULL) PARTITION BY RANGE (id);
        ALTER TABLE parted_sales_d DROP gone;
        CREATE TABLE parted_sales_d1 PARTITION OF parted_sales_d FOR VALUES FROM (0) TO (500);
        CREATE TABLE parted_sales_d2 PARTITION OF parted_sales_d FOR VALUES FROM (500) TO (1000);
        INSERT INTO parted_sales_d SELECT g, 'd', g FROM generate_series(495, 504) g
        """
    )
    step("ALTER TABLE parted_sales ATTACH PARTITION parted_sales_d FOR VALUES IN ('d')", (10, 0))
    step("UPDATE parted_sales SET v = 1 WHERE id = 500; DELETE FROM parted_sales WHERE id = 501", (1, 2), ddl=False)
    step("ALTER TABLE parted_sales_d DETACH PARTITION parted_sales_d1", (0, 5))
    # Detached, written to and attached again in one transaction.
    step(
        "ALTER TABLE parted_sales_d DETACH PARTITION parted_sales_d2; UPDATE parted_sales_d2 SET v = -1 WHERE id = 502;"
        " ALTER TABLE parted_sales_d ATTACH PARTITION parted_sales_d2 FOR VALUES FROM (500) TO (1000)",
        (1, 1),
    )
    judged = oracle.judge(stack.addresses, list(names), follow_s=30.0)
    assert judged.equal, str(judged)
    step("TRUNCATE parted_sales", (0, 18), ddl=False)


def test_what_nobody_announced_is_found(db: Connection) -> None:
    """Without an event trigger, the consumer compares the partitions by itself."""
    db.execute(
        """
        CREATE TABLE quiet (id int PRIMARY KEY, v int) PARTITION BY RANGE (id);
        CREATE TABLE quiet_1 PARTITION OF quiet FOR VALUES FROM (0) TO (10);
        CREATE TABLE quiet_2 PARTITION OF quiet FOR VALUES FROM (10) TO (20);
        INSERT INTO quiet SELECT g, g FROM generate_series(1, 19) g
        """
    )
    create(db, "of_quiet", "SELECT count(*) AS n, sum(v) AS total FROM quiet")
    assert_equal(db, "of_quiet")
    for statement in (
        "ALTER TABLE quiet DETACH PARTITION quiet_2",
        "DELETE FROM quiet_2 WHERE id = 11; ALTER TABLE quiet ATTACH PARTITION quiet_2 FOR VALUES FROM (10) TO (20)",
        "DROP TABLE quiet_1",
        "ALTER TABLE quiet DETACH PARTITION quiet_2 CONCURRENTLY",
        "CREATE TABLE quiet_3 PARTITION OF quiet DEFAULT; INSERT INTO quiet VALUES (50, 50)",
    ):
        for part in statement.split("; "):
            db.execute(part.encode())
        # The first wait that ends counts.
        assert_equal(db, "of_quiet")


def test_a_root_without_a_key(db: Connection) -> None:
    """Old rows are complete where the leaf's replica identity says so, whatever that of the root is."""
    db.execute(
        """
        CREATE TABLE journal (at date, said text) PARTITION BY RANGE (at);
        CREATE TABLE journal_1 PARTITION OF journal FOR VALUES FROM ('2024-01-01') TO ('2024-02-01');
        INSERT INTO journal VALUES ('2024-01-01', 'x'), ('2024-01-01', 'x'), ('2024-01-02', 'y')
        """
    )
    create(db, "of_journal", "SELECT at, said, count(*) AS n FROM journal GROUP BY at, said")
    assert_equal(db, "of_journal")
    db.execute("DELETE FROM journal WHERE said = 'y'; UPDATE journal SET said = 'z'")
    assert_equal(db, "of_journal")


def test_a_later_leaf_with_another_identity(db: Connection) -> None:
    """The root is FULL and a later leaf is not: its old rows are not taken for complete ones."""
    db.execute(
        """
        CREATE TABLE ledger (id int PRIMARY KEY, v int) PARTITION BY RANGE (id);
        ALTER TABLE ledger REPLICA IDENTITY FULL;
        CREATE TABLE ledger_1 PARTITION OF ledger FOR VALUES FROM (0) TO (10);
        INSERT INTO ledger VALUES (1, 5)
        """
    )
    create(db, "of_ledger", "SELECT sum(v) AS total FROM ledger")
    alter(db, "ledger", "CREATE TABLE ledger_2 PARTITION OF ledger FOR VALUES FROM (10) TO (20)", "ledger_2")
    db.execute("INSERT INTO ledger VALUES (10, 10), (11, 1)")
    assert_equal(db, "of_ledger")
    db.execute("DELETE FROM ledger WHERE id = 10; UPDATE ledger SET v = 2 WHERE id = 11")
    assert_equal(db, "of_ledger")


def test_later_leaves_are_admitted(db: Connection) -> None:
    """`health_check` asks for the call that gives a later leaf its replica identity."""
    db.execute("CREATE TABLE grows (at int, v text) PARTITION BY RANGE (at)")
    create(db, "of_grows", "SELECT count(*) AS n FROM grows")
    assert_equal(db, "of_grows")
    alter(db, "grows", "CREATE TABLE grows_1 PARTITION OF grows FOR VALUES FROM (0) TO (10)", "grows_1")
    asked = "SELECT detail FROM pgtrickle.health_check() WHERE check_name = 'sources' AND detail LIKE '%%grows%%'"
    identity = db.execute("SELECT relreplident::text FROM pg_class WHERE relname = 'grows_1'").fetchone()
    assert identity == ("d",), "this stack has no event triggers"
    found = db.execute(asked).fetchall()
    assert "pgtrickle.admit_partitions('public.grows')" in str(found)
    assert db.execute("SELECT pgtrickle.admit_partitions('grows')").fetchone() == (1,)
    assert db.execute(asked).fetchall() == []
    db.execute("INSERT INTO grows VALUES (1, 'a'), (1, 'a'); DELETE FROM grows WHERE ctid = '(0,1)'")
    assert_equal(db, "of_grows")
    with pytest.raises(errors.WrongObjectType):
        db.execute("SELECT pgtrickle.admit_partitions('grows_1')")


def test_a_publication_via_the_root_is_refused(db: Connection) -> None:
    row = db.execute("SELECT quote_ident(pgtrickle._setting('publication'))").fetchone()
    assert row is not None
    db.execute("CREATE TABLE rooted (id int PRIMARY KEY) PARTITION BY RANGE (id)")
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match="via their root"), db.transaction():
        db.execute(f"ALTER PUBLICATION {row[0]} SET (publish_via_partition_root = true)".encode())
        create(db, "of_rooted", "SELECT id FROM rooted")
    create(db, "of_rooted", "SELECT id FROM rooted")
    assert_equal(db, "of_rooted")
