"""A stream table far behind catches up in steps while others stay fresh, or in full if the changes are deleted."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from psycopg import errors

from tests import oracle
from tests.e2e.test_schedules import assert_equal, create, value, wait

Connection = psycopg.Connection[tuple[object, ...]]


@pytest.fixture
def small_limits(db: Connection) -> Iterator[None]:
    """Use the smallest values that the settings allow; reset them afterwards."""
    limits = {"catch_up_rows": "1000", "max_buffer_rows": "10000", "checkpoint_rows": "100"}
    for name, least in limits.items():
        db.execute("SELECT pgtrickle.set_setting(%s, %s)", (name, least))

    def assert_in_use() -> None:
        used = db.execute(
            "SELECT name, value FROM pgtrickle.pgt_settings_in_use WHERE name = ANY (%s)", (list(limits),)
        )
        assert {str(name): str(setting) for name, setting in used.fetchall()} == limits

    oracle.eventually(assert_in_use)
    yield
    for name in limits:
        db.execute("SELECT pgtrickle.reset_setting(%s)", (name,))


def fill(db: Connection, first: int, rows: int, commits: int) -> None:
    """Insert rows in several commits."""
    for i in range(commits):
        db.execute(
            "INSERT INTO backlog SELECT i, i %% 7 FROM generate_series(%s::int, %s::int) i",
            (first + i * rows, first + (i + 1) * rows - 1),
        )


@pytest.mark.usefixtures("small_limits")
def test_a_lagging_table_catches_up_in_steps_or_in_full(db: Connection) -> None:
    db.execute("CREATE TABLE backlog (id int PRIMARY KEY, kind int)")
    create(db, "fresh", "SELECT id, kind FROM backlog WHERE kind = 3")
    query = "SELECT kind, count(*) AS n FROM backlog GROUP BY kind"
    create(db, "slow", query, refresh_mode="DIFFERENTIAL")
    create(db, "careful", query, full_policy="error")
    wait(db, "fresh", "slow", "careful")
    for name in ("slow", "careful"):
        db.execute("SELECT pgtrickle.pause_stream_table(%s)", (name,))
    fill(db, 0, 400, 8)
    assert_equal(db, "fresh")
    db.execute("SELECT pgtrickle.resume_stream_table('slow')")
    assert_equal(db, "slow")
    steps = db.execute("SELECT action, rows_in FROM pgtrickle.get_refresh_history('slow', 100) WHERE rows_in > 0")
    done = steps.fetchall()
    assert len(done) >= 3 and {action for action, _ in done} == {"DIFFERENTIAL"}
    # Whole commits: a step ends with the commit that reaches the limit.
    assert all(isinstance(rows, int) and rows <= 1400 for _, rows in done) and sum(r for _, r in done) == 3200  # type: ignore[misc]

    db.execute("SELECT pgtrickle.pause_stream_table('slow')")
    fill(db, 10_000, 4_000, 4)
    assert_equal(db, "fresh")

    def assert_changes_deleted() -> None:
        gone = "SELECT c.frontier > v.frontier FROM pgtrickle.pgt_checkpoints c, pgtrickle.pg_stat_stream_tables v"
        assert value(db, f"{gone} WHERE v.pgt_name = 'slow'") is True

    fill(db, 100_000, 10, 1)
    wait(db, "fresh")
    oracle.eventually(assert_changes_deleted)
    db.execute("SELECT pgtrickle.resume_stream_table('slow')")
    assert_equal(db, "slow")
    last = db.execute("SELECT action, refresh_reason FROM pgtrickle.get_refresh_history('slow', 1)").fetchone()
    assert last == ("FULL", "HISTORY_GONE")
    db.execute("SELECT pgtrickle.resume_stream_table('careful')")
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match="full_policy"):
        wait(db, "careful")
