"""What changes the digest of the captured tables: all DDL that may alter their rows, and nothing that others do."""

from __future__ import annotations

import random

import pytest

from cdc_consumer.wal.catalog_digest import CatalogDigest, read_digest
from tests.cdc_consumer.harness import Connection, scalar

SCHEMA = """
CREATE TYPE mood AS ENUM ('sad', 'glad'); CREATE DOMAIN moods AS mood; CREATE TYPE pair AS (a int, m moods);
CREATE TABLE t (id int PRIMARY KEY, v int, p pair[]); CREATE TABLE other (id int PRIMARY KEY);
CREATE TABLE root (id int, g int GENERATED ALWAYS AS (id * 2) STORED) PARTITION BY RANGE (id);
CREATE TABLE branch PARTITION OF root FOR VALUES FROM (0) TO (10) PARTITION BY RANGE (id);
CREATE TABLE leaf PARTITION OF branch FOR VALUES FROM (0) TO (5);
CREATE TABLE spare (id int, g int GENERATED ALWAYS AS (id * 2) STORED);
ALTER PUBLICATION pg_trickle ADD TABLE t, root; CREATE PUBLICATION foreign_one FOR TABLE other
"""


def digest(db: Connection) -> CatalogDigest:
    relids = [int(str(scalar(db, f"SELECT '{name}'::regclass::oid::int8"))) for name in ("t", "root")]
    return read_digest(db, ("pg_trickle",), relids)


@pytest.mark.parametrize(
    ("ddl", "is_seen"),
    [
        ("ALTER TABLE t ALTER v TYPE int USING v + 1", True),
        ("ALTER TABLE t RENAME v TO w", True),
        ("ALTER TABLE t RENAME TO u; ALTER TABLE u RENAME TO t", True),
        ("ALTER SCHEMA public RENAME TO moved; ALTER SCHEMA moved RENAME TO public", True),
        ("ALTER TYPE mood RENAME VALUE 'sad' TO 'low'", True),
        ("ALTER TYPE mood RENAME VALUE 'sad' TO 'low'; ALTER TYPE mood RENAME VALUE 'low' TO 'sad'", True),
        ("ALTER TYPE pair ADD ATTRIBUTE b int", True),
        ("CREATE TABLE leaf2 PARTITION OF branch FOR VALUES FROM (5) TO (10)", True),
        ("ALTER TABLE branch ATTACH PARTITION spare FOR VALUES FROM (5) TO (10)", True),
        ("ALTER TABLE branch DETACH PARTITION leaf", True),
        ("VACUUM FULL leaf", True),
        ("ALTER PUBLICATION pg_trickle SET (publish = 'insert')", True),
        ("ALTER PUBLICATION pg_trickle DROP TABLE t", True),
        ("INSERT INTO t VALUES (1, 1); UPDATE t SET v = 2; DELETE FROM t", False),
        ("ANALYZE t", False),
        ("VACUUM t", False),
        ("ALTER TABLE other ADD v int", False),
        ("ALTER PUBLICATION pg_trickle ADD TABLE other", False),
        ("CREATE TABLE another (id int)", False),
    ],
)
def test_what_is_seen(db: Connection, ddl: str, is_seen: bool) -> None:
    db.execute(SCHEMA.encode())
    before = digest(db)
    for statement in ddl.split("; "):
        db.execute(statement.encode())
    after = digest(db)
    assert (after.text != before.text) is is_seen
    assert (after.members != before.members) is ("TABLE" in ddl and "PUBLICATION" in ddl)


def test_the_objects_are_those_that_it_is_about(db: Connection) -> None:
    db.execute(SCHEMA.encode())
    named = "SELECT array_agg({}::oid::int8) FROM unnest(ARRAY['{}']) AS n"
    expected: set[int] = set()
    for kind, names in (("n::regclass", "t root branch leaf"), ("n::regtype", "mood moods pair _pair")):
        expected |= set(scalar(db, named.format(kind, names.replace(" ", "','"))))  # type: ignore[call-overload]
    expected.add(int(str(scalar(db, "SELECT oid::int8 FROM pg_publication WHERE pubname = 'pg_trickle'"))))
    assert digest(db).objects == expected


def test_no_two_rows_of_the_catalog_count_the_same(db: Connection) -> None:
    """Object and transaction numbers grow together, so a digest that mixes them badly misses every fiftieth change."""
    db.execute(SCHEMA.encode())
    before = digest(db)
    pick = random.Random(1)
    for _ in range(300):
        for _ in range(pick.randrange(3)):
            db.execute("SELECT pg_current_xact_id()")
        with db.transaction():
            db.execute("ALTER PUBLICATION pg_trickle DROP TABLE t")
            db.execute("ALTER PUBLICATION pg_trickle ADD TABLE t")
        after = digest(db)
        assert after.text != before.text and after.members != before.members
        before = after
