"""DDL on what stream tables read: equal to PostgreSQL, or suspended with the reason; never fresh and wrong."""

from __future__ import annotations

import os

import psycopg
import pytest
from psycopg import errors

from applier.refresh.check import check_stream_table
from deploy.local.stack import Stack
from shared_schema.table_schema import TableId
from tests import oracle
from tests.fixtures.alerts import next_alert

Connection = psycopg.Connection[tuple[object, ...]]


def create(db: Connection, name: str, query: str) -> None:
    db.execute("SELECT pgtrickle.create_stream_table(%s, %s)", (name, query))


def assert_equal(db: Connection, *names: str) -> None:
    for name in names:
        db.execute("SELECT pgtrickle.wait_for(%s, timeout => '120 s')", (name,))
        checked = check_stream_table(db, TableId("public", name))
        assert checked.equal, checked


def assert_suspended(db: Connection, name: str, because: str) -> None:
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match=because):
        db.execute("SELECT pgtrickle.wait_for(%s, timeout => '120 s')", (name,))


def repair(db: Connection, name: str) -> None:
    db.execute("SELECT pgtrickle.reinitialize_stream_table(%s)", (name,))


def history(db: Connection, name: str) -> list[str]:
    rows = db.execute(
        "SELECT refresh_reason_detail FROM pgtrickle.get_refresh_history(%s)"
        " WHERE refresh_reason = 'AUTO_SCHEMA_EVOLUTION'",
        (name,),
    ).fetchall()
    return [str(row[0]) for row in rows]


def test_rows_that_are_rewritten_without_being_in_the_log(db: Connection) -> None:
    """ALTER COLUMN … USING under the same type, and a new expression of a generated column."""
    db.execute("CREATE TABLE rewritten (id int PRIMARY KEY, v int, g int GENERATED ALWAYS AS (id * 2) STORED)")
    db.execute("INSERT INTO rewritten VALUES (1, 1), (2, 2)")
    create(db, "of_v", "SELECT sum(v) AS s FROM rewritten")
    create(db, "of_id", "SELECT id FROM rewritten")
    assert_equal(db, "of_v", "of_id")
    db.execute("ALTER TABLE rewritten ALTER COLUMN v TYPE int USING v + 100")
    assert_suspended(db, "of_v", "v of public.rewritten was rewritten")
    # A reader of the other columns is not affected; a new reader sees the new values.
    assert_equal(db, "of_id")
    create(db, "of_v_too", "SELECT id, v FROM rewritten")
    assert_equal(db, "of_v_too")
    repair(db, "of_v")
    db.execute("INSERT INTO rewritten VALUES (3, 3)")
    assert_equal(db, "of_v")
    if db.info.server_version >= 180_000:
        create(db, "of_g", "SELECT id, g FROM rewritten")
        assert_equal(db, "of_g")
        db.execute("ALTER TABLE rewritten ALTER COLUMN g SET EXPRESSION AS (id * 3)")
        assert_suspended(db, "of_g", "g of public.rewritten was rewritten")
        repair(db, "of_g")
        assert_equal(db, "of_g")


def test_a_column_dropped_and_added_again(db: Connection) -> None:
    """In one transaction and in two; the column of the same name is another one."""
    db.execute("CREATE TABLE refilled (id int PRIMARY KEY, v int); INSERT INTO refilled VALUES (1, 1), (2, 2)")
    create(db, "of_refilled", "SELECT sum(v) AS s FROM refilled")
    assert_equal(db, "of_refilled")
    with db.transaction():
        db.execute("ALTER TABLE refilled DROP COLUMN v")
        db.execute("ALTER TABLE refilled ADD COLUMN v int DEFAULT 7")
    assert_suspended(db, "of_refilled", "another column has its name")
    repair(db, "of_refilled")
    assert_equal(db, "of_refilled")
    db.execute("ALTER TABLE refilled DROP COLUMN v")
    assert_suspended(db, "of_refilled", "column v of public.refilled was dropped")
    db.execute("ALTER TABLE refilled ADD COLUMN v int DEFAULT 8")
    create(db, "of_new", "SELECT id, v FROM refilled")
    assert_equal(db, "of_new")
    repair(db, "of_refilled")
    db.execute("INSERT INTO refilled VALUES (3, 3)")
    assert_equal(db, "of_refilled", "of_new")


def test_names_are_followed(db: Connection) -> None:
    """Columns swapped by three renames, a renamed column and table, SET SCHEMA, a view and a type renamed."""
    db.execute("CREATE TYPE named AS ENUM ('x', 'y')")
    db.execute("CREATE TABLE swapped (id int PRIMARY KEY, a int, b int, k named)")
    db.execute("INSERT INTO swapped VALUES (1, 1, 10, 'x'), (2, 2, 20, 'y')")
    db.execute("CREATE VIEW over_swapped AS SELECT id, b FROM swapped")
    create(db, "of_a", "SELECT id, a FROM swapped WHERE k = 'x'::named")
    create(db, "of_both", "SELECT s.id, s.a, o.b FROM swapped s JOIN over_swapped o USING (id)")
    assert_equal(db, "of_a", "of_both")
    with db.transaction():
        db.execute("ALTER TABLE swapped RENAME a TO c")
        db.execute("ALTER TABLE swapped RENAME b TO a")
        db.execute("ALTER TABLE swapped RENAME c TO b")
    db.execute("INSERT INTO swapped (id, a, b, k) VALUES (3, 30, 3, 'x')")
    assert_equal(db, "of_a", "of_both")
    assert db.execute("SELECT * FROM of_a ORDER BY id").fetchall() == [(1, 1), (3, 3)]
    assert any("is now called" in seen for seen in history(db, "of_a"))
    db.execute("ALTER TABLE swapped RENAME TO swapped2; CREATE SCHEMA away; ALTER TABLE swapped2 SET SCHEMA away")
    db.execute("ALTER VIEW over_swapped RENAME TO over_renamed; ALTER TYPE named RENAME TO kinds")
    db.execute("INSERT INTO away.swapped2 (id, a, b, k) VALUES (4, 40, 4, 'x'); DELETE FROM away.swapped2 WHERE id = 1")
    assert_equal(db, "of_a", "of_both")
    assert db.execute("SELECT * FROM of_a ORDER BY id").fetchall() == [(3, 3), (4, 4)]
    db.execute("ALTER SCHEMA away RENAME TO far_away; DELETE FROM far_away.swapped2 WHERE id = 3")
    assert_equal(db, "of_a", "of_both")


def test_a_column_leaves_after_names_were_followed(db: Connection) -> None:
    """Old names of columns are a list by position in the stored text: it must not name the next column instead."""
    db.execute("CREATE TABLE listed (id int PRIMARY KEY, unread int, a int, b int GENERATED ALWAYS AS (a * 2) STORED)")
    db.execute("INSERT INTO listed SELECT i, i, i % 5 FROM generate_series(1, 20) i")
    create(db, "of_listed", "SELECT a, count(*) AS n FROM listed GROUP BY a")
    create(db, "of_listed_whole", "SELECT b, count(*) AS n FROM listed GROUP BY b")
    assert_equal(db, "of_listed", "of_listed_whole")
    db.execute("ALTER TABLE listed RENAME a TO c")
    assert_equal(db, "of_listed", "of_listed_whole")
    with db.transaction():
        db.execute("ALTER TABLE listed DROP COLUMN unread; ALTER TABLE listed ADD COLUMN more int DEFAULT 7")
    db.execute("UPDATE listed SET c = c + 1 WHERE id < 9")
    assert_equal(db, "of_listed", "of_listed_whole")
    for name, column in (("of_listed", "c"), ("of_listed_whole", "b")):
        rows = db.execute(f"SELECT {column}, count(*) FROM listed GROUP BY 1 EXCEPT ALL TABLE {name}".encode())
        assert rows.fetchall() == []


def test_a_table_has_another_name_for_a_moment(db: Connection) -> None:
    """Renamed, written and renamed back in one transaction; SET SCHEMA and back likewise."""
    db.execute("CREATE TABLE masked (id int PRIMARY KEY); INSERT INTO masked VALUES (1)")
    db.execute("CREATE SCHEMA IF NOT EXISTS for_a_moment")
    create(db, "of_masked", "SELECT id FROM masked")
    assert_equal(db, "of_masked")
    with db.transaction():
        db.execute("ALTER TABLE masked RENAME TO masked_2")
        db.execute("INSERT INTO masked_2 VALUES (2)")
        db.execute("ALTER TABLE masked_2 RENAME TO masked")
    with db.transaction():
        db.execute("ALTER TABLE masked SET SCHEMA for_a_moment")
        db.execute("INSERT INTO for_a_moment.masked VALUES (3)")
        db.execute("ALTER TABLE for_a_moment.masked SET SCHEMA public")
    assert_equal(db, "of_masked")
    # Captured under the other name meanwhile.
    db.execute("ALTER TABLE masked RENAME TO masked_3")
    db.execute("INSERT INTO masked_3 VALUES (4)")
    assert_equal(db, "of_masked")
    db.execute("ALTER TABLE masked_3 RENAME TO masked")
    db.execute("INSERT INTO masked VALUES (5)")
    assert_equal(db, "of_masked")
    db.execute("INSERT INTO masked VALUES (6)")
    assert_equal(db, "of_masked")


def test_a_name_that_is_taken_by_another_table(db: Connection) -> None:
    """Blue-green: the old table is moved aside and a new one takes its name."""
    db.execute("CREATE TABLE blue (id int PRIMARY KEY); INSERT INTO blue VALUES (1)")
    create(db, "of_blue", "SELECT id FROM blue")
    assert_equal(db, "of_blue")
    db.execute("CREATE TABLE green (id int PRIMARY KEY); INSERT INTO green VALUES (7)")
    with db.transaction():
        db.execute("ALTER TABLE blue RENAME TO blue_old")
        db.execute("ALTER TABLE green RENAME TO blue")
    assert_suspended(db, "of_blue", "another relation has its name")
    repair(db, "of_blue")
    assert_equal(db, "of_blue")
    assert db.execute("TABLE of_blue").fetchall() == [(7,)]


def test_a_replaced_view_and_function(db: Connection) -> None:
    db.execute("CREATE TABLE looked_at (id int PRIMARY KEY, v int)")
    db.execute("INSERT INTO looked_at VALUES (1, 1), (2, 2), (3, 3)")
    db.execute("CREATE FUNCTION shown(v int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT $1 * 2'")
    db.execute("CREATE VIEW low AS SELECT id, v FROM looked_at WHERE v < 3")
    db.execute("CREATE VIEW lower AS SELECT id, v FROM low")
    create(db, "of_view", "SELECT id, v FROM lower")
    db.execute(
        "SELECT pgtrickle.create_stream_table('of_shown', 'SELECT id, shown(v) AS s FROM looked_at',"
        " refresh_mode => 'DIFFERENTIAL')"
    )
    assert_equal(db, "of_view", "of_shown")
    # The same meaning in other words changes nothing; that it was looked at is in the history.
    db.execute("CREATE OR REPLACE VIEW lower AS SELECT id, v FROM low l")
    assert_equal(db, "of_view")
    assert history(db, "of_view") == ["view public.lower was replaced"]
    db.execute("ALTER VIEW lower RENAME TO lowest")
    assert_equal(db, "of_view")
    assert "public.lower is now called public.lowest" in history(db, "of_view")
    db.execute("CREATE OR REPLACE VIEW low AS SELECT id, v FROM looked_at WHERE v < 4")
    db.execute("CREATE OR REPLACE FUNCTION shown(v int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT $1 * 5'")
    assert_suspended(db, "of_view", "view public.low was replaced")
    assert_suspended(db, "of_shown", "was changed since")
    assert db.execute("SELECT count(*) FROM of_view").fetchone() == (2,)
    repair(db, "of_view")
    repair(db, "of_shown")
    assert_equal(db, "of_view", "of_shown")


def test_what_auto_evolve_follows(db: Connection) -> None:
    """A replaced view and function and rewritten rows: exactly, with the reason in the history. A query that calls a
    function of users is run by PostgreSQL as a whole each time."""
    db.execute("CREATE TABLE moving (id int PRIMARY KEY, v int); INSERT INTO moving VALUES (1, 1), (2, 2), (3, 3)")
    db.execute("CREATE FUNCTION moved(v int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT $1 * 2'")
    db.execute("CREATE VIEW in_view AS SELECT id, v FROM moving WHERE v < 3")
    db.execute(
        "SELECT pgtrickle.create_stream_table('follows', 'SELECT id, moved(v) AS v FROM in_view', auto_evolve => true)"
    )
    assert_equal(db, "follows")
    db.execute("CREATE OR REPLACE VIEW in_view AS SELECT id, v FROM moving WHERE v > 1")
    assert_equal(db, "follows")
    db.execute("CREATE OR REPLACE FUNCTION moved(v int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT $1 * 3'")
    assert_equal(db, "follows")
    db.execute("INSERT INTO moving VALUES (4, 4)")
    # PostgreSQL alters no column that a view reads.
    db.execute("CREATE TABLE plus (id int PRIMARY KEY, v int); INSERT INTO plus VALUES (1, 1), (2, 2)")
    db.execute("SELECT pgtrickle.create_stream_table('added', 'SELECT sum(v) FROM plus', auto_evolve => true)")
    assert_equal(db, "follows", "added")
    db.execute("ALTER TABLE plus ALTER COLUMN v TYPE int USING v + 10; INSERT INTO plus VALUES (3, 3)")
    assert_equal(db, "added")
    seen = " ".join([*history(db, "follows"), *history(db, "added")])
    assert all(text in seen for text in ("in_view was replaced", "v of public.plus was rewritten")), seen


def test_auto_evolve_as_a_setting(db: Connection) -> None:
    """It counts for stream tables without an option of their own; a query that PostgreSQL runs keeps its columns."""
    db.execute("CREATE TABLE grown (id int PRIMARY KEY, v int); INSERT INTO grown VALUES (1, 1), (2, 2)")
    create(db, "all_of_grown", "SELECT * FROM grown")
    create(db, "sum_of_grown", "SELECT sum(v) AS s FROM grown")
    db.execute("SELECT pgtrickle.create_stream_table('opted_out', 'SELECT * FROM grown', auto_evolve => false)")
    db.execute("CREATE FUNCTION opaque(v int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN v; END'")
    create(db, "run_by_postgres", "SELECT *, opaque(v) AS r FROM grown")
    assert_equal(db, "all_of_grown", "sum_of_grown", "opted_out", "run_by_postgres")
    db.execute("SELECT pgtrickle.set_setting('auto_evolve', 'true')")
    try:
        # The applier reads settings again by itself.
        oracle.eventually(lambda: evolves(db))
        db.execute("ALTER TABLE grown ADD COLUMN w int DEFAULT 7")
        db.execute("ALTER TABLE grown ALTER COLUMN v TYPE int USING v * 10; INSERT INTO grown VALUES (3, 30, 3)")
        oracle.eventually(lambda: has_columns(db, "all_of_grown", "id v w"))
        assert_equal(db, "all_of_grown", "sum_of_grown")
        assert any("added column w" in seen for seen in history(db, "all_of_grown"))
        assert any("was rewritten" in seen for seen in history(db, "sum_of_grown"))
        assert_suspended(db, "opted_out", "v of public.grown was rewritten")
        assert_equal(db, "run_by_postgres")
        has_columns(db, "run_by_postgres", "id v r")
        has_columns(db, "opted_out", "id v")
    finally:
        db.execute("SELECT pgtrickle.reset_setting('auto_evolve')")


def evolves(db: Connection) -> None:
    assert db.execute("SELECT pgtrickle._setting('auto_evolve')").fetchone() == ("true",)


def has_columns(db: Connection, name: str, expected: str) -> None:
    found = db.execute(
        "SELECT string_agg(attname, ' ' ORDER BY attnum) FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0"
        " AND NOT attisdropped",
        (name,),
    ).fetchone()
    assert found == (expected,)


def test_labels_of_an_enum(db: Connection, stack: Stack) -> None:
    """RENAME VALUE, then DELETE, also in Delta; ADD VALUE."""
    db.execute("CREATE TYPE mood AS ENUM ('sad', 'ok'); CREATE TABLE moods (id int PRIMARY KEY, m mood)")
    db.execute(
        "INSERT INTO moods SELECT i, CASE WHEN i % 2 = 0 THEN 'sad' ELSE 'ok' END::mood FROM generate_series(1, 20) i"
    )
    create(db, "by_mood", "SELECT m, count(*) AS n FROM moods GROUP BY m")
    create(db, "best", "SELECT max(m) AS m FROM moods WHERE m <> 'sad'::mood")
    assert_equal(db, "by_mood", "best")
    db.execute("ALTER TYPE mood RENAME VALUE 'sad' TO 'blue'")
    db.execute("DELETE FROM moods WHERE id = 2")
    assert_equal(db, "by_mood", "best")
    expected = oracle.query_result(db, "by_mood")
    oracle.eventually(lambda: oracle.assert_same(expected, oracle.in_delta(stack.addresses.delta_root, "by_mood"), ""))
    db.execute("ALTER TYPE mood ADD VALUE 'great'")
    db.execute("INSERT INTO moods VALUES (100, 'great')")
    assert_equal(db, "by_mood", "best")


def test_types_inside_of_types(db: Connection, stack: Stack) -> None:
    """A label of an enum inside a composite type, a range and a domain of a domain; attributes; ALTER DOMAIN."""
    db.execute("CREATE TYPE hue AS ENUM ('red', 'blue'); CREATE DOMAIN hue1 AS hue; CREATE DOMAIN hue2 AS hue1")
    db.execute("CREATE TYPE spot AS (x int, h hue); CREATE TYPE hues AS RANGE (subtype = hue)")
    db.execute("CREATE TABLE painted (id int PRIMARY KEY, d hue2, s spot, r hues)")
    db.execute(
        "INSERT INTO painted"
        " SELECT i, 'red', ROW(i, 'red')::spot, hues('red', 'blue', '[]') FROM generate_series(1, 9) i"
    )
    create(db, "of_painted", "SELECT id, d, s, r FROM painted")
    create(db, "of_keys", "SELECT count(*) AS n FROM painted")
    assert_equal(db, "of_painted", "of_keys")
    db.execute("ALTER TYPE hue RENAME VALUE 'red' TO 'crimson'; DELETE FROM painted WHERE id = 1")
    assert_equal(db, "of_painted", "of_keys")
    db.execute("ALTER TYPE spot ADD ATTRIBUTE y int; DELETE FROM painted WHERE id = 2")
    db.execute("INSERT INTO painted VALUES (20, 'blue', ROW(1, 'blue', 2)::spot, 'empty')")
    assert_equal(db, "of_painted", "of_keys")
    seen = " ".join(history(db, "of_painted"))
    assert "label red of public.hue is now crimson" in seen and "public.spot has other attributes" in seen
    expected = oracle.query_result(db, "of_painted")
    oracle.eventually(
        lambda: oracle.assert_same(expected, oracle.in_delta(stack.addresses.delta_root, "of_painted"), "")
    )
    for statement in (
        "ALTER DOMAIN hue1 SET DEFAULT 'blue'",
        "ALTER DOMAIN hue2 ADD CHECK (value IS NOT NULL)",
        "ALTER TYPE hue ADD VALUE 'green'",
        "INSERT INTO painted VALUES (21, 'green', ROW(1, 'green', 2)::spot, '[green,green]')",
    ):
        db.execute(statement.encode())
    assert_equal(db, "of_painted", "of_keys")


def test_one_leaf_is_written_anew(db: Connection) -> None:
    """VACUUM FULL and CLUSTER of a leaf change no row; another expression of its generated column does."""
    db.execute(
        "CREATE TABLE cut (id int PRIMARY KEY, g int GENERATED ALWAYS AS (id * 2) STORED) PARTITION BY RANGE (id)"
    )
    db.execute("CREATE TABLE cut1 PARTITION OF cut FOR VALUES FROM (0) TO (10)")
    db.execute("CREATE TABLE cut2 PARTITION OF cut FOR VALUES FROM (10) TO (20)")
    db.execute("INSERT INTO cut VALUES (1), (2), (11)")
    if db.info.server_version < 180_000:
        pytest.skip("generated columns are streamed since version 18")
    create(db, "of_cut", "SELECT id, g FROM cut")
    create(db, "of_cut_ids", "SELECT id FROM cut")
    assert_equal(db, "of_cut", "of_cut_ids")
    for statement in ("VACUUM FULL cut1", "CLUSTER cut2 USING cut2_pkey", "INSERT INTO cut VALUES (3)"):
        db.execute(statement.encode())
        assert_equal(db, "of_cut", "of_cut_ids")
    assert history(db, "of_cut") == []
    db.execute("ALTER TABLE cut1 ALTER COLUMN g SET EXPRESSION AS (id * 3)")
    assert_suspended(db, "of_cut", "g of public.cut was rewritten")
    assert_equal(db, "of_cut_ids")
    repair(db, "of_cut")
    db.execute("INSERT INTO cut VALUES (4), (14)")
    assert_equal(db, "of_cut", "of_cut_ids")


@pytest.mark.skipif(not os.environ.get("PG_TRICKLE_LONG_TESTS"), reason="restarts the applier: PG_TRICKLE_LONG_TESTS")
@pytest.mark.parametrize("part", ["applier", "cdc"])
def test_ddl_and_rows_while_a_program_is_down(db: Connection, stack: Stack, part: str) -> None:
    """A view is replaced, a column rewritten, another one renamed, with rows around them: equal or marked then."""
    db.execute("DROP TABLE IF EXISTS unwatched, shaded CASCADE; DROP TYPE IF EXISTS shade")
    db.execute("CREATE TYPE shade AS ENUM ('dark', 'light'); CREATE TABLE shaded (id int PRIMARY KEY, s shade)")
    db.execute("CREATE TABLE unwatched (id int PRIMARY KEY, v int, w int)")
    db.execute(
        "INSERT INTO unwatched SELECT i, i, i FROM generate_series(1, 9) i; INSERT INTO shaded VALUES (1, 'dark')"
    )
    db.execute("CREATE VIEW in_sight AS SELECT id, w FROM unwatched WHERE w > 3")
    create(db, "by_view", "SELECT id, w FROM in_sight")
    create(db, "by_sum", "SELECT sum(v) AS s FROM unwatched")
    create(db, "by_name", "SELECT id, w FROM unwatched")
    create(db, "by_shade", "SELECT id, s FROM shaded")
    assert_equal(db, "by_view", "by_sum", "by_name", "by_shade")
    stack.kill(part)
    try:
        db.execute("INSERT INTO unwatched VALUES (10, 10, 10)")
        db.execute("CREATE OR REPLACE VIEW in_sight AS SELECT id, w FROM unwatched WHERE w > 5")
        db.execute("UPDATE unwatched SET v = v + 1, w = w + 1 WHERE id < 4")
        db.execute("ALTER TABLE unwatched ALTER COLUMN v TYPE int USING v + 100")
        db.execute("ALTER TABLE unwatched RENAME COLUMN w TO z; DELETE FROM unwatched WHERE id = 1")
        db.execute("ALTER TYPE shade RENAME VALUE 'dark' TO 'black'; INSERT INTO shaded VALUES (2, 'black')")
    finally:
        stack.restart(part)
    assert_suspended(db, "by_view", "view public.in_sight was replaced")
    assert_suspended(db, "by_sum", "v of public.unwatched was rewritten")
    db.execute("INSERT INTO unwatched VALUES (11, 11, 11)")
    assert_equal(db, "by_name", "by_shade")
    for name in ("by_view", "by_sum"):
        repair(db, name)
    assert_equal(db, "by_view", "by_sum", "by_name", "by_shade")


def test_what_is_transparent(db: Connection) -> None:
    """Constraints, indexes, statistics, comments, grants, VACUUM FULL, CLUSTER and TRUNCATE: no pause, no new copy."""
    db.execute(
        "CREATE TABLE tended (id int PRIMARY KEY, v int); INSERT INTO tended SELECT i, i FROM generate_series(1, 9) i"
    )
    create(db, "of_tended", "SELECT id, v FROM tended WHERE v IS NOT NULL")
    assert_equal(db, "of_tended")
    for statement in (
        "CREATE INDEX ON tended (v)",
        "ALTER TABLE tended ADD CHECK (v > 0)",
        "ALTER TABLE tended ADD COLUMN w int DEFAULT 3",
        "ALTER TABLE tended ADD COLUMN r double precision DEFAULT random()",
        "COMMENT ON TABLE tended IS 'tended'",
        "GRANT SELECT ON tended TO PUBLIC",
        "ALTER TABLE tended SET (fillfactor = 70)",
        "VACUUM FULL tended",
        "CLUSTER tended USING tended_pkey",
        "ANALYZE tended",
        "DELETE FROM tended WHERE id = 1",
        "TRUNCATE tended",
        "INSERT INTO tended VALUES (5, 5)",
    ):
        db.execute(statement.encode())
        assert_equal(db, "of_tended")
    copies = db.execute(
        "SELECT count(*) FROM pgtrickle.pgt_recaptures WHERE source_relid = 'tended'::regclass"
    ).fetchone()
    assert copies == (0,) and history(db, "of_tended") == []


def test_not_null_that_is_not_validated(db: Connection) -> None:
    """Since PostgreSQL 18 old rows need not meet a NOT NULL constraint that is NOT VALID."""
    if db.info.server_version < 180_000:
        pytest.skip("NOT VALID not-null constraints came with version 18")
    db.execute("CREATE TABLE outer_rows (id int PRIMARY KEY); INSERT INTO outer_rows VALUES (1), (2)")
    db.execute("CREATE TABLE inner_rows (id int PRIMARY KEY, v int); INSERT INTO inner_rows VALUES (1, 1), (2, NULL)")
    db.execute("ALTER TABLE inner_rows ADD CONSTRAINT nn NOT NULL v NOT VALID")
    create(db, "left_out", "SELECT id FROM outer_rows WHERE id NOT IN (SELECT v FROM inner_rows)")
    assert_equal(db, "left_out")
    db.execute("DELETE FROM inner_rows WHERE id = 2; ALTER TABLE inner_rows VALIDATE CONSTRAINT nn")
    assert_equal(db, "left_out")
    db.execute("ALTER TABLE inner_rows ALTER COLUMN v DROP NOT NULL; INSERT INTO inner_rows VALUES (3, NULL)")
    assert_equal(db, "left_out")


def test_types_and_collations(db: Connection) -> None:
    db.execute('CREATE TABLE typed (id int PRIMARY KEY, v int, c text COLLATE "C", n varchar(5))')
    db.execute("INSERT INTO typed VALUES (1, 1, 'a', 'a'), (2, 2, 'B', 'b')")
    create(db, "least", "SELECT min(c) AS c FROM typed")
    create(db, "counted", "SELECT count(*) AS n FROM typed WHERE n <> 'x'")
    assert_equal(db, "least", "counted")
    db.execute("ALTER TABLE typed ALTER COLUMN n TYPE varchar(10)")
    db.execute("INSERT INTO typed VALUES (3, 3, 'c', 'longer')")
    assert_equal(db, "counted", "least")
    db.execute('ALTER TABLE typed ALTER COLUMN c TYPE text COLLATE "default"')
    db.execute("INSERT INTO typed VALUES (4, 4, 'A', 'd')")
    assert_equal_or_suspended(db, "least")
    assert_equal(db, "counted")


WIDENED = {
    "by_v": "SELECT id FROM widened WHERE v < 3",
    "by_join": "SELECT a.id, b.id AS other FROM widened a JOIN widened b ON a.v = b.id",
    "by_sum": "SELECT sum(s) AS s FROM widened",
    "by_text": "SELECT count(*) AS n FROM widened WHERE c <> 'x'",
    "by_varchar": "SELECT id FROM widened WHERE c2 LIKE 'a%'",
    "by_numeric": "SELECT id FROM widened WHERE n > 1",
}
WIDER = {"v": "bigint", "s": "int", "c": "varchar(10)", "c2": "text", "n": "numeric(12, 2)"}


def test_types_that_become_wider(db: Connection) -> None:
    """Where the result columns stay it is followed. The table is copied again: the rows are those of the new type."""
    db.execute(
        "CREATE TABLE widened (id int PRIMARY KEY, v int, s smallint, c varchar(5), c2 varchar(5), n numeric(10, 2))"
    )
    db.execute("INSERT INTO widened SELECT i, i, i, 'a', 'ab', i FROM generate_series(1, 4) i")
    for name, query in WIDENED.items():
        create(db, name, query)
    evolving = "SELECT max(id) AS n FROM widened WHERE v > 0"
    db.execute("SELECT pgtrickle.create_stream_table('by_v_too', %s, auto_evolve => true)", (evolving,))
    create(db, "returns_v", "SELECT id, v FROM widened")
    create(db, "of_ids", "SELECT count(id) AS n FROM widened")
    names = (*WIDENED, "by_v_too", "of_ids")
    assert_equal(db, *names, "returns_v")
    for column, kind in WIDER.items():
        db.execute(f"ALTER TABLE widened ALTER COLUMN {column} TYPE {kind}".encode())
    assert_equal(db, *names)
    assert all(any("has another type" in seen for seen in history(db, name)) for name in WIDENED), names
    assert_suspended(db, "returns_v", "no longer returns the columns")
    db.execute("INSERT INTO widened VALUES (5, 5000000000, 40000, 'longer', 'abcdefgh', 1234567890.25)")
    assert_equal(db, *names)
    db.execute("UPDATE widened SET v = 1, c = 'x', n = 0 WHERE id = 4; DELETE FROM widened WHERE id = 2")
    assert_equal(db, *names)


def test_values_that_change_with_their_type(db: Connection) -> None:
    """A wider type with USING: rows are never those of before. What is no widening is suspended."""
    db.execute("CREATE TABLE recast (id int PRIMARY KEY, c varchar(5), d varchar(9), v int)")
    db.execute("INSERT INTO recast VALUES (1, 'a', 'a', 1), (2, 'b', 'b', 2)")
    create(db, "of_c", "SELECT id FROM recast WHERE c = 'a'")
    create(db, "of_d", "SELECT id FROM recast WHERE d = 'a'")
    create(db, "of_recast_v", "SELECT id FROM recast WHERE v = 1")
    assert_equal(db, "of_c", "of_d", "of_recast_v")
    db.execute("ALTER TABLE recast ALTER COLUMN c TYPE varchar(8) USING CASE c WHEN 'a' THEN 'b' ELSE 'a' END")
    db.execute("ALTER TABLE recast ALTER COLUMN d TYPE varchar(3) USING upper(d)")
    db.execute("ALTER TABLE recast ALTER COLUMN v TYPE bigint USING 3 - v")
    assert_equal(db, "of_c", "of_recast_v")
    assert db.execute("TABLE of_c").fetchall() == db.execute("TABLE of_recast_v").fetchall() == [(2,)]
    assert_suspended(db, "of_d", "d of public.recast has another type")
    # A new reader sees the new values, without a row written since.
    create(db, "of_d_too", "SELECT id FROM recast WHERE d = 'A'")
    assert_equal(db, "of_d_too")
    repair(db, "of_d")
    assert_equal(db, "of_d")


def assert_equal_or_suspended(db: Connection, name: str) -> None:
    try:
        assert_equal(db, name)
    except errors.ObjectNotInPrerequisiteState as error:
        assert "collation" in str(error)


def test_a_dropped_table_and_row_security(db: Connection) -> None:
    db.execute("CREATE TABLE leaves_us (id int PRIMARY KEY); INSERT INTO leaves_us VALUES (1)")
    db.execute("CREATE TABLE secret (id int PRIMARY KEY); INSERT INTO secret VALUES (1)")
    create(db, "of_leaving", "SELECT id FROM leaves_us")
    create(db, "of_secret", "SELECT id FROM secret")
    create(db, "of_both_sources", "SELECT id FROM leaves_us UNION ALL SELECT id FROM secret")
    assert_equal(db, "of_leaving", "of_secret", "of_both_sources")
    db.execute("ALTER TABLE secret ENABLE ROW LEVEL SECURITY")
    assert_suspended(db, "of_secret", "row-level security")
    assert_equal(db, "of_leaving")
    db.execute("LISTEN pg_trickle_alert")
    db.execute("DROP TABLE leaves_us")
    assert_suspended(db, "of_leaving", "leaves_us was dropped")
    assert "alter_stream_table" in next_alert(db, "auto_suspended", "leaves_us was dropped", timeout_s=10)["hint"]
    health = db.execute("SELECT detail FROM pgtrickle.health_check() WHERE check_name = 'error_tables'").fetchone()
    assert health is not None and "leaves_us was dropped" in str(health[0])


def test_a_stream_table_over_another_one(db: Connection) -> None:
    db.execute("CREATE TABLE ground (id int PRIMARY KEY, v int); INSERT INTO ground VALUES (1, 1)")
    create(db, "first_floor", "SELECT id, v FROM ground")
    create(db, "second_floor", "SELECT sum(v) AS s FROM first_floor")
    assert_equal(db, "first_floor", "second_floor")
    db.execute("ALTER TABLE ground RENAME v TO w; INSERT INTO ground VALUES (2, 2)")
    assert_equal(db, "first_floor", "second_floor")
    db.execute("ALTER TABLE ground ALTER COLUMN w TYPE int USING w * 10")
    assert_suspended(db, "first_floor", "was rewritten")
    assert_suspended(db, "second_floor", "was rewritten")
