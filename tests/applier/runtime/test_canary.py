"""Whole ticks with a canary: compared with PostgreSQL, seen by no other sink, promoted in place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.applier.runtime.conftest import FEW, Ticks, change, create
from tests.applier.runtime.test_contained import delta_rows, target_rows

NEW = "SELECT k, count(*) + 1 AS n FROM a WHERE id <> 3 GROUP BY k"

DIFF = "SELECT row_source, diff_row ->> 'n' FROM pgtrickle.canary_diff('few')"


@pytest.mark.parametrize("mode", ["DIFFERENTIAL", "FULL"])
def test_begin_compare_and_promote(make_ticks: Callable[..., Ticks], tmp_path: Path, mode: str) -> None:
    ticks = make_ticks()
    connection = ticks.lab.connection
    create(ticks, few=FEW, reader="SELECT n FROM few")
    connection.execute("SELECT pgtrickle.alter_stream_table('few', refresh_mode => %s)", (mode,))
    ticks.run_with_long()
    connection.execute("SELECT pgtrickle.canary_begin('few', %s)", (NEW,))
    for _ in range(3):
        change(ticks)
        ticks.run_with_long()
    assert ticks.lab.differences("few", FEW) + ticks.lab.differences("few__canary", NEW) == 0
    (count,) = connection.execute("SELECT n FROM few").fetchone() or (0,)
    # One row is left out and one is counted besides: nothing differs.
    assert connection.execute(DIFF).fetchall() == []
    connection.execute("SELECT pgtrickle.alter_stream_table('few__canary', %s)", (NEW.replace("+ 1", "+ 9"),))
    change(ticks)
    ticks.run_with_long()
    change(ticks)
    ticks.run_with_long()
    assert connection.execute(DIFF).fetchall() == [("current", str(count + 2)), ("canary", str(count + 2 - 1 + 9))]
    # Only PostgreSQL has its rows, and nothing is kept for other sinks.
    canary, original = (
        next(t for t in ticks.tables.planned.values() if t.table.name == name) for name in ("few__canary", "few")
    )
    assert ticks.writer.downstream.frontiers(canary) == {}
    assert ticks.writer.downstream.frontiers(original)
    kept = connection.execute("SELECT count(*) FROM pgtrickle.pgt_outbox WHERE pgt_id = %s", (canary.id,)).fetchone()
    # Not more than its first rows, before it was known to the sinks.
    assert kept is not None and kept[0] <= 1
    for table in (canary, original):
        ticks.writer.drain(table.id)
    assert {path.name for path in tmp_path.glob("delta/*/few*")} == {"few"}
    assert connection.execute("SELECT pgtrickle.canary_promote('few')").fetchone() == ("compatible",)
    change(ticks)
    ticks.run_with_long()
    change(ticks)
    ticks.run_with_long()
    assert ticks.lab.differences("few", NEW.replace("+ 1", "+ 9")) == 0
    assert ticks.lab.differences("reader", NEW.replace("+ 1", "+ 9").replace("SELECT k,", "SELECT")) == 0
    assert ticks.statuses() == {"few": "ACTIVE", "reader": "ACTIVE"}


def test_promoted_with_other_columns(make_ticks: Callable[..., Ticks], tmp_path: Path) -> None:
    """A table with the new columns is built beside the old one, which is fresh until then, and every sink follows."""
    ticks = make_ticks()
    connection = ticks.lab.connection
    create(ticks, few=FEW)
    ticks.run_with_long()
    other = "SELECT 'k' || k AS k, max(id) AS last FROM a WHERE id <> 3 GROUP BY k"
    connection.execute("SELECT pgtrickle.canary_begin('few', %s)", (other,))
    for _ in range(2):
        change(ticks)
        ticks.run_with_long()
    assert ticks.lab.differences("few", FEW) + ticks.lab.differences("few__canary", other) == 0
    assert connection.execute(DIFF.replace("'n'", "'k'")).fetchall() == [("current", "1"), ("canary", "k1")]
    assert connection.execute("SELECT pgtrickle.canary_promote('few')").fetchone() == ("rebuild",)
    assert connection.execute("SELECT to_regclass('few__canary')").fetchone() == (None,)
    assert ticks.lab.differences("few", FEW) == 0, "what readers see until the new rows are there"
    for _ in range(3):
        change(ticks)
        ticks.run_with_long()
    assert ticks.lab.differences("few", other) == 0
    assert ticks.statuses() == {"few": "ACTIVE"}
    status = (
        "SELECT last_error_message, (SELECT count(*) FROM pgtrickle.canary_status()) FROM pgtrickle.pgt_stream_tables"
    )
    assert connection.execute(status).fetchone() == (None, 0)
    assert ticks.delta_sink.flush() == []
    assert delta_rows(tmp_path, "few") == target_rows(ticks, "few")
    ticks.assert_all_closed()
