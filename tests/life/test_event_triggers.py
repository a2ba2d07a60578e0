"""The same life with event triggers, which a superuser installs: DDL is known with its position, its command and its
role, later partitions need no call, and DDL may be refused. No other test of the running stack has them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import errors

from applier.catalog.install import install_catalog
from deploy.local.stack import Stack
from shared_schema.lsn import Lsn
from tests.life.test_ddl import Connection, assert_equal, assert_suspended, create, history, repair
from tests.life.test_publications import publication


@pytest.fixture(autouse=True)
def triggers(stack: Stack) -> Iterator[None]:
    """Install as a superuser, once more: that adds the event triggers and alters nothing else."""
    with psycopg.connect(stack.addresses.database_url, autocommit=True) as superuser:
        superuser.execute("SET ROLE postgres")
        assert install_catalog(superuser) == []
        health = superuser.execute(
            "SELECT severity FROM pgtrickle.health_check() WHERE check_name = 'source_ddl'"
        ).fetchone()
        assert health == ("OK",)
        yield
        superuser.execute("DROP EVENT TRIGGER pgtrickle_ddl_end; DROP EVENT TRIGGER pgtrickle_drop")


def end_of_log(db: Connection) -> Lsn:
    row = db.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone()
    assert row is not None
    return Lsn.parse(str(row[0]))


def error_of(db: Connection, name: str) -> str:
    row = db.execute("SELECT last_error_message FROM pgtrickle.pgt_status() WHERE name = 'public.' || %s", (name,))
    return str(row.fetchall()[0][0])


def test_the_error_names_the_ddl(db: Connection) -> None:
    db.execute("CREATE TABLE charged (id int PRIMARY KEY, amount int, v int); INSERT INTO charged VALUES (1, 1, 1)")
    create(db, "of_amount", "SELECT id, amount FROM charged")
    create(db, "of_charged_v", "SELECT sum(v) AS s FROM charged")
    # The first fill of a new stack takes longer.
    db.execute("SELECT pgtrickle.wait_for('of_charged_v', timeout => '240 s')")
    assert_equal(db, "of_amount", "of_charged_v")
    db.execute("ALTER TABLE charged ADD COLUMN unread int")
    assert_equal(db, "of_amount", "of_charged_v")
    before = end_of_log(db)
    db.execute("ALTER TABLE charged DROP COLUMN amount")
    after = end_of_log(db)
    assert_suspended(db, "of_amount", "column amount of public.charged was dropped")
    found = re.search(r"was dropped \(ALTER TABLE by trickle_owner at ([0-9A-F/]+)\)$", error_of(db, "of_amount"))
    assert found is not None and before <= Lsn.parse(found[1]) <= after, error_of(db, "of_amount")
    assert_equal(db, "of_charged_v")
    db.execute("SET ROLE postgres; ALTER TABLE charged ALTER COLUMN v TYPE int USING v + 1; SET ROLE trickle_owner")
    assert_suspended(db, "of_charged_v", r"was rewritten \(.*ALTER TABLE by postgres at ")
    db.execute("DROP TABLE charged")
    repaired = "can no longer be run"
    with pytest.raises(errors.UndefinedTable, match=repaired):
        repair(db, "of_charged_v")


def copies(stack: Stack, table: str) -> int:
    return Path(stack.addresses.cdc_log).read_text().count(f"table captured table=public.{table} ")


def test_later_partitions_need_no_call(db: Connection, stack: Stack) -> None:
    """Each gets its identity in the transaction that makes it; rows follow from the first one on, without a copy."""
    db.execute("CREATE TABLE told (id int, v int) PARTITION BY LIST (id)")
    db.execute("CREATE TABLE told_1 PARTITION OF told FOR VALUES IN (1); INSERT INTO told VALUES (1, 1), (1, 1)")
    create(db, "of_told", "SELECT id, v, count(*) AS n FROM told GROUP BY id, v")
    assert_equal(db, "of_told")
    copied = copies(stack, "told")
    with db.transaction():
        db.execute("CREATE TABLE told_2 PARTITION OF told FOR VALUES IN (2)")
        identity = db.execute("SELECT relreplident::text FROM pg_class WHERE relname = 'told_2'").fetchone()
        assert identity == ("f",)
        db.execute("INSERT INTO told VALUES (2, 1), (2, 2), (2, 2); DELETE FROM told WHERE id = 2 AND v = 1")
    db.execute("UPDATE told SET v = 5 WHERE id = 2")
    assert_equal(db, "of_told")
    assert copies(stack, "told") == copied >= 1
    db.execute("CREATE TABLE told_3 (id int, v int); INSERT INTO told_3 VALUES (3, 3), (3, 4)")
    db.execute("ALTER TABLE told ATTACH PARTITION told_3 FOR VALUES IN (3); UPDATE told SET v = 9 WHERE v = 4")
    assert_equal(db, "of_told")
    db.execute("TRUNCATE told_1; ALTER TABLE told DETACH PARTITION told_2; DELETE FROM told WHERE v = 9")
    assert_equal(db, "of_told")
    db.execute("DROP TABLE told_3")
    assert_equal(db, "of_told")
    assert db.execute("TABLE of_told").fetchall() == []


def test_ddl_is_followed_or_suspends_as_without_them(db: Connection) -> None:
    db.execute("CREATE TYPE tone AS ENUM ('red', 'blue'); CREATE TABLE hued (id int PRIMARY KEY, v int, h tone)")
    db.execute("INSERT INTO hued VALUES (1, 1, 'red'), (2, 2, 'blue'); CREATE VIEW hued_low AS SELECT * FROM hued")
    create(db, "by_hue", "SELECT h, count(*) AS n FROM hued GROUP BY h")
    create(db, "of_hued_low", "SELECT id, v FROM hued_low")
    create(db, "of_hued", "SELECT id FROM hued WHERE v > 0")
    names = ("by_hue", "of_hued_low", "of_hued")
    assert_equal(db, *names)
    db.execute("ALTER TYPE tone RENAME VALUE 'red' TO 'pink'; ALTER TABLE hued RENAME v TO w")
    db.execute("INSERT INTO hued VALUES (3, 3, 'pink')")
    assert_equal(db, *names)
    db.execute("ALTER TABLE hued RENAME TO tinted; ALTER VIEW hued_low RENAME TO tinted_low")
    db.execute("VACUUM FULL tinted")
    db.execute("DELETE FROM tinted WHERE id = 1")
    assert_equal(db, *names)
    assert any("is now called" in seen for seen in history(db, "of_hued"))
    db.execute("CREATE OR REPLACE VIEW tinted_low AS SELECT id, w AS v, h FROM tinted WHERE w > 2")
    assert_suspended(db, "of_hued_low", r"tinted_low was replaced \(.*CREATE VIEW by trickle_owner at ")
    repair(db, "of_hued_low")
    db.execute(f"ALTER PUBLICATION {publication(db)} DROP TABLE tinted".encode())
    assert_suspended(db, "by_hue", r"not in publication .*ALTER PUBLICATION by trickle_owner at ")
    db.execute("INSERT INTO tinted VALUES (4, 4, 'blue')")
    for name in names:
        assert_suspended(db, name, "not in publication")
        db.execute("SELECT pgtrickle.resume_stream_table(%s)", (name,))
    assert_equal(db, *names)


def test_ddl_is_refused_while_that_is_wanted(db: Connection) -> None:
    db.execute("CREATE TABLE fixed (id int PRIMARY KEY, v int); INSERT INTO fixed VALUES (1, 1)")
    create(db, "of_fixed", "SELECT id, v FROM fixed")
    assert_equal(db, "of_fixed")
    db.execute("SELECT pgtrickle.set_setting('block_source_ddl', 'true')")
    try:
        for statement in (
            "ALTER TABLE fixed RENAME v TO w",
            "DROP TABLE fixed",
            f"ALTER PUBLICATION {publication(db)} DROP TABLE fixed",
        ):
            with pytest.raises(errors.ObjectInUse, match="stream tables read what it alters"):
                db.execute(statement.encode())
        # What the API does itself is not DDL on sources; nor is a new partition of somebody else.
        create(db, "of_fixed_too", "SELECT count(*) AS n FROM fixed")
        db.execute("INSERT INTO fixed VALUES (2, 2)")
        assert_equal(db, "of_fixed", "of_fixed_too")
    finally:
        db.execute("SELECT pgtrickle.reset_setting('block_source_ddl')")
    db.execute("ALTER TABLE fixed RENAME v TO w; INSERT INTO fixed VALUES (3, 3)")
    assert_equal(db, "of_fixed", "of_fixed_too")
