"""Sources are altered, dropped and created again under running stream tables: equal, or suspended with the reason."""

from __future__ import annotations

import psycopg
import pytest
from psycopg import errors

from applier.refresh.check import check_stream_table
from shared_schema.table_schema import TableId

Connection = psycopg.Connection[tuple[object, ...]]


def create(db: Connection, name: str, query: str) -> None:
    db.execute("SELECT pgtrickle.create_stream_table(%s, %s)", (name, query))


def assert_equal(db: Connection, *names: str) -> None:
    for name in names:
        checked = check_stream_table(db, TableId("public", name))
        assert checked.equal, checked


def assert_suspended(db: Connection, name: str, because: str) -> None:
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match=because):
        db.execute("SELECT pgtrickle.wait_for(%s)", (name,))


def test_columns_come_and_go(db: Connection) -> None:
    db.execute("CREATE TABLE altered (id int PRIMARY KEY, v int)")
    db.execute("INSERT INTO altered SELECT i, i % 5 FROM generate_series(1, 20) i")
    create(db, "by_v", "SELECT v, count(*) AS n FROM altered GROUP BY v")
    assert_equal(db, "by_v")

    # The new column has a value in every old row, which is not in the log.
    db.execute("ALTER TABLE altered ADD COLUMN w text DEFAULT 'x'")
    db.execute("INSERT INTO altered VALUES (100, 3, 'new'); UPDATE altered SET w = 'y' WHERE id < 5")
    assert_equal(db, "by_v")
    create(db, "with_w", "SELECT id, w FROM altered")
    assert_equal(db, "by_v", "with_w")

    db.execute("ALTER TABLE altered DROP COLUMN w")
    db.execute("INSERT INTO altered VALUES (101, 4); DELETE FROM altered WHERE id = 7")
    assert_equal(db, "by_v")
    assert_suspended(db, "with_w", "w")

    db.execute("ALTER TABLE altered ALTER COLUMN v TYPE bigint USING v + 1")
    assert_suspended(db, "by_v", "no longer returns")
    db.execute("SELECT pgtrickle.drop_stream_table('by_v')")
    create(db, "by_v", "SELECT v, count(*) AS n FROM altered GROUP BY v")
    db.execute("INSERT INTO altered VALUES (200, 10000000000)")
    assert_equal(db, "by_v")


def test_a_table_made_again_under_its_name(db: Connection) -> None:
    db.execute("CREATE TABLE remade (id int PRIMARY KEY, v int); INSERT INTO remade VALUES (1, 1), (2, 2)")
    create(db, "of_remade", "SELECT id, v FROM remade")
    assert_equal(db, "of_remade")
    db.execute("DROP TABLE remade; CREATE TABLE remade (id int PRIMARY KEY, v int); INSERT INTO remade VALUES (5, 5)")
    assert_suspended(db, "of_remade", "dropped and created again")
    create(db, "of_remade_too", "SELECT id, v FROM remade WHERE v > 0")
    assert_equal(db, "of_remade_too")
    db.execute("DROP TABLE remade")
    db.execute("CREATE TABLE remade (id bigint PRIMARY KEY, name text, v int); INSERT INTO remade VALUES (1, 'n', 1)")
    create(db, "of_other", "SELECT id, name, v FROM remade")
    db.execute("INSERT INTO remade VALUES (2, 'm', 2)")
    assert_equal(db, "of_other")
    assert_suspended(db, "of_remade_too", "no longer returns|created again")


def test_a_lost_column_is_found_again_by_resume(db: Connection) -> None:
    db.execute("CREATE TABLE dated (id int PRIMARY KEY, day date); INSERT INTO dated VALUES (1, '2024-01-01')")
    create(db, "reads_day", "SELECT id, day FROM dated")
    create(db, "reads_key", "SELECT id FROM dated")
    assert_equal(db, "reads_day", "reads_key")
    db.execute("INSERT INTO dated VALUES (2, 'infinity')")
    assert_suspended(db, "reads_day", "cannot represent exactly")
    assert_equal(db, "reads_key")
    db.execute("UPDATE dated SET day = '2024-02-02' WHERE id = 2")
    db.execute("SELECT pgtrickle.resume_stream_table('reads_day')")
    db.execute("UPDATE dated SET day = day + 1")
    assert_equal(db, "reads_day", "reads_key")


def test_a_source_keeps_its_replica_identity(db: Connection) -> None:
    """The log has only the key of an old row, and no unchanged large value."""
    db.execute("SELECT pgtrickle.set_setting('replica_identity', 'keep')")
    try:
        db.execute("CREATE TABLE by_key (part text, id int, v int, large text, PRIMARY KEY (part, id))")
        db.execute("ALTER TABLE by_key ALTER COLUMN large SET STORAGE EXTERNAL")
        db.execute("INSERT INTO by_key SELECT 'a', i, i % 3, repeat(i::text, 5000) FROM generate_series(1, 20) i")
        create(db, "all_kept", "SELECT * FROM by_key")
        create(db, "kept_by_v", "SELECT v, count(*) AS n, max(length(large)) AS longest FROM by_key GROUP BY v")
    finally:
        db.execute("SELECT pgtrickle.reset_setting('replica_identity')")
    identity = db.execute("SELECT relreplident::text FROM pg_class WHERE relname = 'by_key'").fetchall()
    assert identity == [("d",)]
    for change in (
        "UPDATE by_key SET v = v + 1 WHERE id < 5; UPDATE by_key SET v = v + 1 WHERE id < 3",
        "DELETE FROM by_key WHERE id = 7; UPDATE by_key SET part = 'b', v = NULL WHERE id > 15",
        "UPDATE by_key SET large = 's' WHERE id = 1; UPDATE by_key SET v = 9 WHERE id = 1",
        "DELETE FROM by_key WHERE id = 3; INSERT INTO by_key VALUES ('a', 3, 1, NULL); UPDATE by_key SET v = 2",
        "TRUNCATE by_key; INSERT INTO by_key VALUES ('c', 1, 1, 'one'); UPDATE by_key SET id = 2",
    ):
        db.execute(change)
        assert_equal(db, "all_kept", "kept_by_v")


def test_a_source_that_would_be_refused_by_now(db: Connection) -> None:
    db.execute("CREATE TABLE alone (id int PRIMARY KEY); INSERT INTO alone VALUES (1)")
    create(db, "of_alone", "SELECT id FROM alone")
    assert_equal(db, "of_alone")
    # Its rows would be part of the query's result, but they are not in the stream.
    db.execute("CREATE TABLE offspring () INHERITS (alone); INSERT INTO offspring VALUES (2)")
    assert_suspended(db, "of_alone", "inheritance")
    db.execute("DROP TABLE offspring; INSERT INTO alone VALUES (3)")
    db.execute("SELECT pgtrickle.resume_stream_table('of_alone')")
    assert_equal(db, "of_alone")
    db.execute("ALTER TABLE alone ENABLE ROW LEVEL SECURITY")
    assert_suspended(db, "of_alone", "row-level security")
    db.execute("ALTER TABLE alone DISABLE ROW LEVEL SECURITY")
    db.execute("SELECT pgtrickle.resume_stream_table('of_alone')")
    db.execute("DELETE FROM alone WHERE id = 1")
    assert_equal(db, "of_alone")


def test_pause_and_resume(db: Connection) -> None:
    db.execute("CREATE TABLE rested (id int PRIMARY KEY); INSERT INTO rested VALUES (1)")
    create(db, "resting", "SELECT id FROM rested")
    assert_equal(db, "resting")
    db.execute("SELECT pgtrickle.pause_stream_table('resting')")
    db.execute("INSERT INTO rested VALUES (2)")
    with pytest.raises(errors.QueryCanceled):
        db.execute("SELECT pgtrickle.wait_for('resting', timeout => '2 s')")
    assert db.execute("TABLE resting").fetchall() == [(1,)]
    db.execute("SELECT pgtrickle.resume_stream_table('resting')")
    assert_equal(db, "resting")


def test_a_replaced_function_is_noticed(db: Connection) -> None:
    body = "CREATE OR REPLACE FUNCTION taxed(v int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT $1 * {}'"
    query = "SELECT id, taxed(v) AS t FROM priced"
    db.execute("CREATE TABLE priced (id int PRIMARY KEY, v int); INSERT INTO priced VALUES (1, 1), (2, 2)")
    db.execute(body.format(2).encode())
    create(db, "of_taxed", query)
    db.execute("SELECT pgtrickle.create_stream_table('strict', %s, refresh_mode => 'DIFFERENTIAL')", (query,))
    assert_equal(db, "of_taxed", "strict")

    db.execute(body.format(3).encode())
    db.execute("INSERT INTO priced VALUES (3, 3)")
    # The one that PostgreSQL may compute is computed; the other one never mixes rows of two functions.
    assert_suspended(db, "strict", "was changed since the stream table was created")
    assert db.execute("SELECT * FROM strict ORDER BY id").fetchall() == [(1, 2), (2, 4)]
    assert_equal(db, "of_taxed")

    done = db.execute("SELECT pgtrickle.alter_stream_table('of_taxed', query => %s)", (query,)).fetchone()
    assert done == ("compatible",)
    db.execute("SELECT pgtrickle.drop_stream_table('strict')")
    db.execute("SELECT pgtrickle.create_stream_table('strict', %s, refresh_mode => 'DIFFERENTIAL')", (query,))
    db.execute("INSERT INTO priced VALUES (4, 4)")
    assert_equal(db, "of_taxed", "strict")

    db.execute(body.format(5).encode())
    assert_suspended(db, "strict", "was changed since the stream table was created")
    db.execute(body.format(3).encode())
    db.execute("SELECT pgtrickle.resume_stream_table('strict')")
    db.execute("INSERT INTO priced VALUES (5, 5)")
    assert_equal(db, "of_taxed", "strict")
