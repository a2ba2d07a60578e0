"""Event triggers: DDL on what stream tables read is in the log, may be refused, and never fails because of us."""

from __future__ import annotations

import re
from collections.abc import Iterator

import psycopg
import pytest
from psycopg import errors

from applier.catalog.catalog import Catalog
from applier.catalog.database import Database
from applier.catalog.install import install_catalog
from applier.plan.depth import Thresholds
from applier.refresh.planning.plan_stream_table import StreamTablePlanner

Connection = psycopg.Connection[tuple[object, ...]]


@pytest.fixture
def db(database: str) -> Iterator[Connection]:
    """Yield a connection to a database with a stream table over a partitioned source, a view and a function."""
    with psycopg.connect(database, autocommit=True) as connection:
        install_catalog(connection)
        connection.execute("CREATE TABLE parts (id int, v int) PARTITION BY LIST (id)")
        connection.execute("CREATE TABLE part1 PARTITION OF parts FOR VALUES IN (1)")
        connection.execute("CREATE TABLE other (id int); CREATE TYPE mood AS ENUM ('sad', 'ok'); CREATE SCHEMA away")
        connection.execute("CREATE TABLE away.felt (id int PRIMARY KEY, m mood)")
        connection.execute("CREATE FUNCTION twice(v int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT $1 * 2'")
        connection.execute("CREATE VIEW seen AS SELECT id, twice(v) AS v FROM parts")
        connection.execute("SELECT pgtrickle.create_stream_table('st', 'SELECT v, count(*) AS n FROM seen GROUP BY v')")
        connection.execute("SELECT pgtrickle.create_stream_table('moods', 'SELECT m, id FROM away.felt')")
        planned, opened = Database(database), Database(database)
        catalog = Catalog(planned)
        for row in catalog.stream_tables.all():
            table = StreamTablePlanner(opened, catalog, Thresholds(4, 5))(row)
            assert table.facts is not None
            catalog.dependencies.store(row.pgt_id, table.facts)
        planned.close()
        opened.close()
        yield connection


def test_ddl_leaves_a_message_in_its_transaction(db: Connection) -> None:
    db.execute("CREATE PUBLICATION of_messages")
    db.execute("SELECT pg_create_logical_replication_slot('of_messages', 'pgoutput')")
    for statement, counts in (
        ("CREATE TABLE part2 PARTITION OF parts FOR VALUES IN (2)", True),
        ("ALTER TABLE parts ADD COLUMN w int", True),
        ("CREATE OR REPLACE VIEW seen AS SELECT id, twice(v + 1) AS v FROM parts", True),
        ("CREATE OR REPLACE FUNCTION twice(v int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT 2 * $1'", True),
        ("ALTER TABLE other ADD COLUMN w int", False),
        ("CREATE TABLE third (id int)", False),
        ("DROP TABLE part1", True),
        # It may have been a partition of which nobody knew yet.
        ("DROP TABLE other", True),
        ("CREATE TEMP TABLE fourth (id int); DROP TABLE fourth", False),
        ("ALTER TYPE mood ADD VALUE 'glad'", True),
        ("ALTER SCHEMA away RENAME TO far", True),
        ("ALTER PUBLICATION pg_trickle DROP TABLE far.felt", True),
    ):
        db.execute(statement.encode())
        found = db.execute(
            "SELECT count(*) FROM pg_logical_slot_get_binary_changes('of_messages', NULL, NULL, 'proto_version', '1',"
            " 'publication_names', 'of_messages', 'messages', 'true')"
            " WHERE position('pg_trickle'::bytea IN data) > 0 AND position('ddl '::bytea IN data) > 0"
        ).fetchone()
        assert (found != (0,)) is counts, statement
    db.execute("SELECT pg_drop_replication_slot('of_messages')")


def test_a_later_partition_gets_the_identity_it_needs(db: Connection) -> None:
    db.execute("CREATE TABLE part3 PARTITION OF parts FOR VALUES IN (3)")
    db.execute("CREATE TABLE loose (id int, v int); ALTER TABLE parts ATTACH PARTITION loose FOR VALUES IN (4)")
    found = db.execute(
        "SELECT relname, relreplident::text FROM pg_class WHERE relname IN ('part3', 'loose') ORDER BY 1"
    ).fetchall()
    assert found == [("loose", "f"), ("part3", "f")]


def test_a_partition_that_is_not_ours_to_alter_does_not_hide_the_message(db: Connection) -> None:
    """Nor does one that another session has locked, which is not waited for."""
    db.execute("CREATE PUBLICATION of_messages; CREATE ROLE catalog_owner")
    owned = db.execute(
        "SELECT oid::regprocedure::text FROM pg_proc WHERE proname IN ('_ddl_ended', '_complete_leaves')"
    )
    try:
        db.execute("GRANT ALL ON ALL TABLES IN SCHEMA pgtrickle TO catalog_owner")
        db.execute("GRANT ALL ON ALL FUNCTIONS IN SCHEMA pgtrickle TO catalog_owner")
        db.execute("GRANT ALL ON SCHEMA pgtrickle TO catalog_owner")
        for (function,) in owned.fetchall():
            db.execute(f"ALTER FUNCTION {function} OWNER TO catalog_owner".encode())
        db.execute("SELECT pg_create_logical_replication_slot('of_messages', 'pgoutput')")
        db.execute("CREATE TABLE part5 PARTITION OF parts FOR VALUES IN (5)")
        found = db.execute(
            "SELECT count(*) FROM pg_logical_slot_get_binary_changes('of_messages', NULL, NULL, 'proto_version', '1',"
            " 'publication_names', 'of_messages', 'messages', 'true') WHERE position('\"joined\"'::bytea IN data) > 0"
        ).fetchone()
        assert found == (1,)
        assert db.execute("SELECT relreplident::text FROM pg_class WHERE relname = 'part5'").fetchone() == ("d",)
    finally:
        db.execute("SELECT pg_drop_replication_slot('of_messages')")
        db.execute(
            "REASSIGN OWNED BY catalog_owner TO CURRENT_USER; DROP OWNED BY catalog_owner; DROP ROLE catalog_owner"
        )


def test_ddl_on_sources_can_be_refused(db: Connection) -> None:
    db.execute("SELECT pgtrickle.set_setting('block_source_ddl', 'true')")
    for statement in (
        "ALTER TABLE parts ADD COLUMN w int",
        "DROP VIEW seen",
        "CREATE OR REPLACE FUNCTION twice(v int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT 3 * $1'",
        "DROP TABLE part1",
        "ALTER TABLE parts RENAME v TO w",
        "ALTER TABLE parts RENAME TO parts2",
        "ALTER VIEW seen RENAME TO looked_at",
        "ALTER TYPE mood RENAME VALUE 'sad' TO 'blue'",
        "ALTER TYPE mood ADD VALUE 'glad'",
        "ALTER TYPE mood RENAME TO temper",
        "ALTER SCHEMA away RENAME TO far",
        "ALTER TABLE away.felt SET SCHEMA public",
        "ALTER PUBLICATION pg_trickle DROP TABLE away.felt",
        "ALTER PUBLICATION pg_trickle SET TABLE other",
        "ALTER PUBLICATION pg_trickle SET (publish = 'insert')",
        "ALTER PUBLICATION pg_trickle SET (publish_via_partition_root = true)",
        "DROP PUBLICATION pg_trickle",
    ):
        with pytest.raises(errors.ObjectInUse, match="stream tables read what it alters"):
            db.execute(statement.encode())
    # The applier has it in use; what is reset does not wait for it.
    db.execute(
        "INSERT INTO pgtrickle.pgt_settings_in_use (program, name, value, source)"
        " VALUES ('pg-trickle-applier', 'block_source_ddl', 'true', 'setting')"
    )
    db.execute("SELECT pgtrickle.reset_setting('block_source_ddl')")
    db.execute("ALTER TABLE parts ADD COLUMN w int")
    db.execute("UPDATE pgtrickle.pgt_settings_in_use SET source = 'environment'")
    with pytest.raises(errors.ObjectInUse):
        db.execute("ALTER TABLE parts DROP COLUMN w")
    db.execute("ALTER TABLE other ADD COLUMN w int; CREATE TABLE part2 PARTITION OF parts FOR VALUES IN (2)")
    db.execute("COMMENT ON TABLE parts IS 'x'; CREATE INDEX ON parts (v); GRANT SELECT ON parts TO PUBLIC")
    db.execute("SELECT pgtrickle.create_stream_table('st2', 'SELECT id FROM parts')")
    db.execute("ALTER PUBLICATION pg_trickle ADD TABLE other; ALTER PUBLICATION pg_trickle DROP TABLE other")
    db.execute("CREATE SCHEMA empty; ALTER SCHEMA empty RENAME TO still_empty; CREATE PUBLICATION mine FOR TABLE other")
    db.execute("ALTER PUBLICATION mine SET (publish = 'insert'); DROP PUBLICATION mine")
    db.execute("SELECT pgtrickle.drop_stream_table('st'); SELECT pgtrickle.drop_stream_table('st2')")
    db.execute("DROP VIEW seen; DROP TABLE parts")


def test_what_was_done_is_kept_for_the_error(db: Connection) -> None:
    """Only DDL after the facts were stored, with the role that was set."""
    (st,) = db.execute("SELECT pgt_id FROM pgtrickle.pgt_stream_tables WHERE pgt_name = 'moods'").fetchall()
    since = "SELECT pgtrickle._ddl_since(%s)"
    assert db.execute(since, st).fetchone() == (None,)
    db.execute("ALTER TABLE parts ADD COLUMN x int; COMMENT ON TABLE away.felt IS 'x'")
    assert db.execute(since, st).fetchone() == (None,)
    db.execute("CREATE ROLE app_owner SUPERUSER; SET ROLE app_owner")
    db.execute("ALTER TABLE away.felt ADD COLUMN x int")
    db.execute("RESET ROLE; DROP ROLE app_owner")
    (seen,) = db.execute(since, st).fetchall()
    assert re.fullmatch(r"ALTER TABLE by app_owner at [0-9A-F]+/[0-9A-F]+", str(seen[0])), seen
    db.execute("SELECT pgtrickle._store_facts(%s, '{}', ARRAY['away.felt'::regclass::oid])", st)
    assert db.execute(since, st).fetchone() == (None,)
    db.execute("ALTER TABLE away.felt DROP COLUMN x")
    assert "ALTER TABLE by" in str(db.execute(since, st).fetchone())


def test_a_session_cannot_pass_its_ddl_off_as_our_own(db: Connection) -> None:
    """Everybody may set a setting; what the API marks is signed for one transaction of one session."""
    db.execute("SELECT pgtrickle.set_setting('block_source_ddl', 'true')")
    alters = "ALTER TABLE parts ADD COLUMN w int"
    for value in ("on", "true", "0" * 64):
        db.execute(f"SET pg_trickle.admits = '{value}'".encode())
        with pytest.raises(errors.ObjectInUse, match="stream tables read what it alters"):
            db.execute(alters.encode())
    with db.transaction():
        db.execute("SELECT pgtrickle._mark_own_ddl(true)")
        (mark,) = db.execute("SHOW pg_trickle.admits").fetchone() or ("",)
        db.execute("ALTER TABLE parts ADD COLUMN ours int")
    db.execute("SELECT set_config('pg_trickle.admits', %s, false)", (mark,))
    with pytest.raises(errors.ObjectInUse):
        db.execute(alters.encode())


def test_ddl_never_fails_because_of_us(db: Connection) -> None:
    db.execute("ALTER TABLE pgtrickle.pgt_dependency_objects RENAME TO hidden")
    db.execute("ALTER TABLE parts ADD COLUMN w int; DROP TABLE other")
    db.execute("ALTER TABLE pgtrickle.hidden RENAME TO pgt_dependency_objects")
    # Not even when it cannot be found out whether DDL is to be refused: then it is let through.
    for blocks in ("false", "true"):
        db.execute("SELECT pgtrickle.set_setting('block_source_ddl', %s)", (blocks,))
        with db.transaction():
            db.execute("ALTER TABLE pgtrickle.pgt_settings RENAME TO hidden")
            db.execute("ALTER TABLE parts ALTER COLUMN w TYPE bigint; ALTER PUBLICATION pg_trickle DROP TABLE parts")
            db.execute("ALTER PUBLICATION pg_trickle ADD TABLE parts")
            db.execute("ALTER TABLE pgtrickle.hidden RENAME TO pgt_settings")
    db.execute("SELECT pgtrickle.set_setting('block_source_ddl', 'false')")
    # A partition that cannot be completed does not keep the news from being written.
    db.execute(
        "CREATE OR REPLACE FUNCTION pgtrickle._complete_leaves(touched oid[]) RETURNS void LANGUAGE plpgsql SET"
        " search_path = pg_catalog, pg_temp AS $$ BEGIN RAISE EXCEPTION 'no'; END $$"
    )
    noted = b"SELECT count(*) FROM pgtrickle.pgt_source_ddl"
    before = db.execute(noted).fetchone()
    db.execute("ALTER TABLE parts ADD COLUMN y int")
    assert db.execute(noted).fetchone() != before
    # An upgrade replaces the functions while the event triggers are there.
    assert install_catalog(db) == []
    assert db.execute("SELECT count(*) FROM pg_event_trigger WHERE evtname LIKE 'pgtrickle%'").fetchone() == (2,)


def test_health_says_what_is_missing(db: Connection) -> None:
    check = "SELECT severity FROM pgtrickle.health_check() WHERE check_name = 'source_ddl'"
    assert db.execute(check.encode()).fetchone() == ("OK",)
    db.execute("DROP EVENT TRIGGER pgtrickle_drop")
    assert db.execute(check.encode()).fetchone() == ("INFO",)
