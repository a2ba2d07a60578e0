"""Rows that take long to write are written beside the ticks: the other stream tables stay fresh, and whatever happens
to the write or to its stream table, every sink ends with the rows of the query.

A trigger of the large stream table waits for a lock that the test holds: its write takes as long as the test wants.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psycopg
import pytest

from applier.errors import Infrastructure, SourceChanged
from applier.refresh.method import refresh_planner
from tests.applier.runtime.conftest import FEW, MANY, Ticks, change, create, differences
from tests.applier.runtime.test_contained import OF_B, delta_rows, error_of, target_rows

BLOCKED = "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND application_name = 'pg-trickle-applier'"

WAITS = """
CREATE FUNCTION wait_for_test() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN PERFORM pg_advisory_xact_lock(4242); RETURN NULL; END $$;
CREATE TRIGGER wait_for_test BEFORE INSERT OR UPDATE OR DELETE ON many EXECUTE FUNCTION wait_for_test()
"""


@contextmanager
def other_session(database: str, statement: str) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    """A transaction of another session that has run a statement."""
    with psycopg.connect(database) as connection:
        connection.execute(statement.encode())
        yield connection


def hold(database: str) -> ExitStack:
    """Hold the lock for which writes of `many` wait, until the returned stack is closed."""
    held = ExitStack()
    held.enter_context(other_session(database, "SELECT pg_advisory_xact_lock(4242)"))
    return held


def begin_write(ticks: Ticks) -> int:
    """Run ticks until rows of `many` are being written; return the process of its session."""
    ticks.run()
    ticks.wait_for_long()
    ticks.run()
    until = time.monotonic() + 30
    while not (blocked := ticks.lab.connection.execute(BLOCKED).fetchall()):
        assert time.monotonic() < until and not ticks.writer.long_writes.has_finished
        time.sleep(0.02)
    return int(str(blocked[0][0]))


def assert_fresh_meanwhile(ticks: Ticks) -> None:
    """Sources change, and the other stream table follows while `many` is still being written."""
    change(ticks)
    began = time.monotonic()
    ticks.run()
    assert time.monotonic() - began < 10 and ticks.lab.differences("few", FEW) == 0
    assert ticks.writer.long_writes.has_any and not ticks.writer.long_writes.has_finished


def finish(ticks: Ticks) -> None:
    """Take over the write, and refresh up to now."""
    ticks.wait_for_writes()
    ticks.run_with_long()
    if ticks.writer.long_writes.has_any or ticks.computer.long_refreshes.has_any:
        ticks.run_with_long()


def assert_all_equal(ticks: Ticks, tmp_path: Path, *, many: str = MANY) -> None:
    assert ticks.lab.differences("few", FEW) == 0 and ticks.lab.differences("many", many) == 0
    assert ticks.delta_sink.flush() == []
    for name in ("few", "many"):
        assert delta_rows(tmp_path, name) == target_rows(ticks, name)
    ticks.assert_all_closed()


@pytest.fixture
def ticks(make_ticks: Callable[..., Ticks]) -> Ticks:
    """`few` and `many`, not yet filled; writes of `many` wait for the test's lock."""
    made = make_ticks()
    create(made, few=FEW, many=MANY)
    made.lab.connection.execute(WAITS.encode())
    made.lab.step()
    return made


def test_the_others_stay_fresh(ticks: Ticks, database: str, tmp_path: Path) -> None:
    frontier = "SELECT f.frontier FROM pgtrickle.pgt_frontiers f JOIN pgtrickle.pgt_stream_tables USING (pgt_id)"
    for _ in ("filled", "merged"):
        with hold(database):
            begin_write(ticks)
            before = target_rows(ticks, "many")
            assert_fresh_meanwhile(ticks)
            assert target_rows(ticks, "many") == before
        finish(ticks)
        assert_all_equal(ticks, tmp_path)
        frontiers = ticks.lab.connection.execute(frontier.encode()).fetchall()
        assert len(set(frontiers)) == 1, "one tick, one frontier"
        change(ticks)
    written = ticks.lab.connection.execute(
        "SELECT action, status FROM pgtrickle.get_refresh_history('many', 10) ORDER BY 1"
    ).fetchall()
    assert written[-1] == ("FULL", "COMPLETED") and len(written) == 4, written


def test_a_trigger_that_is_slow_delays_the_others_once(
    make_ticks: Callable[..., Ticks], database: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A few rows whose write takes long, because of what the user does with them, are written beside the ticks as soon
    as that is known; also after a restart."""
    caplog.set_level(logging.INFO)
    ticks = make_ticks()
    create(ticks, few=FEW, of_b=OF_B)
    ticks.lab.step()
    ticks.run_with_long()
    ticks.lab.connection.execute(
        "CREATE TABLE pace AS SELECT 2.1 AS seconds; CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN PERFORM pg_sleep(seconds), pg_advisory_xact_lock(4242) FROM pace; RETURN NULL; END $$;"
        "CREATE TRIGGER slow AFTER INSERT OR UPDATE ON few FOR EACH ROW EXECUTE FUNCTION slow()"
    )

    def took() -> float:
        change(ticks)
        began = time.monotonic()
        ticks.run(ignore_schedules=False)
        assert ticks.lab.differences("of_b", OF_B) == 0
        return time.monotonic() - began

    assert took() > 2.1 and ticks.lab.differences("few", FEW) == 0, "nobody could know"
    ticks.lab.connection.execute("UPDATE pace SET seconds = 0")  # the lock lasts as long as the test wants
    for is_new in (False, True):
        if is_new:
            ticks.lab.connection.execute("UPDATE pgtrickle.pgt_refresh_history SET write_ms = 2100 WHERE pgt_id = 1")
            ticks = make_ticks()
            ticks.tables.scheduler.promises.recall(ticks.failures.catalog.history.read_recent(10))
        with hold(database):
            for _ in range(3):
                assert took() < 10
                assert ticks.writer.long_writes.has_any and ticks.lab.differences("few", FEW) > 0
        finish(ticks)
        assert ticks.lab.differences("few", FEW) == 0
    assert "written beside the ticks" not in caplog.text, "no tick has tried it and waited for the lock"
    assert ticks.delta_sink.flush() == []
    assert delta_rows(tmp_path, "few") == target_rows(ticks, "few")
    ticks.assert_all_closed()


@pytest.mark.parametrize("status", ["PAUSED", "SUSPENDED"])
def test_a_long_fill_of_few_rows_ends_out_of_service(
    make_ticks: Callable[..., Ticks], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, status: str
) -> None:
    """An aggregate over many rows is computed beside the ticks and written inside of one."""
    monkeypatch.setattr(refresh_planner, "LONG_SOURCE_ROWS", 10)
    ticks = make_ticks()
    create(ticks, of_b=OF_B)
    ticks.lab.step()
    ticks.run()
    assert ticks.computer.is_running(next(iter(ticks.tables.planned)))
    connection = ticks.lab.connection
    if status == "PAUSED":
        assert connection.execute("SELECT pgtrickle.pause_all()").fetchone() == (1,)
    else:
        # As by a tick that found its sources altered.
        error = SourceChanged("a column has another type", hint="reinitialize it")
        ticks.failures.catalog.stream_tables.suspend(next(iter(ticks.tables.planned)), error)
    ticks.wait_for_long()
    for _ in range(2):
        ticks.run()
    assert ticks.statuses() == {"of_b": status}
    assert ticks.delta_sink.flush() == []
    if status == "PAUSED":
        change(ticks)
        ticks.run()
        assert ticks.lab.differences("of_b", OF_B) > 0, "it rests"
        assert connection.execute("SELECT pgtrickle.resume_all()").fetchone() == (1,)
        ticks.run_with_long()
        assert ticks.statuses() == {"of_b": "ACTIVE"} and ticks.lab.differences("of_b", OF_B) == 0
        assert ticks.delta_sink.flush() == []
        assert delta_rows(tmp_path, "of_b") == target_rows(ticks, "of_b")
    ticks.assert_all_closed()


def test_a_stream_table_that_is_dropped(ticks: Ticks, database: str) -> None:
    dropped: list[str] = []

    def drop() -> None:
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute("SELECT pgtrickle.drop_stream_table('many')")
        dropped.append("many")

    thread = threading.Thread(target=drop)
    with hold(database):
        begin_write(ticks)
        thread.start()
        assert_fresh_meanwhile(ticks)
        assert not dropped
    thread.join(30)
    assert dropped
    finish(ticks)
    assert ticks.statuses() == {"few": "ACTIVE"} and ticks.lab.differences("few", FEW) == 0
    ticks.delta_sink.flush()
    ticks.assert_all_closed()


def test_a_stream_table_that_is_altered(ticks: Ticks, database: str, tmp_path: Path) -> None:
    """Its write is interrupted though the lock is still held, and it has the rows of the new query."""
    ticks.run_with_long()
    assert differences(ticks) == 0
    change(ticks)
    altered = MANY + " WHERE a.id > 3"
    with hold(database):
        begin_write(ticks)
        ticks.lab.connection.execute("SELECT pgtrickle.alter_stream_table('many', %s)", (altered,))
        change(ticks)
        began = time.monotonic()
        ticks.run()
        ticks.wait_for_writes()
        assert time.monotonic() - began < 10 and ticks.lab.differences("few", FEW) == 0
    finish(ticks)
    assert_all_equal(ticks, tmp_path, many=altered)


def test_a_stream_table_that_is_paused(ticks: Ticks, database: str, tmp_path: Path) -> None:
    with hold(database):
        begin_write(ticks)
        ticks.lab.connection.execute("SELECT pgtrickle.pause_stream_table('many')")
        assert_fresh_meanwhile(ticks)
    ticks.wait_for_writes()
    ticks.run()
    assert ticks.statuses() == {"few": "ACTIVE", "many": "PAUSED"} and target_rows(ticks, "many") == []
    ticks.lab.connection.execute("SELECT pgtrickle.resume_stream_table('many')")
    finish(ticks)
    assert_all_equal(ticks, tmp_path)


def test_what_it_rests_on_is_altered(ticks: Ticks, database: str) -> None:
    """It is suspended with the reason at once; what was being written is not shown."""
    with hold(database):
        begin_write(ticks)
        ticks.lab.connection.execute("ALTER TABLE b ALTER v TYPE bigint")
        ticks.lab.change("a", "DELETE FROM a WHERE id = 1")
        ticks.lab.step()
        ticks.run()
        ticks.wait_for_writes()
        ticks.run()
        assert ticks.statuses() == {"few": "ACTIVE", "many": "SUSPENDED"} and target_rows(ticks, "many") == []
        assert ticks.lab.differences("few", FEW) == 0 and error_of(ticks, "many")[0] == "SourceChanged"
    ticks.delta_sink.flush()
    ticks.assert_all_closed()


def test_its_session_is_killed(ticks: Ticks, database: str, tmp_path: Path) -> None:
    with hold(database):
        pid = begin_write(ticks)
        ticks.lab.connection.execute("SELECT pg_terminate_backend(%s, 5000)", (pid,))
        ticks.wait_for_writes()
        with pytest.raises(Infrastructure):
            ticks.run()
        assert ticks.statuses()["many"] == "INITIALIZING"
    finish(ticks)
    assert_all_equal(ticks, tmp_path)


def test_its_rows_are_rejected(ticks: Ticks, database: str, tmp_path: Path) -> None:
    ticks.lab.connection.execute("ALTER TABLE many ADD CONSTRAINT no CHECK (v < 0)")
    with hold(database):
        begin_write(ticks)
        assert_fresh_meanwhile(ticks)
    ticks.wait_for_writes()
    ticks.run()
    assert ticks.statuses() == {"few": "ACTIVE", "many": "SUSPENDED"}
    failed = ticks.lab.connection.execute("SELECT action, status FROM pgtrickle.get_refresh_history('many', 1)")
    assert failed.fetchall() == [("FULL", "FAILED")]
    ticks.lab.connection.execute("ALTER TABLE many DROP CONSTRAINT no")
    ticks.lab.connection.execute("SELECT pgtrickle.resume_stream_table('many')")
    finish(ticks)
    assert_all_equal(ticks, tmp_path)


def test_a_crash_after_the_commit(
    make_ticks: Callable[..., Ticks], ticks: Ticks, database: str, tmp_path: Path
) -> None:
    """A checkpoint between the commit and the next tick does not hide from the next start what the sinks lack."""
    ticks.run_with_long()
    assert ticks.delta_sink.flush() == []
    change(ticks)
    with hold(database):
        begin_write(ticks)
    ticks.wait_for_writes()
    assert ticks.delta_sink.flush() == [], "then only the frontiers in PostgreSQL hold the checkpoint back"
    checkpointer = ticks.checkpointer(tmp_path / "state")
    checkpointer.checkpoint()
    started = make_ticks()
    started.writer.catch_up_sinks.checkpoint.move_to(checkpointer.latest.manifest)
    started.run()
    change(started)
    started.run_with_long()
    finish(started)
    assert started.lab.differences("few", FEW) == 0 and started.lab.differences("many", MANY) == 0
    assert started.delta_sink.flush() == []
    for name in ("few", "many"):
        assert delta_rows(tmp_path, name) == target_rows(started, name)


def test_a_stop_interrupts_it(ticks: Ticks, database: str) -> None:
    with hold(database):
        begin_write(ticks)
        began = time.monotonic()
        for write in ticks.writer.long_writes.stop():
            with write:
                ticks.writer.forget(write.result.refresh.table.id)
        assert time.monotonic() - began < 10
        assert target_rows(ticks, "many") == []
    ticks.delta_sink.flush()
    ticks.assert_all_closed()


def test_a_stream_table_that_somebody_locked(make_ticks: Callable[..., Ticks], database: str, tmp_path: Path) -> None:
    """Also few rows are written beside the ticks while another session holds a lock on their stream table."""
    ticks = make_ticks()
    create(ticks, few=FEW, many=MANY, of_b=OF_B)
    ticks.lab.step()
    ticks.run_with_long()
    with other_session(database, "LOCK TABLE few IN SHARE MODE"):
        for _ in range(2):
            change(ticks)
            began = time.monotonic()
            ticks.run()
            assert time.monotonic() - began < 10 and ticks.lab.differences("of_b", OF_B) == 0
        assert set(ticks.statuses().values()) == {"ACTIVE"} and ticks.lab.differences("few", FEW) > 0
    finish(ticks)
    assert_all_equal(ticks, tmp_path)
