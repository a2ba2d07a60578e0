"""What a publication leaves out is noticed: at the creation of a stream table, and later. So is DDL that is in the log
but not visible yet."""

from __future__ import annotations

import pytest
from psycopg import errors

from deploy.local.stack import Stack
from tests.fixtures.standby import committing
from tests.life.test_ddl import Connection, assert_equal, assert_suspended, create


def publication(db: Connection) -> str:
    row = db.execute("SELECT quote_ident(pgtrickle._setting('publication'))").fetchone()
    return str(row[0]) if row else ""


def test_a_source_that_is_published_in_part_is_refused(db: Connection) -> None:
    name = publication(db)
    for listed in ("parted (id, v) ", "parted WHERE (v > 1)"):
        db.execute("CREATE TABLE parted (id int PRIMARY KEY, v int); INSERT INTO parted VALUES (1, 1), (2, 2)")
        db.execute(f"ALTER TABLE parted REPLICA IDENTITY FULL; ALTER PUBLICATION {name} ADD TABLE {listed}".encode())
        with pytest.raises(errors.ObjectNotInPrerequisiteState, match=r"row filter|column list"):
            create(db, "of_parted", "SELECT count(*) AS n FROM parted")
        db.execute("DROP TABLE parted")


def test_a_leaf_that_is_published_in_part(db: Connection) -> None:
    """A leaf that is published by itself has a row filter and a column list of its own, whatever its root has."""
    name = publication(db)
    db.execute("CREATE TABLE sliced (id int PRIMARY KEY, v int) PARTITION BY RANGE (id)")
    db.execute("CREATE TABLE slice1 PARTITION OF sliced FOR VALUES FROM (0) TO (10)")
    db.execute("CREATE TABLE slice2 PARTITION OF sliced FOR VALUES FROM (10) TO (20)")
    db.execute("INSERT INTO sliced VALUES (1, 1), (11, 11)")
    db.execute(f"ALTER PUBLICATION {name} ADD TABLE slice1 WHERE (id > 3)".encode())
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match=r"row filter for partition public\.slice1"):
        create(db, "of_sliced", "SELECT id, v FROM sliced")
    db.execute(f"ALTER PUBLICATION {name} DROP TABLE slice1".encode())
    create(db, "of_sliced", "SELECT id, v FROM sliced")
    assert_equal(db, "of_sliced")
    db.execute(f"ALTER PUBLICATION {name} ADD TABLE slice1 WHERE (id > 3)".encode())
    db.execute("INSERT INTO sliced VALUES (2, 2)")
    assert_suspended(db, "of_sliced", "row filter for partition public.slice1")
    db.execute(f"ALTER PUBLICATION {name} DROP TABLE slice1".encode())
    db.execute("SELECT pgtrickle.resume_stream_table('of_sliced')")
    assert_equal(db, "of_sliced")


@pytest.mark.parametrize("entry", ["narrowed WHERE (id > 3)", "narrowed (id)"])
def test_a_filter_or_list_that_comes_later(db: Connection, entry: str) -> None:
    name = publication(db)
    db.execute("DROP TABLE IF EXISTS narrowed; CREATE TABLE narrowed (id int PRIMARY KEY, v int)")
    db.execute("INSERT INTO narrowed VALUES (1, 1)")
    create(db, "of_narrowed", "SELECT id, v FROM narrowed")
    assert_equal(db, "of_narrowed")
    with db.transaction():
        db.execute(f"ALTER PUBLICATION {name} DROP TABLE narrowed".encode())
        db.execute(f"ALTER PUBLICATION {name} ADD TABLE {entry}".encode())
    db.execute("INSERT INTO narrowed VALUES (2, 2)")
    assert_suspended(db, "of_narrowed", "row filter for it|column list for it")
    with db.transaction():
        db.execute(f"ALTER PUBLICATION {name} DROP TABLE narrowed".encode())
        db.execute(f"ALTER PUBLICATION {name} ADD TABLE narrowed".encode())
    db.execute("SELECT pgtrickle.resume_stream_table('of_narrowed')")
    assert_equal(db, "of_narrowed")


def test_a_source_that_leaves_the_publication(db: Connection) -> None:
    name = publication(db)
    db.execute("CREATE TABLE pushed_out (id int PRIMARY KEY); INSERT INTO pushed_out VALUES (1)")
    db.execute("CREATE TABLE remains (id int PRIMARY KEY); INSERT INTO remains VALUES (1)")
    create(db, "of_pushed", "SELECT count(*) AS n FROM pushed_out")
    create(db, "of_remains", "SELECT count(*) AS n FROM remains")
    assert_equal(db, "of_pushed", "of_remains")
    db.execute(f"ALTER PUBLICATION {name} DROP TABLE pushed_out".encode())
    db.execute("INSERT INTO pushed_out VALUES (2)")
    assert_suspended(db, "of_pushed", "not in publication")
    db.execute("INSERT INTO remains VALUES (2)")
    assert_equal(db, "of_remains")
    db.execute(f"ALTER PUBLICATION {name} ADD TABLE pushed_out".encode())
    db.execute("SELECT pgtrickle.resume_stream_table('of_pushed')")
    assert_equal(db, "of_pushed")
    # Out and in again between two looks.
    with db.transaction():
        db.execute(f"ALTER PUBLICATION {name} DROP TABLE pushed_out".encode())
    db.execute("INSERT INTO pushed_out VALUES (3)")
    db.execute(f"ALTER PUBLICATION {name} ADD TABLE pushed_out".encode())
    try:
        assert_equal(db, "of_pushed")
    except errors.ObjectNotInPrerequisiteState:
        db.execute("SELECT pgtrickle.resume_stream_table('of_pushed')")
        assert_equal(db, "of_pushed")


def test_a_publication_of_some_actions(db: Connection) -> None:
    name = publication(db)
    db.execute("CREATE TABLE muted (id int PRIMARY KEY); INSERT INTO muted VALUES (1), (2), (3)")
    create(db, "of_muted", "SELECT count(*) AS n FROM muted")
    assert_equal(db, "of_muted")
    try:
        db.execute(f"ALTER PUBLICATION {name} SET (publish = 'insert')".encode())
        db.execute("DELETE FROM muted WHERE id = 1")
        assert_suspended(db, "of_muted", "streams only insert")
    finally:
        db.execute(f"ALTER PUBLICATION {name} SET (publish = 'insert, update, delete, truncate')".encode())
    db.execute("SELECT pgtrickle.resume_stream_table('of_muted')")
    assert_equal(db, "of_muted")
    db.execute("DELETE FROM muted WHERE id = 2")
    assert_equal(db, "of_muted")


def test_ddl_whose_commit_waits_for_a_standby(db: Connection, stack: Stack) -> None:
    """The commit is in the log and decoded, but nobody sees it yet: the frontier must not pass it."""
    db.execute("CREATE TABLE awaited (id int PRIMARY KEY, v int); INSERT INTO awaited VALUES (1, 1)")
    create(db, "of_awaited", "SELECT sum(v) AS s FROM awaited")
    assert_equal(db, "of_awaited")
    ddl = "ALTER TABLE awaited ALTER COLUMN v TYPE int USING v + 100"
    with committing(stack.addresses.database_url, ddl, superuser="postgres"):
        at = db.execute("SELECT pg_current_wal_insert_lsn()").fetchone()
        assert at is not None
        with pytest.raises(errors.QueryCanceled):
            db.execute("SELECT pgtrickle.wait_for('of_awaited', lsn => %s::pg_lsn, timeout => '3 s')", (at[0],))
        assert db.execute("TABLE of_awaited").fetchall() == [(1,)]
    assert_suspended(db, "of_awaited", "was rewritten")
