"""A query of which only small deltas can be written: after a large commit it is refreshed in full, with the reason."""

from __future__ import annotations

from collections.abc import Callable

from applier.arrange.inputs import SMALL_RANGE_ROWS
from tests.applier.runtime.conftest import Ticks

NESTED = "SELECT a0.id AS i0, a1.id AS i1, a2.id AS i2, a3.id AS i3, a4.id AS i4 FROM a a0" + "".join(
    f" FULL JOIN a a{i} ON a{i}.id = a{i - 1}.id + 1" for i in range(1, 5)
)
"""The text of an outer join holds its inputs several times, so that of nested ones grows fast."""


def reasons(ticks: Ticks) -> list[tuple[object, ...]]:
    return ticks.lab.connection.execute(
        "SELECT action, refresh_reason FROM pgtrickle.get_refresh_history('nested', 100) ORDER BY start_time"
    ).fetchall()


def commit(ticks: Ticks, first: int, rows: int) -> None:
    """Insert so many rows in one commit, and run the ticks that refresh the stream table up to it."""
    ticks.lab.change("a", f"INSERT INTO a SELECT i, 1 FROM generate_series({first}, {first + rows - 1}) i")
    ticks.lab.step()
    ticks.run_with_long()
    ticks.run_with_long()


def test_a_large_commit_is_a_full_refresh_or_is_forbidden(make_ticks: Callable[..., Ticks]) -> None:
    ticks = make_ticks()
    ticks.lab.connection.execute(
        "SELECT pgtrickle.create_stream_table('nested', %s, refresh_mode => 'DIFFERENTIAL')", (NESTED,)
    )
    ticks.lab.step()
    ticks.run_with_long()
    (table,) = ticks.tables.planned.values()
    assert table.plan.only_small_deltas  # type: ignore[union-attr]

    commit(ticks, 1_000, 10)
    assert reasons(ticks)[-1] == ("DIFFERENTIAL", "MODE")
    commit(ticks, 2_000, SMALL_RANGE_ROWS + 1)
    assert reasons(ticks)[-1] == ("FULL", "LARGE_COMMIT")
    assert ticks.lab.differences("nested", NESTED) == 0
    # Many small commits are taken in steps.
    commit(ticks, 100_000, 5)
    assert reasons(ticks)[-1] == ("DIFFERENTIAL", "MODE")
    assert ticks.lab.differences("nested", NESTED) == 0

    ticks.lab.connection.execute("SELECT pgtrickle.alter_stream_table('nested', full_policy => 'error')")
    commit(ticks, 200_000, SMALL_RANGE_ROWS + 1)
    assert ticks.statuses() == {"nested": "SUSPENDED"}
    said = ticks.lab.connection.execute("SELECT last_error_message FROM pgtrickle.pgt_stream_tables").fetchone()
    assert "too large for the delta of this query" in str(said)
