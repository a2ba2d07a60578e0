"""A stream table whose rows are in doubt is repaired in place: in PostgreSQL, in Delta and on its topic."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest
from psycopg import errors

from applier.refresh.check import check_stream_table
from deploy.local.stack import Stack
from shared_schema.table_schema import TableId
from tests import oracle

Connection = psycopg.Connection[tuple[object, ...]]


def one(db: Connection, query: str, *arguments: object) -> object:
    row = db.execute(query.encode(), arguments or None).fetchone()
    return row[0] if row else None


def create(db: Connection, name: str, query: str, mode: str = "AUTO") -> None:
    db.execute("SELECT pgtrickle.create_stream_table(%s, %s, refresh_mode => %s)", (name, query, mode))


def assert_equal(db: Connection, *names: str) -> None:
    for name in names:
        db.execute("SELECT pgtrickle.wait_for(%s)", (name,))
        checked = check_stream_table(db, TableId("public", name))
        assert checked.equal, checked


def assert_suspended(db: Connection, name: str, because: str) -> None:
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match=because):
        db.execute("SELECT pgtrickle.wait_for(%s)", (name,))


def topic_of(stack: Stack, name: str) -> oracle.TopicReplay:
    topic, schemas = f"trickle_out.public.{name}", "trickle_out.schemas"
    return oracle.TopicReplay(stack.addresses.kafka_bootstrap, topic, schemas)


def assert_everywhere(db: Connection, stack: Stack, *names: str) -> None:
    """Check that the rows in PostgreSQL, in Delta and on the topic are those of the query."""
    assert_equal(db, *names)
    for name in names:
        expected = oracle.query_result(db, name)
        replay = topic_of(stack, name)
        oracle.eventually(lambda r=replay, e=expected: oracle.assert_same(e, r.catch_up(), "topic"))  # type: ignore[misc]
        oracle.eventually(
            lambda n=name, e=expected: oracle.assert_same(  # type: ignore[misc]
                e, oracle.in_delta(stack.addresses.delta_root, n), "Delta"
            )
        )


def history(db: Connection, name: str, reason: str) -> list[tuple[object, ...]]:
    return db.execute(
        "SELECT action, refresh_reason_detail, initiated_by FROM pgtrickle.get_refresh_history(%s)"
        " WHERE refresh_reason = %s",
        (name, reason),
    ).fetchall()


def test_rows_that_others_wrote_are_put_right(db: Connection, stack: Stack) -> None:
    """Somebody deleted, changed and added rows of a stream table: it stays, with its rights, views and readers."""
    db.execute(
        "CREATE TABLE bills (id int PRIMARY KEY, v int); INSERT INTO bills SELECT i, i FROM generate_series(1, 9) i"
    )
    create(db, "kept_bills", "SELECT id, v FROM bills")
    create(db, "bag_of_bills", "SELECT v % 3 AS r FROM bills")
    create(db, "sum_of_bills", "SELECT sum(v) AS s FROM kept_bills")
    assert_equal(db, "kept_bills", "bag_of_bills", "sum_of_bills")
    db.execute("GRANT SELECT ON kept_bills TO PUBLIC; CREATE VIEW shown_bills AS SELECT v FROM kept_bills")
    relid = one(db, "SELECT 'kept_bills'::regclass::oid")
    db.execute("SELECT pgtrickle.allow_direct_dml('kept_bills'), pgtrickle.allow_direct_dml('bag_of_bills')")
    db.execute("DELETE FROM kept_bills WHERE id < 3; UPDATE kept_bills SET v = 100 WHERE id = 5")
    db.execute("INSERT INTO kept_bills VALUES (77, 7); INSERT INTO bag_of_bills VALUES (0), (8)")
    db.execute("SELECT pgtrickle.allow_direct_dml('kept_bills', false)")
    db.execute("UPDATE bills SET v = 50 WHERE id = 2")
    assert_suspended(db, "kept_bills", "did not hold")

    said = db.execute("SELECT pgtrickle.reinitialize_stream_table('kept_bills', cascade => true)").fetchall()
    assert len(said) == 2 and "public.sum_of_bills" in str(said[1]), said
    db.execute("SELECT pgtrickle.reinitialize_stream_table('bag_of_bills')")
    assert_everywhere(db, stack, "kept_bills", "bag_of_bills")
    assert one(db, "SELECT 'kept_bills'::regclass::oid") == relid
    assert one(db, "SELECT has_table_privilege('public', 'kept_bills', 'SELECT')") is True
    assert one(db, "SELECT count(*) FROM shown_bills") == 9
    db.execute("DROP VIEW shown_bills")
    assert [(action, by) for action, _, by in history(db, "kept_bills", "REINITIALIZE")] == [("FULL", "MANUAL")]
    db.execute("DELETE FROM bills WHERE id = 1; INSERT INTO bills VALUES (10, 10)")
    assert_everywhere(db, stack, "kept_bills")
    assert_equal(db, "bag_of_bills", "sum_of_bills")


def test_a_request_of_the_catalog_computes_the_whole_with_its_reason(db: Connection, stack: Stack) -> None:
    """A view below was replaced: the stream table and its readers get the exact difference, and say why."""
    db.execute(
        "CREATE TABLE goods (id int PRIMARY KEY, kind text); INSERT INTO goods VALUES (1, 'a'), (2, 'b'), (3, 'c')"
    )
    db.execute("CREATE VIEW some_goods AS SELECT id, kind FROM goods WHERE kind <> 'b'")
    create(db, "viewed", "SELECT id, kind FROM some_goods")
    create(db, "viewed_kinds", "SELECT kind, count(*) AS n FROM viewed GROUP BY kind")
    assert_equal(db, "viewed", "viewed_kinds")
    replay = topic_of(stack, "viewed")
    oracle.eventually(lambda: oracle.assert_same(oracle.query_result(db, "viewed"), replay.catch_up(), "topic"))
    before = len(replay.stamps)
    with db.transaction():
        db.execute("CREATE OR REPLACE VIEW some_goods AS SELECT id, kind FROM goods WHERE kind <> 'c'")
        db.execute(
            "SELECT pgtrickle._request_reinitialize(pgt_id, 'AUTO_SCHEMA_EVOLUTION', 'view some_goods was replaced')"
            " FROM pgtrickle.pgt_stream_tables WHERE pgt_name = 'viewed'"
        )
    assert_everywhere(db, stack, "viewed_kinds")
    assert_equal(db, "viewed")
    seen = history(db, "viewed", "AUTO_SCHEMA_EVOLUTION")
    assert seen == [("FULL", "view some_goods was replaced", "SCHEDULER")]
    assert "viewed" in str(history(db, "viewed_kinds", "AUTO_SCHEMA_EVOLUTION"))
    oracle.eventually(lambda: oracle.assert_same(oracle.query_result(db, "viewed"), replay.catch_up(), "topic"))
    # One row came and one went: nothing else was sent.
    assert len(replay.stamps) - before == 2
    # A request that changes nothing is recorded too.
    db.execute(
        "SELECT pgtrickle._request_reinitialize(pgt_id, 'AUTO_SCHEMA_EVOLUTION', 'once more')"
        " FROM pgtrickle.pgt_stream_tables WHERE pgt_name = 'viewed_kinds'"
    )
    assert_equal(db, "viewed_kinds")
    assert history(db, "viewed_kinds", "AUTO_SCHEMA_EVOLUTION")[0][1] == "once more"


def test_a_suspended_stream_table_is_repaired(db: Connection, stack: Stack) -> None:
    """Its source was dropped and created again, or a function was replaced: no drop, no second table."""
    db.execute("CREATE TABLE renewed (id int PRIMARY KEY, v int); INSERT INTO renewed VALUES (1, 1), (2, 2)")
    body = "CREATE OR REPLACE FUNCTION raised(v int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT $1 * {}'"
    db.execute(body.format(2).encode())
    create(db, "of_renewed", "SELECT id, v FROM renewed")
    create(db, "of_raised", "SELECT id, raised(v) AS w FROM renewed", "DIFFERENTIAL")
    create(db, "read_renewed", "SELECT count(*) AS n FROM of_renewed")
    assert_equal(db, "of_renewed", "of_raised", "read_renewed")
    relid = one(db, "SELECT 'of_renewed'::regclass::oid")
    db.execute("DROP TABLE renewed; CREATE TABLE renewed (id int PRIMARY KEY, v int)")
    db.execute(body.format(3).encode())
    db.execute("INSERT INTO renewed VALUES (2, 2), (5, 5)")
    for name in ("of_renewed", "of_raised", "read_renewed"):
        assert_suspended(db, name, "is suspended")
        db.execute("SELECT pgtrickle.reinitialize_stream_table(%s)", (name,))
    assert_equal(db, "of_renewed", "of_raised", "read_renewed")
    assert sorted(oracle.in_postgres(db, "of_raised")) == [(2, 6), (5, 15)]
    assert one(db, "SELECT 'of_renewed'::regclass::oid") == relid
    db.execute("UPDATE renewed SET v = v + 1")
    assert_everywhere(db, stack, "of_renewed", "of_raised", "read_renewed")


def diagnosis(db: Connection, name: str) -> tuple[object, ...]:
    found = db.execute(
        "SELECT error_class, still_there, remediation FROM pgtrickle.diagnose_errors(%s)", (name,)
    ).fetchall()
    assert found, f"nothing is wrong with {name}"
    return found[0]


def test_errors_are_diagnosed_and_resume_waits_for_the_cause(db: Connection, stack: Stack) -> None:
    """The call says whether the cause is still there; while it is, resume is refused with that reason."""
    db.execute("CREATE TABLE judged (id int PRIMARY KEY, v int); INSERT INTO judged VALUES (1, 1)")
    create(db, "divided_by_v", "SELECT id, 10 / v AS q FROM judged")
    create(db, "unread", "SELECT id FROM judged")
    assert_equal(db, "divided_by_v", "unread")
    assert db.execute("SELECT * FROM pgtrickle.diagnose_errors('divided_by_v')").fetchall() == []
    db.execute("INSERT INTO judged VALUES (2, 0)")
    db.execute("ALTER TABLE judged ENABLE ROW LEVEL SECURITY")
    assert_suspended(db, "unread", "row-level security")
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match=r"cannot be resumed: .* row-level security"):
        db.execute("SELECT pgtrickle.resume_stream_table('unread')")
    assert diagnosis(db, "unread")[1] is True
    db.execute("ALTER TABLE judged DISABLE ROW LEVEL SECURITY")
    error_class, still_there, remediation = diagnosis(db, "unread")
    assert still_there is False, (error_class, remediation)
    db.execute("SELECT pgtrickle.resume_stream_table('unread')")
    assert_equal(db, "unread")

    db.execute("SELECT pgtrickle.resume_stream_table('divided_by_v')")
    assert_suspended(db, "divided_by_v", "divi")
    assert diagnosis(db, "divided_by_v")[:2] == ("CalculationError", True)
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match="still fails on the rows"):
        db.execute("SELECT pgtrickle.resume_stream_table('divided_by_v')")
    db.execute("DELETE FROM judged WHERE v = 0")
    assert "resume_stream_table('public.divided_by_v')" in str(diagnosis(db, "divided_by_v")[2])
    db.execute("SELECT pgtrickle.resume_stream_table('divided_by_v')")
    assert_everywhere(db, stack, "divided_by_v")
    assert_equal(db, "unread")


@pytest.mark.timeout(900)
def test_a_lost_slot_and_a_dropped_publication_are_repaired_by_one_command(db: Connection, stack: Stack) -> None:
    """The command says what it will copy; then the stream tables repair themselves, by the exact difference."""
    db.execute(
        "CREATE TABLE posted (id int PRIMARY KEY, v int); INSERT INTO posted SELECT i, i FROM generate_series(1, 20) i"
    )
    create(db, "postings", "SELECT id, v FROM posted")
    create(db, "posting_sum", "SELECT count(*) AS n, sum(v) AS s FROM postings")
    assert_equal(db, "postings", "posting_sum")
    replay = topic_of(stack, "postings")
    oracle.eventually(lambda: oracle.assert_same(oracle.query_result(db, "postings"), replay.catch_up(), "topic"))
    before, relid = len(replay.stamps), one(db, "SELECT 'postings'::regclass::oid")

    stack.stop("cdc")
    oracle.eventually(lambda: _slot_is_free(db))
    db.execute("SET ROLE postgres; SELECT pg_drop_replication_slot('pg_trickle'); SET ROLE trickle_owner")
    db.execute("DROP PUBLICATION pg_trickle")
    db.execute(
        "DELETE FROM posted WHERE id = 1; UPDATE posted SET v = 99 WHERE id = 2; INSERT INTO posted VALUES (50, 50)"
    )
    stack.binaries["cdc"].run_once("resync", "--yes")
    said = Path(stack.addresses.cdc_log).read_text()
    assert "public.posted is published again" in said and "does not exist any more" in said
    # The consumer's role may not publish tables; it may call the one function that does.
    assert "note_resync" not in said
    stack.restart("cdc")
    assert_everywhere(db, stack, "posting_sum")
    assert_equal(db, "postings")
    assert one(db, "SELECT 'postings'::regclass::oid") == relid
    oracle.eventually(lambda: oracle.assert_same(oracle.query_result(db, "postings"), replay.catch_up(), "topic"))
    # One row went, one came, one changed.
    assert len(replay.stamps) - before == 4
    assert len(history(db, "postings", "REINITIALIZE")) == 1


def _slot_is_free(db: Connection) -> None:
    assert one(db, "SELECT active FROM pg_replication_slots WHERE slot_name = 'pg_trickle'") is False


def columns_of(db: Connection, name: str) -> object:
    return one(
        db,
        "SELECT string_agg(attname, ' ' ORDER BY attnum) FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0"
        " AND NOT attisdropped",
        name,
    )


def evolved(db: Connection, name: str, columns: str) -> None:
    db.execute("SELECT pgtrickle.wait_for(%s)", (name,))
    assert columns_of(db, name) == columns


def test_added_columns_reach_a_query_written_with_a_star(db: Connection, stack: Stack) -> None:
    """With auto_evolve the columns come last, in place; without it a stream table goes on with its columns."""
    db.execute("CREATE TABLE heads (id int PRIMARY KEY, v int); CREATE TABLE tails (tid int PRIMARY KEY, t text)")
    db.execute("INSERT INTO heads VALUES (1, 1), (2, 2), (3, 3); INSERT INTO tails VALUES (1, 'a'), (2, 'b')")
    db.execute("SELECT pgtrickle.create_stream_table('grows_with_heads', 'SELECT * FROM heads', auto_evolve => true)")
    joined = "SELECT * FROM heads JOIN tails ON tid = id"
    db.execute("SELECT pgtrickle.create_stream_table('grows_too', %s, auto_evolve => true)", (joined,))
    db.execute(
        "SELECT pgtrickle.create_stream_table('reads_grown', 'SELECT * FROM grows_with_heads', auto_evolve => true)"
    )
    create(db, "stays", "SELECT * FROM heads")
    assert_equal(db, "grows_with_heads", "grows_too", "reads_grown", "stays")
    db.execute("GRANT SELECT ON grows_with_heads TO PUBLIC; CREATE VIEW shown_grown AS SELECT id FROM grows_with_heads")
    relid, replay = one(db, "SELECT 'grows_with_heads'::regclass::oid"), topic_of(stack, "grows_with_heads")
    oracle.eventually(
        lambda: oracle.assert_same(oracle.query_result(db, "grows_with_heads"), replay.catch_up(), "topic")
    )

    db.execute("ALTER TABLE heads ADD COLUMN w text DEFAULT 'x', ADD COLUMN n numeric(6, 2)")
    db.execute("INSERT INTO heads VALUES (4, 4, 'y', 4.5)")
    oracle.eventually(lambda: evolved(db, "grows_with_heads", "id v w n"))
    oracle.eventually(lambda: evolved(db, "grows_too", "id v tid t w n"))
    oracle.eventually(lambda: evolved(db, "reads_grown", "id v w n"))
    db.execute("UPDATE heads SET n = id, v = v + 10 WHERE id < 3; DELETE FROM heads WHERE id = 3")
    assert_everywhere(db, stack, "grows_too")
    assert_equal(db, "grows_with_heads", "reads_grown")
    oracle.eventually(
        lambda: oracle.assert_same(oracle.query_result(db, "grows_with_heads"), replay.catch_up(), "topic")
    )
    assert replay.columns == ["id", "v", "w", "n"]
    assert columns_of(db, "stays") == "id v"
    assert_equal(db, "stays")
    assert one(db, "SELECT 'grows_with_heads'::regclass::oid") == relid
    assert one(db, "SELECT has_table_privilege('public', 'grows_with_heads', 'SELECT')") is True
    assert one(db, "SELECT count(*) FROM shown_grown") == 3
    ((action, seen, by),) = history(db, "grows_with_heads", "AUTO_SCHEMA_EVOLUTION")
    assert (action, by) == ("FULL", "SCHEDULER") and "added column w text" in str(seen)

    # What came before it was switched on; and a new query with the same columns and further ones.
    db.execute("SELECT pgtrickle.alter_stream_table('stays', auto_evolve => true)")
    oracle.eventually(lambda: evolved(db, "stays", "id v w n"))
    further = "SELECT id, v, w, n, v * 2 AS twice FROM heads"
    assert one(db, "SELECT pgtrickle.alter_stream_table('grows_with_heads', query => %s)", further) == "compatible"
    db.execute("UPDATE heads SET v = 7 WHERE id = 4")
    assert_everywhere(db, stack, "grows_with_heads")
    assert_equal(db, "stays")
    assert (
        columns_of(db, "grows_with_heads") == "id v w n twice"
        and one(db, "SELECT 'grows_with_heads'::regclass::oid") == relid
    )
    db.execute("DROP VIEW shown_grown")
