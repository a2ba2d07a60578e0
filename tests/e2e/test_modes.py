"""Refresh modes: in every mode the result equals PostgreSQL's, and the history shows the method and the reason."""

from __future__ import annotations

import psycopg
import pytest
from psycopg import errors

from deploy.local.stack import Stack
from tests import oracle
from tests.e2e.test_schedules import assert_equal, create, value, wait
from tests.fixtures.alerts import next_alert

Connection = psycopg.Connection[tuple[object, ...]]


def executed(db: Connection, name: str) -> tuple[object, ...]:
    """Return the method of the newest refresh and its reason."""
    row = db.execute("SELECT action, refresh_reason FROM pgtrickle.get_refresh_history(%s, 1)", (name,)).fetchone()
    return row or ()


def assert_everywhere(db: Connection, stack: Stack, name: str) -> None:
    """Compare with the query in PostgreSQL at one LSN, then in Delta and in the topic."""
    assert_equal(db, name)
    expected = oracle.query_result(db, name)
    replay = oracle.TopicReplay(stack.addresses.kafka_bootstrap, f"trickle_out.public.{name}", "trickle_out.schemas")
    oracle.eventually(lambda: oracle.assert_same(expected, replay.catch_up(), "topic"))
    oracle.eventually(lambda: oracle.assert_same(expected, oracle.in_delta(stack.addresses.delta_root, name), "Delta"))


def test_full_by_spark_writes_the_difference(db: Connection, stack: Stack) -> None:
    db.execute("CREATE TABLE wares (id int PRIMARY KEY, kind int, price numeric(8,2))")
    db.execute("INSERT INTO wares SELECT i, i % 9, i / 3.0 FROM generate_series(1, 300) i")
    create(
        db, "prices", "SELECT kind, count(*) AS n, sum(price) AS total FROM wares GROUP BY kind", refresh_mode="FULL"
    )
    wait(db, "prices")
    assert executed(db, "prices") == ("FULL", "INITIAL")
    db.execute("UPDATE wares SET price = price + 1 WHERE kind = 4; DELETE FROM wares WHERE kind = 5")
    assert_everywhere(db, stack, "prices")
    line = db.execute(
        "SELECT action, refresh_reason, initiated_by, rows_in > 0, rows_inserted, rows_deleted, compute_ms > 0,"
        " write_ms > 0, from_lsn < tick_watermark_lsn, status FROM pgtrickle.get_refresh_history('prices', 1)"
    ).fetchone()
    # One group changed, one was deleted; the seven others were not affected.
    assert line is not None and line[:2] == ("FULL", "MODE") and line[3:] == (True, 1, 2, True, True, True, "COMPLETED")
    db.execute("SELECT pgtrickle.alter_stream_table('prices', refresh_mode => 'IMMEDIATE')")
    db.execute("INSERT INTO wares VALUES (1000, 1, 1)")
    assert_everywhere(db, stack, "prices")
    assert executed(db, "prices") == ("DIFFERENTIAL", "MODE")


def test_auto_chooses_by_how_much_changed(db: Connection) -> None:
    db.execute(
        "CREATE TABLE many (id int PRIMARY KEY, v int); INSERT INTO many SELECT i, 0 FROM generate_series(1, 3000) i"
    )
    create(db, "tallied", "SELECT v, count(*) AS n FROM many GROUP BY v")
    create(db, "never_full", "SELECT v, sum(id) AS s FROM many GROUP BY v", full_policy="error")
    wait(db, "tallied", "never_full")
    db.execute("UPDATE many SET v = 1 WHERE id <= 100")
    assert_equal(db, "tallied")
    assert executed(db, "tallied") == ("DIFFERENTIAL", "INCREMENTAL")
    db.execute("UPDATE many SET v = 2 WHERE id <= 2000")
    assert_equal(db, "tallied", "never_full")
    assert executed(db, "tallied") == ("FULL", "CHANGE_RATIO")
    assert executed(db, "never_full")[0] == "DIFFERENTIAL"
    detail = value(db, "SELECT refresh_reason_detail FROM pgtrickle.get_refresh_history('tallied', 1)")
    assert "auto_threshold 0.15" in str(detail)
    db.execute("SELECT pgtrickle.alter_stream_table('tallied', auto_threshold => 1)")
    db.execute("UPDATE many SET v = 3 WHERE id <= 1500")
    assert_equal(db, "tallied")
    assert executed(db, "tallied") == ("DIFFERENTIAL", "INCREMENTAL")

    def shown() -> None:
        state = db.execute(
            "SELECT effective_refresh_mode, effective_reason FROM pgtrickle.pgt_runtime r"
            " JOIN pgtrickle.pgt_stream_tables s USING (pgt_id) WHERE s.pgt_name = 'tallied'"
        ).fetchone()
        assert state == ("DIFFERENTIAL", "INCREMENTAL")

    oracle.eventually(shown)


def test_auto_foresees_that_the_changes_cost_more(db: Connection) -> None:
    """By the history a change row costs 10 ms: the running applier reads it when the first large change comes."""
    db.execute(
        "CREATE TABLE foreseen (id int PRIMARY KEY, v int);"
        "INSERT INTO foreseen SELECT i, 0 FROM generate_series(1, 3000) i"
    )
    create(db, "foretold", "SELECT v, count(*) AS n FROM foreseen GROUP BY v", auto_threshold="1")
    wait(db, "foretold")
    db.execute(
        "INSERT INTO pgtrickle.pgt_refresh_history (pgt_id, start_time, end_time, action, refresh_reason,"
        " rows_inserted, rows_deleted, tick_watermark_lsn, status, rows_in, compute_ms, write_ms)"
        " SELECT pgt_id, now(), now(), 'DIFFERENTIAL', 'INCREMENTAL', 1, 0, '0/1', 'COMPLETED',"
        " n * 300, n * 3000, 1 FROM generate_series(1, 5) n,"
        " pgtrickle.pgt_stream_tables WHERE pgt_name = 'foretold'"
    )
    db.execute("UPDATE foreseen SET v = 1 WHERE id <= 100")
    assert_equal(db, "foretold")
    assert executed(db, "foretold") == ("DIFFERENTIAL", "INCREMENTAL")
    db.execute("UPDATE foreseen SET v = 2 WHERE id <= 1000")
    assert_equal(db, "foretold")
    assert executed(db, "foretold") == ("FULL", "predicted_cost_exceeds_full")
    detail = value(db, "SELECT refresh_reason_detail FROM pgtrickle.get_refresh_history('foretold', 1)")
    assert "2000 changes: about " in str(detail) and "by 6 refreshes" in str(detail)
    misses = "SELECT value > 0 FROM pgtrickle.scheduler_diagnostics() WHERE counter = 'cost_cache_misses'"
    oracle.eventually(lambda: _is_true(value(db, misses)))


def _is_true(found: object) -> None:
    assert found is True


REFUSED = "SELECT id, v, row_number() OVER (ORDER BY v % 3) > 0 AS numbered, xmin IS NOT NULL AS stored FROM odd"


def test_a_query_that_cannot_be_maintained_is_run_by_postgres(db: Connection, stack: Stack) -> None:
    db.execute("CREATE TABLE odd (id int PRIMARY KEY, v int, j json, c char(5), f float4, at timestamptz, b bytea)")
    db.execute(
        "INSERT INTO odd SELECT i, i, '{\"a\": 1}', 'x', i / 7.0, '2024-02-29 12:00+02', '\\x00ff'"
        " FROM generate_series(1, 40) i"
    )
    # DIFFERENTIAL requires incremental maintenance; AUTO accepts any method, except with full_policy 'error'.
    create(db, "strict", REFUSED, refresh_mode="DIFFERENTIAL")
    create(db, "forbidden", REFUSED, full_policy="error")
    create(db, "taken", REFUSED)
    create(db, "typed", "SELECT id, j, c, f, at, b, (v / 3.0)::numeric(9,4) AS q, xmin IS NULL AS n FROM odd")
    for name in ("strict", "forbidden"):
        with pytest.raises(errors.ObjectNotInPrerequisiteState, match="is not supported"):
            wait(db, name)
    wait(db, "taken", "typed")
    assert executed(db, "taken") == ("FULL_IN_POSTGRES", "INITIAL")
    for i in range(3):
        db.execute("UPDATE odd SET v = v + 1, c = 'y ' WHERE id %% 4 = %s", (i,))
        db.execute("DELETE FROM odd WHERE id = %s", (i + 1,))
        assert_equal(db, "taken", "typed")
    assert executed(db, "taken") == ("FULL_IN_POSTGRES", "QUERY_REFUSED")
    assert_everywhere(db, stack, "taken")
    # Its sources did not change: PostgreSQL does not run the query again, but the frontier advances.
    runs = value(db, "SELECT count(*) FROM pgtrickle.get_refresh_history('taken', 100)")
    db.execute("CREATE TABLE elsewhere (id int)")
    wait(db, "taken")
    assert value(db, "SELECT count(*) FROM pgtrickle.get_refresh_history('taken', 100)") == runs
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match="is not supported"):
        create(db, "above_taken", "SELECT id FROM taken WHERE numbered")
        wait(db, "above_taken")


def test_the_snapshot_has_exactly_its_position_while_others_write(db: Connection, stack: Stack) -> None:
    """Each commit moves an amount from one row to the other: the sum is the same at every LSN."""
    db.execute("CREATE TABLE accounts (id int PRIMARY KEY, amount int)")
    db.execute("INSERT INTO accounts VALUES (1, 500), (2, 500)")
    create(
        db, "balances", "SELECT id, amount, sum(amount) OVER (ORDER BY id) AS running, xmin IS NULL AS n FROM accounts"
    )
    wait(db, "balances")
    with psycopg.connect(stack.addresses.database_url, autocommit=True) as writer:
        for i in range(30):
            with writer.transaction():
                writer.execute("UPDATE accounts SET amount = amount - %s WHERE id = 1", (i,))
                writer.execute("UPDATE accounts SET amount = amount + %s WHERE id = 2", (i,))
            if i % 10 == 0:
                wait(db, "balances")
            assert value(db, "SELECT sum(amount) FROM balances") == 1000
    assert_equal(db, "balances")


def test_full_accepts_any_query(db: Connection) -> None:
    db.execute("CREATE TABLE plain_rows (id int PRIMARY KEY); INSERT INTO plain_rows VALUES (1)")
    db.execute("CREATE MATERIALIZED VIEW frozen AS SELECT id FROM plain_rows")
    with pytest.raises(errors.WrongObjectType, match="frozen"):
        create(db, "of_frozen", "TABLE frozen")
    create(db, "of_frozen", "SELECT id, (SELECT count(*) FROM pg_class) > 0 AS any FROM frozen", refresh_mode="FULL")
    create(db, "clock", "SELECT id, clock_timestamp() AS at FROM plain_rows", refresh_mode="FULL")
    wait(db, "of_frozen", "clock")
    first = value(db, "SELECT max(at) FROM clock")
    db.execute("INSERT INTO plain_rows VALUES (2); REFRESH MATERIALIZED VIEW frozen")
    assert_equal(db, "of_frozen")

    def ticked() -> None:
        assert value(db, "SELECT max(at) > %s FROM clock", first) and value(db, "SELECT count(*) FROM clock") == 2

    oracle.eventually(ticked)
    db.execute("DROP MATERIALIZED VIEW frozen CASCADE")


def test_an_append_only_one_goes_back_at_the_first_delete(db: Connection, stack: Stack) -> None:
    db.execute("CREATE TABLE lines (id int PRIMARY KEY, said text)")
    create(db, "journal", "SELECT id, said FROM lines", append_only=True)
    wait(db, "journal")
    flag = "SELECT append_only FROM pgtrickle.pgt_stream_tables WHERE pgt_name = 'journal'"
    with psycopg.connect(stack.addresses.database_url, autocommit=True) as listener:
        listener.execute("LISTEN pg_trickle_alert")
        for i in range(3):
            db.execute("INSERT INTO lines VALUES (%s, 'x')", (i,))
            wait(db, "journal")
        assert value(db, flag) is True
        db.execute("DELETE FROM lines WHERE id = 1")
        assert_equal(db, "journal")
        next_alert(listener, "append_only_reverted", timeout_s=30)
        assert value(db, flag) is False
