"""A query that PostgreSQL runs is read after the frontier: its rows are shown only where the catalog was compared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from applier.plan.stream_table import StreamTable
from applier.refresh.computing.full_in_postgres import FullInPostgres
from applier.sinks.delta import ComputedDelta
from shared_schema.lsn import Lsn
from tests.applier.runtime.conftest import Ticks

LATER = Lsn(1 << 40)
"""After every position of the server: positions of a laboratory are small numbers."""

QUERY = "SELECT id, doubled(k) AS k FROM a"

SWAP = "ALTER TABLE a RENAME TO blue; ALTER TABLE green RENAME TO a"


@pytest.mark.parametrize("moment", ["before it runs", "before it is written", "never"])
def test_a_table_is_swapped(make_ticks: Callable[..., Ticks], monkeypatch: pytest.MonkeyPatch, moment: str) -> None:
    ticks = make_ticks()
    connection = ticks.lab.connection
    connection.execute(
        "CREATE FUNCTION doubled(v int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN v * 2; END'"
    )
    connection.execute("CREATE TABLE green (id int PRIMARY KEY, k int); INSERT INTO green VALUES (777, 777)")
    connection.execute("SELECT pgtrickle.create_stream_table('doubles', %s, refresh_mode => 'FULL')", (QUERY,))
    ticks.lab.now = LATER
    ran: list[str] = []

    def swap(at: str) -> None:
        if at == moment and not ran:
            connection.execute(SWAP)
        ran.append(at)

    real = FullInPostgres.run

    def run(self: FullInPostgres, table: StreamTable, since: Lsn) -> ComputedDelta:
        swap("before it runs")
        delta = real(self, table, since)
        ran.clear()
        swap("before it is written")
        return delta

    monkeypatch.setattr(FullInPostgres, "run", run)
    ticks.run_with_long()
    assert ran, "PostgreSQL ran it"
    found: list[Any] = connection.execute("SELECT id, k FROM doubles ORDER BY id").fetchall()
    if moment == "never":
        assert len(found) == 20 and ticks.lab.differences("doubles", QUERY) == 0
        return
    assert found == [], "rows of a catalog that nobody compared"
    assert ticks.statuses()["doubles"] == "SUSPENDED"
    problem = connection.execute(
        "SELECT last_error_message FROM pgtrickle.pgt_stream_tables WHERE pgt_name = 'doubles'"
    ).fetchone()
    assert problem is not None and "another relation has its name" in problem[0]
    assert ticks.leases == 0
