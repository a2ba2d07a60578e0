"""Schedules as users write them: a due stream table advances, others keep their frontier, wait_for makes one due."""

from __future__ import annotations

import time

import psycopg
import pytest
from psycopg import errors

from applier.refresh.check import check_stream_table
from shared_schema.table_schema import TableId
from tests import oracle

Connection = psycopg.Connection[tuple[object, ...]]


def create(db: Connection, name: str, query: str, schedule: str = "1s", **options: object) -> None:
    named = "".join(f", {option} => %s" for option in options)
    db.execute(
        f"SELECT pgtrickle.create_stream_table(%s, %s, %s{named})".encode(), (name, query, schedule, *options.values())
    )


def assert_equal(db: Connection, *names: str) -> None:
    for name in names:
        checked = check_stream_table(db, TableId("public", name))
        assert checked.equal, checked


def value(db: Connection, query: str, *arguments: object) -> object:
    row = db.execute(query.encode(), arguments).fetchone()
    return row[0] if row else None


def wait(db: Connection, *names: str) -> None:
    for name in names:
        db.execute("SELECT pgtrickle.wait_for(%s)", (name,))


def frontier(db: Connection, name: str) -> object:
    return value(db, "SELECT frontier FROM pgtrickle.pg_stat_stream_tables WHERE pgt_name = %s", name)


def test_a_table_that_is_not_due_keeps_its_frontier_until_a_session_waits(db: Connection) -> None:
    db.execute(
        "CREATE TABLE readings (id int PRIMARY KEY, v int);"
        " INSERT INTO readings SELECT i, i FROM generate_series(1, 50) i"
    )
    create(db, "always", "SELECT id, v FROM readings WHERE v > 5", "continuous")
    create(db, "rarely", "SELECT v % 7 AS rest, count(*) AS n FROM readings GROUP BY v % 7", "1d")
    create(db, "new_years_eve", "SELECT count(*) AS n FROM readings", "59 23 31 12 *")
    create(db, "soon", "SELECT sum(v) AS total FROM readings", "2s")
    # It is refreshed as rarely as its only reader.
    create(db, "shared", "SELECT id, v FROM readings WHERE id > 3", "calculated")
    create(db, "reader", "SELECT max(v) AS top FROM shared", "1d")
    names = ["always", "rarely", "new_years_eve", "soon", "shared", "reader"]
    wait(db, *names)
    resting = ["rarely", "new_years_eve", "shared", "reader"]
    before = {name: (frontier(db, name), oracle.in_postgres(db, name)) for name in resting}
    for i in range(3):
        db.execute("UPDATE readings SET v = v + 100 WHERE id %% 3 = %s", (i,))
        assert_equal(db, "always")
    oracle.eventually(lambda: oracle.assert_same(oracle.query_result(db, "soon"), oracle.in_postgres(db, "soon"), "2s"))
    assert {name: (frontier(db, name), oracle.in_postgres(db, name)) for name in resting} == before
    due = value(
        db,
        "SELECT array_agg(to_char(r.next_refresh_at AT TIME ZONE 'UTC', 'MM-DD HH24:MI') ORDER BY s.pgt_name)"
        " FROM pgtrickle.pgt_runtime r JOIN pgtrickle.pgt_stream_tables s USING (pgt_id)"
        " WHERE s.pgt_name = ANY (%s)",
        ["new_years_eve", "rarely"],
    )
    assert isinstance(due, list) and due[0] == "12-31 23:59" and due[1].endswith("00:00")
    # Traces reach back to the slowest stream table: its long LSN range is computed incrementally, not in full.
    assert_equal(db, *resting)
    actions = db.execute(
        "SELECT DISTINCT h.action, h.initiated_by FROM pgtrickle.pgt_refresh_history h"
        " JOIN pgtrickle.pgt_stream_tables s USING (pgt_id)"
        " WHERE s.pgt_name = ANY (%s) AND h.refresh_reason <> 'INITIAL'",
        (resting,),
    ).fetchall()
    assert actions == [("DIFFERENTIAL", "MANUAL")]
    # A reader that is always due makes its sources always due.
    create(db, "hasty", "SELECT min(v) AS least FROM shared", "continuous")
    wait(db, "hasty")
    db.execute("UPDATE readings SET v = v + 1")
    oracle.eventually(
        lambda: oracle.assert_same(oracle.query_result(db, "shared"), oracle.in_postgres(db, "shared"), "calculated")
    )


def test_a_schedule_that_names_no_moment_is_refused(db: Connection) -> None:
    db.execute("CREATE TABLE moments (id int PRIMARY KEY)")
    with pytest.raises(errors.InvalidParameterValue, match="'every day'"):
        create(db, "unclear", "TABLE moments", "every day")
    create(db, "impossible", "TABLE moments", "0 0 31 2 *")
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match="0 0 31 2"):
        wait(db, "impossible")
    db.execute("SELECT pgtrickle.alter_stream_table('impossible', schedule => '@hourly')")
    db.execute("SELECT pgtrickle.resume_stream_table('impossible')")
    assert_equal(db, "impossible")


def test_a_paused_one_comes_back_while_the_others_stay_fresh(db: Connection) -> None:
    db.execute("CREATE TABLE events (id int PRIMARY KEY, kind int)")
    create(db, "kinds", "SELECT kind, count(*) AS n FROM events GROUP BY kind")
    create(db, "listed_events", "SELECT id, kind FROM events")
    wait(db, "kinds", "listed_events")
    db.execute("SELECT pgtrickle.pause_stream_table('kinds')")
    for i in range(5):
        db.execute(
            "INSERT INTO events SELECT i, i %% 5 FROM generate_series(%s::int, %s::int) i", (i * 20, i * 20 + 19)
        )
        wait(db, "listed_events")
    db.execute("DELETE FROM events WHERE kind = 2")
    assert_equal(db, "listed_events")
    assert value(db, "SELECT count(*) FROM kinds") == 0
    db.execute("SELECT pgtrickle.resume_stream_table('kinds')")
    assert_equal(db, "kinds")


def test_a_failure_that_passes_is_tried_again_then_given_up(db: Connection) -> None:
    db.execute("CREATE TABLE shares (id int PRIMARY KEY, whole int)")
    create(db, "parts", "SELECT id, 100 / whole AS part FROM shares")
    wait(db, "parts")
    db.execute("INSERT INTO shares VALUES (1, 0)")

    def failed() -> None:
        assert value(db, "SELECT count(*) FROM pgtrickle.get_refresh_history('parts') WHERE status = 'FAILED'")

    oracle.eventually(failed)
    db.execute("UPDATE shares SET whole = 5")
    assert_equal(db, "parts")
    assert value(db, "SELECT status FROM pgtrickle.pg_stat_stream_tables WHERE pgt_name = 'parts'") == "ACTIVE"
    db.execute("UPDATE shares SET whole = 0")
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match="fails on the data"):
        wait(db, "parts")
    db.execute("UPDATE shares SET whole = 4; SELECT pgtrickle.resume_stream_table('parts')")
    assert_equal(db, "parts")


def test_drained_is_everything_up_to_the_call_and_then_nothing(db: Connection) -> None:
    db.execute("CREATE TABLE last_words (id int PRIMARY KEY)")
    create(db, "heard", "TABLE last_words", "1d")
    wait(db, "heard")
    db.execute("INSERT INTO last_words VALUES (1)")
    try:
        assert value(db, "SELECT pgtrickle.drain(60)") is True
        assert value(db, "SELECT pgtrickle.is_drained()") is True
        oracle.assert_same(oracle.query_result(db, "heard"), oracle.in_postgres(db, "heard"), "drained")
        db.execute("INSERT INTO last_words VALUES (2)")
        with pytest.raises(errors.QueryCanceled):
            db.execute("SELECT pgtrickle.wait_for('heard', timeout => '1500 ms')")
        # Again, without a refresh in between.
        assert value(db, "SELECT pgtrickle.drain(60)") is True
        oracle.assert_same(oracle.query_result(db, "heard"), oracle.in_postgres(db, "heard"), "drained again")
    finally:
        db.execute("SELECT pgtrickle.resume_after_drain()")
    assert_equal(db, "heard")
    deadline = time.monotonic() + 10
    while value(db, "SELECT pgtrickle.is_drained()"):
        assert time.monotonic() < deadline
        time.sleep(0.1)
