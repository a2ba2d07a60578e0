"""Whole ticks with gates and watermark groups: who is held, where, and that nobody sees a part of a load.

Positions are those of the real log, because gates are closed there. What a reader must hold at a position of the past
is the result of its query over copies of the tables, made when the log was there.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import Any, cast

import psycopg
import pytest

from applier.catalog.stream_tables import StreamTableRow
from applier.plan.stream_table import StreamTable
from applier.refresh.alter import Alterations
from applier.refresh.method.refresh import Refresh
from applier.refresh.method.refresh_planner import RefreshPlanner
from shared_schema.lsn import Lsn
from tests.applier.runtime.conftest import Ticks, create

OF_A = "SELECT k, count(*) AS n, max(id) AS last FROM a GROUP BY k"
OF_B = "SELECT k, sum(v) AS s FROM b GROUP BY k"
BOTH = "SELECT x.k, x.n, x.last, y.s FROM of_a x JOIN of_b y USING (k)"
PAIRS = f"SELECT x.k, x.n, x.last, y.s FROM ({OF_A}) x JOIN ({OF_B}) y USING (k)"
IDS_OF_A = "SELECT id, k FROM a WHERE id % 2 = 0"
DIAMOND = "SELECT x.k, x.n, y.id FROM of_a x JOIN ids y USING (k)"
"""Two paths lead from `a` to it."""
LOOP = f"SELECT x.k, x.n, y.id FROM ({OF_A}) x JOIN ({IDS_OF_A}) y USING (k)"

ROWS = {"of_a": OF_A, "of_b": OF_B, "pairs": PAIRS, "whole": OF_A, "late": OF_A, "ids": IDS_OF_A, "diamond": LOOP}
"""Queries over base tables: `pairs` has that of BOTH."""


def log_end(ticks: Ticks) -> Lsn:
    (row,) = ticks.lab.connection.execute("SELECT pg_current_wal_insert_lsn()::text").fetchall()
    return Lsn.parse(str(row[0]))


def tick(ticks: Ticks) -> None:
    """Run a tick whose frontier is the end of the log."""
    ticks.lab.now = log_end(ticks)
    ticks.run()


def settle(ticks: Ticks) -> None:
    """Run ticks to the end of the log, with the refreshes and writes that go on beside them."""
    ticks.lab.now = log_end(ticks)
    finish(ticks)


def finish(ticks: Ticks) -> None:
    """Run ticks at the present frontier until nothing goes on beside them."""
    ticks.run()
    while ticks.computer.long_refreshes.has_any or ticks.writer.long_writes.has_any:
        ticks.wait_for_long()
        ticks.wait_for_writes()
        ticks.run()


def load(ticks: Ticks, name: str, statement: str) -> None:
    """Commit one transaction of a load, then run a tick."""
    ticks.lab.now = log_end(ticks)
    ticks.lab.change(name, statement)
    tick(ticks)


def call(ticks: Ticks, function: str) -> str:
    (row,) = ticks.lab.connection.execute(f"SELECT pgtrickle.{function}".encode()).fetchall()
    return str(row[0])


def copy_tables(ticks: Ticks) -> None:
    for name in ("a", "b"):
        ticks.lab.connection.execute(f"CREATE TABLE {name}_then AS TABLE {name}".encode())


def differences(ticks: Ticks, *names: str, then: bool = False) -> int:
    """Count rows that differ from the query's result now, or over the copies."""
    queries = {name: re.sub(r"\b(FROM) ([ab])\b", r"\1 \2_then", ROWS[name]) if then else ROWS[name] for name in names}
    return sum(ticks.lab.differences(name, query) for name, query in queries.items())


def frontiers(ticks: Ticks, *names: str) -> set[str]:
    rows = ticks.lab.connection.execute(
        "SELECT f.frontier::text FROM pgtrickle.pgt_stream_tables s LEFT JOIN pgtrickle.pgt_frontiers f USING (pgt_id)"
        " WHERE s.pgt_name = ANY (%s)",
        (list(names),),
    )
    return {str(row[0]) for row in rows.fetchall()}


def skips(ticks: Ticks) -> list[tuple[str, str]]:
    return ticks.lab.connection.execute(
        "SELECT s.pgt_name, h.refresh_reason FROM pgtrickle.pgt_refresh_history h"
        " JOIN pgtrickle.pgt_stream_tables s USING (pgt_id) WHERE h.action = 'SKIP' ORDER BY 1, h.refresh_id"
    ).fetchall()


def shallow(part: object) -> dict[str, Any]:
    """Return the arguments with which a part was made, and its state."""
    return {field.name: getattr(part, field.name) for field in fields(cast(Any, part))}


def begin(make_ticks: Callable[..., Ticks]) -> Ticks:
    ticks = make_ticks()
    create(ticks, of_a=OF_A, of_b=OF_B, pairs=BOTH)
    return ticks


def test_nobody_sees_a_part_of_a_load(make_ticks: Callable[..., Ticks]) -> None:
    ticks = begin(make_ticks)
    connection = ticks.lab.connection
    connection.execute("SELECT pgtrickle.create_stream_table('whole', %s, refresh_mode => 'FULL')", (OF_A,))
    tick(ticks)
    assert differences(ticks, "of_a", "of_b", "pairs", "whole") == 0
    at = call(ticks, "gate_source('a')")
    copy_tables(ticks)
    load(ticks, "a", "DELETE FROM a WHERE id > 5")
    held = ("of_a", "pairs", "whole")
    assert frontiers(ticks, *held) == {at}
    load(ticks, "a", "INSERT INTO a SELECT i, i % 3 FROM generate_series(100, 150) i")
    load(ticks, "b", "UPDATE b SET v = v + id WHERE id < 3")
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match=r"pairs is held: source public\.a is gated"):
        call(ticks, "wait_for('pairs')")
    # The restart of an applier, with a frontier that has passed half of the load; and a new reader, and a checkpoint.
    restarted = make_ticks()
    create(restarted, late=OF_A)
    tick(restarted)
    checkpointer = replace(restarted.checkpointer(restarted.lab.folder), delta_sink=None)
    checkpointer.checkpoint()
    assert checkpointer.latest.manifest.frontier == Lsn.parse(at), "no trace passes what a reader needs"
    load(restarted, "a", "INSERT INTO a SELECT i, i % 3 FROM generate_series(200, 250) i")
    assert frontiers(restarted, *held, "late") == {at}
    assert differences(restarted, *held, "late", then=True) == 0
    assert differences(restarted, "of_b") == 0 and frontiers(restarted, "of_b").isdisjoint({at}), "others go on"
    once = [(name, "SOURCE_GATED") for name in ("late", "of_a", "pairs", "whole")]
    assert skips(restarted) == once, "one line for each, also over a restart"
    # Its transaction may be after the frontier: nobody moves before the frontier has passed it.
    assert call(restarted, "ungate_source('a')") == "True"
    finish(restarted)
    assert differences(restarted, *held, "late", then=True) == 0
    settle(restarted)
    assert differences(restarted, "of_b", *held, "late") == 0
    assert frontiers(restarted, "of_b", *held, "late") == {str(restarted.lab.now)}
    assert skips(restarted) == once


@dataclass
class LoadsMeanwhile(RefreshPlanner):
    """A planner that a loader overtakes: gate and load are committed after the tick has looked, before it plans."""

    load: Callable[[], None] = lambda: None

    def plan(self, row: StreamTableRow, table: StreamTable, frontier: Lsn, now: datetime) -> Refresh:
        begin, self.load = self.load, lambda: None
        begin()
        return super().plan(row, table, frontier, now)


@dataclass(frozen=True)
class GatesBeforeTheLook(Alterations):
    """The gate is closed after the frontier of the tick is known, before it looks."""

    begin: Callable[[], None] = lambda: None

    def carry_out(self, frontier: Lsn, *, waits: bool = False) -> list[StreamTableRow]:
        self.begin()
        return super().carry_out(frontier, waits=waits)


def test_a_gate_that_is_closed_during_a_tick_keeps_the_load_out(make_ticks: Callable[..., Ticks]) -> None:
    ticks = begin(make_ticks)
    create(ticks, ids=IDS_OF_A, diamond=DIAMOND)
    tick(ticks)
    readers = ("of_a", "pairs", "ids", "diamond")
    connection, lab = ticks.lab.connection, ticks.lab

    def write(statement: str) -> None:
        """Commit a transaction, at its position of the log; no tick runs."""
        before, lab.now = lab.now, log_end(ticks)
        lab.change("a", statement)
        lab.now = before

    def close_and_load() -> None:
        call(ticks, "gate_source('a')")
        copy_tables(ticks)
        write("DELETE FROM a WHERE id > 5")

    late = replace(ticks, planner=LoadsMeanwhile(**shallow(ticks.planner), load=close_and_load))
    early = replace(ticks, alterations=GatesBeforeTheLook(**shallow(ticks.alterations), begin=close_and_load))
    for under_way in (late, early):
        write("INSERT INTO a SELECT max(id) + i, i FROM a, generate_series(1, 3) i GROUP BY i")
        tick(under_way)
        assert call(ticks, "_gates_version()") != "None", "the gate was closed while the tick was under way"
        assert len(frontiers(ticks, *readers)) == 1 and differences(ticks, *readers, then=True) == 0
        load(ticks, "a", "INSERT INTO a SELECT max(id) + i, i % 3 FROM a, generate_series(1, 9) i GROUP BY i")
        load(ticks, "b", "UPDATE b SET v = v + 1 WHERE id < 3")
        assert len(frontiers(ticks, *readers)) == 1 and differences(ticks, *readers, then=True) == 0
        assert differences(ticks, "of_b") == 0, "others go on"
        assert call(ticks, "ungate_source('a')") == "True"
        settle(ticks)
        assert frontiers(ticks, *readers) == {str(lab.now)} and differences(ticks, *readers) == 0
        connection.execute("DROP TABLE a_then, b_then")


def test_the_position_stays_when_everything_else_moves(make_ticks: Callable[..., Ticks]) -> None:
    ticks = begin(make_ticks)
    tick(ticks)
    connection = ticks.lab.connection
    at = Lsn.parse(call(ticks, "gate_source('a')"))
    load(ticks, "a", "UPDATE a SET k = 2 WHERE id > 5")
    row, table = next(
        (row, table)
        for row in ticks.failures.catalog.stream_tables.all()
        for table in [ticks.tables.planned[row.pgt_id]]
        if row.pgt_name == "of_a"
    )

    def limits() -> set[Lsn]:
        """Where the reader is held now, and where after a restart."""
        found = set()
        for applier in (ticks, make_ticks()):
            applier.tables.holds.look(applier.failures.catalog.stream_tables.all(), log_end(ticks))
            found.add(applier.tables.limit(row, table, log_end(ticks)))
        return found

    assert limits() == {at}
    # A reader whose skipped changes, or whose query that PostgreSQL ran, took it further.
    connection.execute("UPDATE pgtrickle.pgt_frontiers SET frontier = %s::text::pg_lsn", (str(log_end(ticks)),))
    assert limits() == {at}
    connection.execute("ALTER TABLE a RENAME TO a2")
    assert limits() == {at}
    connection.execute("ALTER TABLE a2 RENAME TO a")
    call(ticks, "gate_source('b')")
    assert limits() == {at}


def test_a_new_query_waits_for_the_gate_of_what_it_reads(make_ticks: Callable[..., Ticks]) -> None:
    ticks = begin(make_ticks)
    create(ticks, late="SELECT k, count(*) AS n, max(id) AS last FROM b GROUP BY k")
    tick(ticks)
    call(ticks, "gate_source('a')")
    ticks.lab.connection.execute("SELECT pgtrickle.alter_stream_table('late', %s)", (OF_A,))
    for _ in range(3):
        load(ticks, "b", "UPDATE b SET k = id % 2 WHERE id <= 4")
        load(ticks, "a", "INSERT INTO a SELECT max(id) + 1, 1 FROM a")
    assert ticks.lab.differences("late", "SELECT k, count(*) AS n, max(id) AS last FROM b GROUP BY k") == 0
    assert [name for name, _ in skips(ticks)] == ["of_a", "pairs"], "with its present query it is not held"
    call(ticks, "ungate_source('a')")
    for _ in range(2):
        load(ticks, "a", "INSERT INTO a SELECT max(id) + 1, 1 FROM a")
    assert differences(ticks, "late", "of_a", "pairs") == 0


def test_a_query_that_postgres_runs_begins_behind_no_gate(make_ticks: Callable[..., Ticks]) -> None:
    ticks = begin(make_ticks)
    by_postgres = "SELECT DISTINCT k, pg_backend_pid() > 0 AS seen, count(*) OVER () AS n FROM a"
    ticks.lab.connection.execute(
        "SELECT pgtrickle.create_stream_table('whole', %s, refresh_mode => 'FULL')", (by_postgres,)
    )
    settle(ticks)
    assert ticks.lab.differences("whole", by_postgres) == 0
    (before,) = frontiers(ticks, "whole")
    with psycopg.connect(ticks.lab.url) as writing:
        # A snapshot at a known position waits for it: the gate is closed after the tick has looked, and before that.
        writing.execute("SELECT pg_current_xact_id()")
        load(ticks, "a", "INSERT INTO a VALUES (400, 400)")
        call(ticks, "gate_source('a')")
    finish(ticks)
    assert frontiers(ticks, "whole") == {before} and ticks.statuses()["whole"] == "ACTIVE"
    load(ticks, "a", "INSERT INTO a VALUES (500, 500)")
    ticks.run_with_long()
    assert frontiers(ticks, "whole") == {before} and ("whole", "SOURCE_GATED") in skips(ticks)
    call(ticks, "ungate_source('a')")
    settle(ticks)
    assert ticks.lab.differences("whole", by_postgres) == 0


def test_a_watermark_group_holds_who_reads_two_of_its_sources(make_ticks: Callable[..., Ticks]) -> None:
    ticks = begin(make_ticks)
    ticks.tables.holds.holdback_timeout_s = lambda: 0.001
    connection = ticks.lab.connection
    connection.execute("LISTEN pg_trickle_alert")
    call(ticks, "create_watermark_group('day', '{a,b}')")
    tick(ticks)
    assert frontiers(ticks, "of_a", "of_b", "pairs") == {str(ticks.lab.now)}, "a group without watermarks holds nobody"
    copy_tables(ticks)
    # As in the transaction of the load: the watermark is before its rows are visible.
    call(ticks, "advance_watermark('a', '2026-01-02 00:00+00')")
    load(ticks, "a", "INSERT INTO a SELECT i, i % 3 FROM generate_series(100, 102) i")
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="the watermarks of group day are not"):
        call(ticks, "wait_for('pairs')")
    load(ticks, "b", "INSERT INTO b SELECT i, i % 3, 7 FROM generate_series(100, 102) i")
    # Who comes after a restart knows what was told.
    restarted = make_ticks()
    restarted.tables.holds.holdback_timeout_s = lambda: 0.001
    tick(restarted)
    assert differences(restarted, "pairs", then=True) == 0 and differences(restarted, "of_a", "of_b") == 0
    assert skips(restarted) == [("pairs", "WATERMARK_MISALIGNED")]
    # A longer timeout lets nobody go on.
    restarted.tables.holds.holdback_timeout_s = lambda: 0
    tick(restarted)
    restarted.tables.holds.holdback_timeout_s = lambda: 0.001
    tick(restarted)
    call(restarted, "advance_watermark('b', '2026-01-02 00:00+00')")
    settle(restarted)
    assert differences(restarted, "pairs", "of_a", "of_b") == 0
    call(restarted, "advance_watermark('a', '2026-01-03 00:00+00')")
    tick(restarted)
    call(restarted, "drop_watermark_group('day')")
    restarted = make_ticks()
    settle(restarted)
    assert frontiers(restarted, "of_a", "of_b", "pairs") == {str(restarted.lab.now)}
    events = re.findall(r'"event": ?"(watermark_\w+)"', " ".join(n.payload for n in connection.notifies(timeout=0.2)))
    assert events == ["watermark_stuck", "watermark_resumed"] * 2
