"""Whole ticks with a runaway statement: the fuse stops it before anything is written, and each way of reset goes on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import errors

from applier.catalog.beats import BeatStore
from applier.catalog.database import Database
from applier.plan.stream_table import StreamTable
from applier.refresh.check import check_once
from applier.sinks.staging.staged_delta import drop_leftovers
from shared_schema.table_schema import TableId
from tests.applier.runtime.conftest import Ticks, create
from tests.applier.runtime.test_contained import delta_rows
from tests.applier.runtime.test_gates import load, log_end, settle, tick
from tests.applier.sinks.kafka.test_publisher import Topics
from tests.fixtures.alerts import next_alert
from tests.fixtures.kafka import KafkaBroker

QUERIES = {
    "sums": "SELECT k, sum(v) AS s, count(*) AS n FROM b GROUP BY k",
    "whole": "SELECT id, k, v FROM b",
    "reader": "SELECT n, count(*) AS groups FROM sums GROUP BY n",
    "other": "SELECT k, max(v) AS m FROM b GROUP BY k",
}
FUSED = ("sums", "whole")
LAGGING = """
SELECT count(*) FROM pgtrickle.pgt_stream_tables s JOIN pgtrickle._fuse_states u USING (pgt_id)
LEFT JOIN pgtrickle.pgt_frontiers f USING (pgt_id)
WHERE NOT u.is_blown AND u.held_by IS NULL AND f.frontier IS DISTINCT FROM '%s'
"""


class Bench:
    """Ticks, the topics, and what the three places hold."""

    def __init__(self, make: Callable[..., Ticks], topics: Topics, folder: Path) -> None:
        self._make, self._topics, self._folder = make, topics, folder
        self.ticks = make(topics.open)
        self.db = self.ticks.lab.connection
        self._planned: dict[str, StreamTable] = {}

    def restart(self) -> None:
        """Begin again, as after a crash of the applier: what was only in memory is gone."""
        drop_leftovers(self.ticks.lab.url)
        self.ticks = self._make(self._topics.open)
        self.ticks.topics.open()

    def change(self, *statements: str) -> int:
        """Run statements of `b`, in one commit; return their change rows."""
        rows = sum(self.ticks.lab.change("b", s) * (2 if s.startswith("UPDATE") else 1) for s in statements)
        self.ticks.lab.step()
        return rows

    def run(self) -> None:
        """Run ticks until all have arrived that may go on, and bring everything to the other sinks."""
        for _ in range(12):
            self.ticks.run()
            self.ticks.wait_for_long()
            self.ticks.wait_for_writes()
            # What was written beside the ticks is handed on by the next one.
            is_busy = self.ticks.computer.long_refreshes.has_any or self.ticks.writer.long_writes.has_any
            if not is_busy and not self.one(LAGGING % self.ticks.lab.now):
                break
        self.ticks.writer.downstream.wake()
        self.ticks.topics.publish()
        assert self.ticks.delta_sink.flush() == []

    def postgres(self, name: str) -> Counter[tuple[Any, ...]]:
        return Counter(self.db.execute(f"TABLE {name}".encode()).fetchall())

    def rows(self, name: str) -> Counter[tuple[Any, ...]]:
        """Return the rows of a stream table, which are the same in PostgreSQL, in Delta and on the topic."""
        postgres = self.postgres(name)
        # One that is suspended has no plan after a restart.
        self._planned |= {table.table.name: table for table in self.ticks.tables.planned.values()}
        assert Counter(delta_rows(self._folder, name)) == postgres, f"{name} in Delta"
        assert self._topics.replay(self._planned[name]).rows == postgres, f"{name} on its topic"
        return postgres

    def differing(self, *names: str) -> list[str]:
        """Return which of the stream tables differ from their queries, of all by default."""
        return [n for n in names or QUERIES if self.ticks.lab.differences(n, self.query(n))]

    @staticmethod
    def query(name: str) -> str:
        return QUERIES[name].replace("FROM sums", f"FROM ({QUERIES['sums']}) sums")

    def blow(self, *statements: str) -> int:
        """Run away: nothing is written for those with a fuse and their reader, and the others go on."""
        before = {name: (self.postgres(name), self.frontier(name)) for name in (*FUSED, "reader")}
        changes = self.change(*statements)
        self.run()
        assert {n for n, status in self.ticks.statuses().items() if status != "ACTIVE"} == set(FUSED)
        assert {name: (self.rows(name), self.frontier(name)) for name in before} == before
        assert self.differing("other") == []
        return changes

    def frontier(self, name: str) -> str:
        return str(self.one(f"SELECT frontier FROM pgtrickle.pg_stat_stream_tables WHERE pgt_name = '{name}'"))

    def reset(self, action: str, *names: str) -> list[str]:
        return [str(self.one(f"SELECT pgtrickle.reset_fuse('{name}', '{action}')")) for name in names or FUSED]

    def one(self, query: str) -> object:
        found = self.db.execute(query.encode()).fetchone()
        assert found is not None
        return found[0]


@pytest.fixture
def bench(make_ticks: Callable[..., Ticks], kafka: KafkaBroker, tmp_path: Path) -> Bench:
    bench = Bench(make_ticks, Topics(kafka), tmp_path)
    bench.change("INSERT INTO b SELECT i, i % 10, i FROM generate_series(100, 399) i")
    create(bench.ticks, **QUERIES)
    for name in FUSED:
        bench.db.execute("SELECT pgtrickle.alter_stream_table(%s, fuse_ceiling => 150)", (name,))
    bench.run()
    assert bench.differing() == []
    return bench


def test_a_runaway_statement_is_stopped_and_each_way_of_reset_goes_on(bench: Bench, database: str) -> None:
    with psycopg.connect(database, autocommit=True) as listener:
        listener.execute("LISTEN pg_trickle_alert")
        changes = bench.blow("DELETE FROM b WHERE k < 8")
        blown = next_alert(listener, "fuse_blown", "public.sums", 1)
    lsn = str(bench.one("SELECT fuse_blown_until FROM pgtrickle.pgt_stream_tables WHERE pgt_name = 'sums'"))
    assert (blown["changes"], blown["limit"], blown["until"]) == (changes, 150, lsn)
    assert f"has {changes} (public.b {changes})" in blown["detail"] and "reset_fuse('public.sums'" in blown["hint"]
    shown = bench.db.execute(
        "SELECT name, state, changes, row_limit FROM pgtrickle.fuse_status() WHERE state NOT IN ('off', 'intact')"
    ).fetchall()
    assert shown == [
        ("public.reader", "held: the fuse is blown of public.sums", None, None),
        ("public.sums", "blown", changes, 150),
        ("public.whole", "blown", changes, 150),
    ]
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match="is held: the fuse is blown") as held:
        bench.db.execute("SELECT pgtrickle.wait_for('reader')")
    assert "reset_fuse" in str(held.value.diag.message_hint)
    # A new process knows it as well; the rows that follow wait too.
    before = bench.rows("sums")
    bench.restart()
    bench.change("UPDATE b SET v = v + 1 WHERE id = 399")
    bench.run()
    assert bench.rows("sums") == before and bench.differing() == ["sums", "whole", "reader"]
    assert bench.reset("apply")[0].startswith(f"{changes} change rows up to {lsn} are let through once")
    bench.run()
    assert bench.differing() == [] and set(bench.ticks.statuses().values()) == {"ACTIVE"}
    # It was let through once: the next one is stopped, and computed as a whole instead.
    bench.blow("INSERT INTO b SELECT i, i % 7, 1 FROM generate_series(1000, 1400) i")
    bench.reset("reinitialize")
    bench.run()
    assert bench.differing() == [] and set(bench.ticks.statuses().values()) == {"ACTIVE"}
    assert all(bench.rows(name) for name in QUERIES)
    reasons = bench.db.execute("SELECT refresh_reason FROM pgtrickle.get_refresh_history('sums', 1)").fetchall()
    assert reasons == [("REINITIALIZE",)]
    _skip_then_compute_as_a_whole(bench, database)


def test_a_query_that_postgres_runs_is_judged_by_what_it_has_read(make_ticks: Callable[..., Ticks]) -> None:
    ticks, query = make_ticks(), "SELECT DISTINCT k, pg_backend_pid() > 0 AS seen, count(*) OVER () AS n FROM a"
    db, lab = ticks.lab.connection, ticks.lab
    db.execute("SELECT pgtrickle.create_stream_table('whole', %s, refresh_mode => 'FULL', fuse_ceiling => 5)", (query,))
    settle(ticks)
    before = db.execute("TABLE whole").fetchall()
    with psycopg.connect(lab.url) as writing:
        # A snapshot at a known position waits for it: PostgreSQL reads what the tick could not count.
        writing.execute("SELECT pg_current_xact_id()")
        load(ticks, "a", "INSERT INTO a VALUES (400, 400)")
        seen, lab.now = lab.now, log_end(ticks)
        lab.change("a", "DELETE FROM a WHERE id > 5")
        lab.now = seen
    ticks.wait_for_long()
    ticks.run()
    assert ticks.computer.long_refreshes.has_any, "it waits until the changes have arrived"
    tick(ticks)
    assert ticks.statuses() == {"whole": "SUSPENDED"} and db.execute("TABLE whole").fetchall() == before
    db.execute("SELECT pgtrickle.reset_fuse('whole', 'apply')")
    for _ in range(3):
        # PostgreSQL reads a later position, which the next tick has reached.
        tick(ticks)
        ticks.wait_for_long()
    tick(ticks)
    assert ticks.statuses() == {"whole": "ACTIVE"} and lab.differences("whole", query) == 0


def test_what_a_fuse_stops_passes_by_no_other_way(bench: Bench) -> None:
    sums = QUERIES["sums"].replace("sum(v)", "sum(v) + 1")
    # A new query computes the whole: it waits until the changes are judged, also when no plan is known yet.
    assert all(bench.rows(name) for name in QUERIES)
    bench.restart()
    bench.db.execute("SELECT pgtrickle.alter_stream_table('sums', %s)", (sums,))
    bench.blow("DELETE FROM b WHERE k < 8")
    bench.reset("apply")
    bench.run()
    bench.change("INSERT INTO b VALUES (1000, 1, 1)")
    bench.run()
    assert bench.ticks.lab.differences("sums", sums) == 0 and bench.differing("whole", "other") == []
    assert set(bench.ticks.statuses().values()) == {"ACTIVE"}
    # Likewise a table that is built with other columns, and changes that are no longer held.
    bench.db.execute("SELECT pgtrickle.alter_stream_table('whole', 'SELECT id, k FROM b')")
    before = {name: (bench.postgres(name), bench.frontier(name)) for name in (*FUSED, "reader")}
    bench.change("INSERT INTO b SELECT i, i % 7, 1 FROM generate_series(2000, 2400) i")
    bench.ticks.checkpoint()
    bench.run()
    assert {name: (bench.postgres(name), bench.frontier(name)) for name in before} == before
    shown = bench.db.execute(
        "SELECT name, changes, row_limit, detail ~ 'are no longer held' FROM pgtrickle.fuse_status() u"
        " WHERE u.state = 'blown'"
    ).fetchall()
    assert shown == [("public.sums", None, 150, True), ("public.whole", None, 150, True)]
    assert bench.reset("apply") == [
        f"public.{n} is computed as a whole, and rows that differ are written" for n in FUSED
    ]
    bench.run()
    bench.change("INSERT INTO b VALUES (3000, 1, 1)")
    bench.run()
    assert bench.ticks.lab.differences("sums", sums) + bench.ticks.lab.differences("whole", "SELECT id, k FROM b") == 0
    bench.ticks.assert_all_closed()


def _skip_then_compute_as_a_whole(bench: Bench, database: str) -> None:
    before = {name: bench.postgres(name) for name in FUSED}
    changes = bench.blow("DELETE FROM b WHERE k < 6")
    said = bench.reset("skip_changes")
    assert "are skipped: public.sums is not equal" in said[0] and said[0].endswith("in what reads it: public.reader")
    bench.change("UPDATE b SET v = v + 5 WHERE id IN (108, 118)")
    bench.run()
    # Rows of group 8 are what they should be; those of the deleted groups are still there, in all three places.
    now = bench.rows("sums")
    assert {row for row in now - before["sums"]} == set(
        bench.db.execute(f"SELECT * FROM ({QUERIES['sums']}) q WHERE k = 8".encode()).fetchall()
    )
    assert bench.differing() == [*FUSED], "the reader is computed from the sources"
    # What comes next concerns rows that are not there, are others, or should be gone; more than are kept in memory.
    bench.change(
        "INSERT INTO b VALUES (100, 3, 7), (102, 3, 7), (500, 8, 1)",
        "INSERT INTO b SELECT i, 4, 1 FROM generate_series(200, 299) i WHERE i % 10 < 6",
        "UPDATE b SET k = 5 WHERE id = 119",
        "DELETE FROM b WHERE id = 102",
    )
    bench.run()
    assert set(bench.ticks.statuses().values()) == {"ACTIVE"}
    assert all(bench.rows(name) for name in FUSED)
    assert bench.differing() == [*FUSED]
    # A sink that comes back after a crash is given what PostgreSQL wrote, not what the query would have changed.
    bench.change("DELETE FROM b WHERE id = 100", "INSERT INTO b VALUES (310, 2, 2)")
    bench.ticks.run()
    bench.restart()
    bench.run()
    touched = "SELECT * FROM ({}) q WHERE k IN (2, 3, 4, 5, 8)"
    expected = Counter(bench.db.execute(touched.format(QUERIES["sums"]).encode()).fetchall())
    assert Counter({row: n for row, n in bench.rows("sums").items() if row[0] in (2, 3, 4, 5, 8)}) == expected
    bench.rows("whole")
    # Nobody can miss it.
    unequal = bench.db.execute("SELECT status, unequal FROM pgtrickle.quick_health").fetchone()
    assert unequal is not None and unequal[1] == 3
    [(severity, detail)] = bench.db.execute(
        "SELECT severity, detail FROM pgtrickle.health_check() WHERE check_name = 'fuses'"
    ).fetchall()
    assert severity == "WARNING" and f"{changes} change rows were skipped" in detail and "public.reader" in detail
    for name in ("sums", "reader"):
        found = bench.db.execute(
            "SELECT error_class, still_there FROM pgtrickle.diagnose_errors(%s)", (name,)
        ).fetchall()
        assert ("ChangesSkipped", True) in found
        assert "skipped" in check_once(bench.db, TableId("public", name), sample=10).skipped
    store = Database(database)
    assert not any(read.fuse_blown_s for read in BeatStore(store, "pg_trickle").watched())
    store.close()
    # What would bring everything back is only done for somebody who asks for it.
    bench.db.execute("SELECT pgtrickle.reinitialize_stream_table(name) FROM unnest(%s::text[]) name", ([*FUSED],))
    bench.change("INSERT INTO b VALUES (2000, 8, 1)")
    bench.run()
    assert bench.differing() == []
    assert all(bench.rows(name) for name in QUERIES)
    left = bench.db.execute("SELECT name FROM pgtrickle.fuse_status() WHERE state LIKE '%equal%'").fetchall()
    assert left == [] and check_once(bench.db, TableId("public", "sums"), sample=10).equal
    bench.ticks.assert_all_closed()
