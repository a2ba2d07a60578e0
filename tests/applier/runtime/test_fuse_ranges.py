"""Whole ticks: which ranges a fuse counts as one, and that no reader shows what it stops, wherever that one stands.

Time is that of the catalog: what an hour without an applier leaves is written there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import psycopg
import pytest

from applier.refresh.method.refresh_planner import RefreshLimits
from tests.applier.runtime.conftest import Ticks, create
from tests.applier.runtime.test_long_writes import other_session

SUMS = "SELECT k, sum(v) AS s, count(*) AS n FROM b GROUP BY k"
READER = "SELECT n, count(*) AS groups FROM sums GROUP BY n"
QUERIES = {
    "sums": SUMS,
    "reader": READER,
    "third": "SELECT max(groups) AS most FROM reader",
    "other": "SELECT k, max(v) AS m FROM b GROUP BY k",
}
CEILING = 50
STEP = 40
RARELY = "1000d"
"""A schedule by which nothing is due while a test runs."""


class World:
    """`sums` has a fuse, `reader` and `third` read it, `other` does not."""

    def __init__(self, make: Callable[..., Ticks], *names: str) -> None:
        self._make, self._names = make, names
        self.ticks = make()
        self.db, self.lab = self.ticks.lab.connection, self.ticks.lab
        self.lab.change("b", "INSERT INTO b SELECT i, i % 10, i FROM generate_series(100, 399) i")
        self.lab.step()
        create(self.ticks, **{name: QUERIES[name] for name in names})
        self.alter("fuse_ceiling => %s", CEILING)
        self.run(until_filled=True)
        assert self.differing() == []
        self._bound_steps()

    def _bound_steps(self) -> None:
        self.ticks.planner.limits = lambda: RefreshLimits(1.0, STEP)

    def alter(self, option: str, *values: object, name: str = "sums") -> None:
        self.db.execute(f"SELECT pgtrickle.alter_stream_table('{name}', {option})".encode(), values)

    def commit(self, *statements: str) -> None:
        """Change `b` in one commit."""
        for statement in statements:
            self.lab.change("b", statement)
        self.lab.step()

    def load(self, commits: int, rows: int = 10) -> None:
        """Insert rows in small commits."""
        for _ in range(commits):
            self.commit(f"INSERT INTO b SELECT max(id) + i, i % 7, 1 FROM b, generate_series(1, {rows}) i GROUP BY i")

    def run(self, ticks: int = 1, *, until_filled: bool = False) -> None:
        """Run ticks by schedule; to fill, until nothing goes on beside them."""
        for _ in range(3 if until_filled else ticks):
            self.ticks.run(ignore_schedules=until_filled)
            self.ticks.wait_for_long()
            self.ticks.run(ignore_schedules=until_filled)

    def stay_away(self, minutes: float, name: str = "sums") -> None:
        """Leave what a stream table has in the catalog after it was not refreshed for so long."""
        self.db.execute(
            "UPDATE pgtrickle.pgt_frontiers f SET refreshed_at = f.refreshed_at - make_interval(secs => %s)"
            " FROM pgtrickle.pgt_stream_tables s WHERE s.pgt_id = f.pgt_id AND s.pgt_name = %s",
            (minutes * 60, name),
        )

    def include_commits_until(self, minutes_ago: float) -> None:
        """Store how fresh the rows are by the clock of the sources, as progress records say it; refreshed just now."""
        self.db.execute(
            "UPDATE pgtrickle.pgt_frontiers SET complete_until = now() - make_interval(secs => %s)", (minutes_ago * 60,)
        )

    def restart(self) -> None:
        self.ticks = self._make()
        self._bound_steps()

    def differing(self) -> list[str]:
        """Return which stream tables differ from their queries over the sources."""
        return [name for name in self._names if self.lab.differences(name, _over_sources(name))]

    def frontiers(self) -> dict[str, str]:
        rows = self.db.execute(
            "SELECT s.pgt_name, f.frontier::text FROM pgtrickle.pgt_frontiers f JOIN pgtrickle.pgt_stream_tables s"
            " USING (pgt_id)"
        ).fetchall()
        return {str(name): str(frontier) for name, frontier in rows}

    def states(self) -> dict[str, str]:
        """Return the fuses that are not simply intact or off."""
        rows = self.db.execute(
            "SELECT name, state FROM pgtrickle.fuse_status() WHERE state NOT IN ('intact', 'off')"
        ).fetchall()
        return {str(name).removeprefix("public."): str(state) for name, state in rows}

    def status(self, name: str = "sums") -> str:
        return self.ticks.statuses()[name]

    def samples(self) -> Sequence[int]:
        """Return the sizes of refreshes of `sums` that count as normal."""
        fuses = self.ticks.planner.fuses
        assert fuses is not None
        (row,) = self.db.execute("SELECT pgt_id FROM pgtrickle.pgt_stream_tables WHERE pgt_name = 'sums'").fetchall()
        return fuses.store.read(int(row[0]), 200)

    @contextmanager
    def nothing_moves(self, *names: str) -> Iterator[None]:
        def held() -> list[tuple[str, Counter[tuple[object, ...]]]]:
            return [
                (self.frontiers()[name], Counter(self.db.execute(f"TABLE {name}".encode()).fetchall()))
                for name in names
            ]

        before = held()
        yield
        assert held() == before


def _over_sources(name: str) -> str:
    reader = READER.replace("FROM sums", f"FROM ({SUMS}) sums")
    return QUERIES[name].replace("FROM sums", f"FROM ({SUMS}) sums").replace("FROM reader", f"FROM ({reader}) reader")


_IS_HELD = "held: the fuse is blown of public.sums"
HELD = {"reader": _IS_HELD, "sums": "blown", "third": _IS_HELD}


def test_a_backlog_of_ordinary_commits_passes_in_steps_also_over_a_restart(make_ticks: Callable[..., Ticks]) -> None:
    world = World(make_ticks, "sums", "other")
    world.load(1)
    world.run()
    ordinary = world.samples()
    assert list(ordinary) == [10]
    world.db.execute("SELECT pgtrickle.pause_stream_table('sums')")
    world.load(20)
    world.stay_away(60)
    world.db.execute("SELECT pgtrickle.resume_stream_table('sums')")
    world.ticks.run()
    assert world.status() == "ACTIVE" and world.differing() == ["sums"], "one step of several"
    world.restart()
    # Commits that come meanwhile are as ordinary.
    world.load(1)
    world.run(6)
    assert world.status() == "ACTIVE" and world.differing() == []
    assert list(world.samples()) == list(ordinary), "neither a step nor what followed is normal"
    # It has caught up: the sum counts.
    world.load(1)
    world.run()
    with world.nothing_moves("sums"):
        world.load(6)
        world.run()
    assert world.states() == {"sums": "blown"}


def test_a_backlog_in_micro_batches_passes_until_it_has_caught_up(make_ticks: Callable[..., Ticks]) -> None:
    world = World(make_ticks, "sums", "other")
    for minutes_ago in (60, 40, 20, 0.9, 0.2):
        # Refreshed a moment ago, with rows that are old.
        world.include_commits_until(minutes_ago)
        world.load(6)
        world.run()
        assert world.status() == "ACTIVE" and world.differing() == [], minutes_ago
    assert list(world.samples()) == []
    # A runaway statement in the backlog is stopped as ever.
    world.include_commits_until(60)
    with world.nothing_moves("sums"):
        world.load(3)
        world.commit("DELETE FROM b WHERE k < 3")
        world.run()
    assert world.states() == {"sums": "blown"}
    world.db.execute("SELECT pgtrickle.reset_fuse('sums', 'apply')")
    world.run(6)
    world.include_commits_until(0.01)
    world.load(6)
    world.run()
    assert world.states() == {"sums": "blown"}, "on time, the sum counts"


def test_small_commits_add_up_between_two_refreshes_of_a_cold_one(make_ticks: Callable[..., Ticks]) -> None:
    world = World(make_ticks, "sums", "other")
    world.alter("schedule => '1m', tier => 'cold'")
    world.ticks.run(ignore_schedules=False)
    # Ten intervals are its own.
    world.stay_away(10)
    with world.nothing_moves("sums"):
        world.load(6)
        world.run()
    assert world.states() == {"sums": "blown"} and world.differing() == ["sums"]


def test_a_reader_does_not_pass_a_fuse_that_is_refreshed_rarely(make_ticks: Callable[..., Ticks]) -> None:
    world = World(make_ticks, "sums", "reader", "third", "other")
    world.alter("schedule => %s", RARELY)
    world.load(1)
    world.run()
    assert world.differing() == ["sums"], "a reader may be further"
    with world.nothing_moves("sums", "reader", "third"):
        world.commit("DELETE FROM b WHERE k < 3")
        world.run()
    assert world.states() == HELD and world.status() == "SUSPENDED", "at once, so that somebody hears of it"
    assert {"sums", "reader"} <= {*world.differing()} and "other" not in world.differing()
    world.db.execute("SELECT pgtrickle.reset_fuse('sums', 'apply')")
    world.run()
    assert world.states() == {} and world.differing() == ["sums"], "its schedule is its own"
    # Small commits count from where it stands, however often its readers are refreshed.
    world.load(2)
    world.run()
    assert world.differing() == ["sums"]
    with world.nothing_moves("sums", "reader", "third"):
        world.load(4)
        world.run()
    assert world.states() == HELD


def test_a_reader_does_not_pass_a_fuse_that_is_busy(make_ticks: Callable[..., Ticks], database: str) -> None:
    world = World(make_ticks, "sums", "reader", "third", "other")
    with other_session(database, "LOCK TABLE sums IN SHARE MODE"):
        world.load(3)
        world.ticks.run(ignore_schedules=False)
        assert world.ticks.writer.long_writes.has_any
        # What is under way is no part of what follows.
        world.load(3)
        world.ticks.run(ignore_schedules=False)
        assert world.differing() == ["sums"]
        with world.nothing_moves("reader", "third"):
            world.commit("DELETE FROM b WHERE k < 3")
            world.run()
        assert world.states() == {} and world.status() == "ACTIVE", "what it computed is not lost"
    world.ticks.wait_for_writes()
    with world.nothing_moves("reader", "third"):
        world.run(2)
    assert world.states() == HELD
    world.db.execute("SELECT pgtrickle.reset_fuse('sums', 'apply')")
    world.run(2)
    assert world.states() == {} and world.differing() == []


@pytest.mark.parametrize("restarts", [False, True])
def test_a_reader_does_not_pass_a_fuse_that_is_out_of_service(make_ticks: Callable[..., Ticks], restarts: bool) -> None:
    world = World(make_ticks, "sums", "reader", "other")
    world.db.execute("SELECT pgtrickle.pause_stream_table('sums')")
    if restarts:
        world.restart()
    # It will catch up some day: small commits are none of its concern.
    world.load(6)
    world.run()
    assert world.differing() == ["sums"] and world.states() == {}
    with world.nothing_moves("sums", "reader"):
        world.commit("DELETE FROM b WHERE k < 3")
        world.run()
    assert world.states() == {name: HELD[name] for name in ("reader", "sums")} and world.status() == "PAUSED"
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="the fuse is blown"):
        world.db.execute("SELECT pgtrickle.resume_stream_table('sums')")
    (said,) = world.db.execute("SELECT pgtrickle.reset_fuse('sums', 'apply')").fetchall()
    assert "it is paused" in str(said[0])
    world.run()
    assert world.differing() == ["sums"] and world.states() == {}
    world.db.execute("SELECT pgtrickle.resume_stream_table('sums')")
    world.run(4)
    assert world.differing() == [] and world.states() == {}


def test_a_new_query_of_a_reader_does_not_pass_a_fuse(make_ticks: Callable[..., Ticks]) -> None:
    world = World(make_ticks, "sums", "reader", "other")
    world.alter("schedule => %s", RARELY)
    world.alter("%s", "SELECT n, count(*) + 1 AS groups FROM sums GROUP BY n", name="reader")
    with world.nothing_moves("sums", "reader"):
        world.commit("DELETE FROM b WHERE k < 3")
        world.run()
    assert world.states() == {name: HELD[name] for name in ("reader", "sums")}
    world.db.execute("SELECT pgtrickle.reset_fuse('sums', 'apply')")
    world.run(2)
    new_query = f"SELECT n, count(*) + 1 AS groups FROM ({SUMS}) sums GROUP BY n"
    assert world.states() == {} and world.lab.differences("reader", new_query) == 0
