"""What is raised for one stream table concerns that one: the others go on, and no value of a row is shown."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from applier.errors import Infrastructure, TargetDiverged
from applier.plan.stream_table import StreamTable
from applier.refresh.computing import compute as compute_module
from applier.refresh.computing import computer as computer_module
from applier.refresh.computing import fills
from applier.refresh.computing.full_in_postgres import FullInPostgres
from applier.refresh.planning import plan_stream_table
from applier.sinks.delta_lake.sink import DeltaSink
from applier.sinks.postgres.sink import PostgresSink
from applier.sql import plan_query
from applier.sql.plan_query import PlannedQuery
from tests.applier.runtime.conftest import FEW, MANY, Ticks, change, create, differences

OF_B = "SELECT k, sum(v) AS s FROM b GROUP BY k"


def raise_secret(*_: object, **__: object) -> Any:
    raise pa.ArrowInvalid("cannot convert 'a secret'")


def error_of(ticks: Ticks, name: str) -> tuple[str, str]:
    found = ticks.lab.connection.execute(
        "SELECT last_error_code, last_error_message FROM pgtrickle.pgt_stream_tables WHERE pgt_name = %s", (name,)
    ).fetchone()
    assert found is not None
    return found[0], found[1]


def delta_rows(tmp_path: Path, name: str) -> list[tuple[object, ...]]:
    table = DeltaTable(str(tmp_path / "delta" / "public" / name)).to_pyarrow_table()
    return sorted(zip(*(column.to_pylist() for column in table.columns), strict=True))


def target_rows(ticks: Ticks, name: str) -> list[tuple[object, ...]]:
    return sorted(ticks.lab.connection.execute(f"TABLE public.{name}".encode()).fetchall())


@pytest.mark.parametrize("lost", ["nothing", "the Delta table"])
def test_resumed_behind_the_base(make_ticks: Callable[..., Ticks], tmp_path: Path, lost: str) -> None:
    """A stream table is paused, checkpoints pass it, the applier starts again and it is resumed: a full difference.

    Without its Delta table, that one is filled with the rows at the old frontier, which only PostgreSQL has.
    """
    ticks = make_ticks()
    create(ticks, few=FEW, of_b=OF_B)
    ticks.lab.step()
    ticks.run()
    # The frontier of `few` moves on, and Delta has no commit for that.
    ticks.lab.change("b", "UPDATE b SET v = 7 WHERE id = 1")
    ticks.lab.step()
    ticks.run()
    assert ticks.delta_sink.flush() == []
    ticks.lab.connection.execute("SELECT pgtrickle.pause_stream_table('few')")
    ticks.lab.change("a", "INSERT INTO a VALUES (100, 5)")
    ticks.lab.step()
    ticks.run()
    ticks.checkpoint()
    if lost == "the Delta table":
        shutil.rmtree(tmp_path / "delta" / "public" / "few")

    ticks = make_ticks()
    ticks.lab.connection.execute("SELECT pgtrickle.resume_stream_table('few')")
    ticks.lab.change("a", "DELETE FROM a WHERE id = 2")
    ticks.lab.change("b", "UPDATE b SET v = 8 WHERE id = 1")
    ticks.lab.step()
    ticks.run()
    assert ticks.lab.differences("few", FEW) == 0 and ticks.lab.differences("of_b", OF_B) == 0
    last = ticks.lab.connection.execute(
        "SELECT action, refresh_reason FROM pgtrickle.get_refresh_history('few', 1)"
    ).fetchone()
    assert last == ("FULL", "HISTORY_GONE")
    assert ticks.delta_sink.flush() == []
    assert delta_rows(tmp_path, "few") == target_rows(ticks, "few")
    ticks.assert_all_closed()


def test_an_unexpected_error_of_one_computation(
    make_ticks: Callable[..., Ticks], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ticks = make_ticks(max_errors=2)
    create(ticks, few=FEW, many=MANY, of_b=OF_B)
    ticks.lab.step()
    ticks.run_with_long()
    real = compute_module.compute

    def compute(spark: Any, table: StreamTable, *rest: Any, **named: Any) -> Any:
        return raise_secret() if table.table.name in ("few", "many") else real(spark, table, *rest, **named)

    monkeypatch.setattr(computer_module, "compute", compute)
    change(ticks)
    ticks.run()
    # It is tried again after a pause, and then suspended.
    assert set(ticks.statuses().values()) == {"ACTIVE"} and ticks.lab.differences("of_b", OF_B) == 0
    time.sleep(0.6)
    change(ticks)
    ticks.run()
    assert ticks.statuses() == {"few": "SUSPENDED", "many": "SUSPENDED", "of_b": "ACTIVE"}
    assert ticks.lab.differences("of_b", OF_B) == 0
    code, message = error_of(ticks, "few")
    assert code == "UnexpectedFailure" and "pyarrow.lib.ArrowInvalid" in message and "secret" not in message
    assert "secret" not in caplog.text
    monkeypatch.setattr(computer_module, "compute", real)
    for name in ("few", "many"):
        ticks.lab.connection.execute("SELECT pgtrickle.resume_stream_table(%s)", (name,))
    ticks.run_with_long()
    assert differences(ticks) == 0
    ticks.delta_sink.flush()
    ticks.assert_all_closed()


def test_an_unexpected_error_of_one_write(make_ticks: Callable[..., Ticks], monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = make_ticks()
    create(ticks, few=FEW, of_b=OF_B)
    ticks.lab.step()
    ticks.run()
    real = PostgresSink.apply

    def apply(self: PostgresSink, table: StreamTable, *rest: Any) -> None:
        if table.table.name == "few":
            raise_secret()
        real(self, table, *rest)

    monkeypatch.setattr(PostgresSink, "apply", apply)
    change(ticks)
    ticks.run()
    assert ticks.statuses() == {"few": "SUSPENDED", "of_b": "ACTIVE"} and ticks.lab.differences("of_b", OF_B) == 0
    assert error_of(ticks, "few")[0] == "UnexpectedFailure" and "secret" not in error_of(ticks, "few")[1]
    ticks.delta_sink.flush()
    ticks.assert_all_closed()


def test_an_unexpected_error_of_one_plan(make_ticks: Callable[..., Ticks], monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = make_ticks()
    create(ticks, few=FEW, of_b=OF_B)
    ticks.lab.step()
    real = plan_query.plan_analyzed

    def plan_analyzed(connection: Any, analyzed: Any, *rest: Any) -> PlannedQuery:
        if "sum" in analyzed.query:
            raise RecursionError("a secret")
        return real(connection, analyzed, *rest)

    monkeypatch.setattr(plan_stream_table, "plan_analyzed", plan_analyzed)
    ticks.run()
    assert ticks.statuses() == {"few": "ACTIVE", "of_b": "SUSPENDED"} and ticks.lab.differences("few", FEW) == 0
    code, message = error_of(ticks, "of_b")
    assert code == "UnexpectedFailure" and "RecursionError" in message and "secret" not in message


def test_a_service_that_was_away_for_a_long_refresh(
    make_ticks: Callable[..., Ticks], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tick that takes its outcome writes the others before it is repeated."""
    ticks = make_ticks()

    def run(*_: object) -> Any:
        raise Infrastructure("the server is away")

    monkeypatch.setattr(FullInPostgres, "run", run)
    connection = ticks.lab.connection
    connection.execute("CREATE MATERIALIZED VIEW mv AS SELECT 1 AS x")
    connection.execute("SELECT pgtrickle.create_stream_table('one', 'SELECT x FROM mv', refresh_mode => 'FULL')")
    create(ticks, of_b=OF_B)
    ticks.lab.step()
    ticks.run()
    ticks.wait_for_long()
    change(ticks)
    with pytest.raises(Infrastructure, match="away"):
        ticks.run()
    assert ticks.lab.differences("of_b", OF_B) == 0
    assert ticks.statuses() == {"one": "INITIALIZING", "of_b": "ACTIVE"}


def test_a_query_whose_planning_ended_the_process(make_ticks: Callable[..., Ticks]) -> None:
    ticks = make_ticks()
    create(ticks, few=FEW, of_b=OF_B)
    ticks.lab.step()
    store = ticks.failures.catalog.stream_tables
    (of_b,) = (row.pgt_id for row in store.all() if row.pgt_name == "of_b")
    # As two starts leave it that were killed while they planned.
    assert (store.begin_plan(of_b), store.begin_plan(of_b)) == (0, 1)
    ticks.run()
    assert ticks.statuses() == {"few": "ACTIVE", "of_b": "SUSPENDED"}
    code, message = error_of(ticks, "of_b")
    assert code == "PlanningCrashed" and "ended 2 times while it planned" in message
    ticks.lab.connection.execute("SELECT pgtrickle.resume_stream_table('of_b')")
    ticks.run()
    assert ticks.statuses()["of_b"] == "ACTIVE" and ticks.lab.differences("of_b", OF_B) == 0
    left = ticks.lab.connection.execute("SELECT count(*) FROM pgtrickle.pgt_plans WHERE plan ? 'unfinished_plans'")
    assert left.fetchone() == (0,)


def test_a_computation_that_ended_the_process(make_ticks: Callable[..., Ticks]) -> None:
    """It is tried again some times, alone, then put out of service; those that began beside it are not."""
    ticks = make_ticks()
    connection, store = ticks.lab.connection, ticks.failures.catalog.stream_tables
    create(ticks, few=FEW, of_b=OF_B)
    ticks.lab.step()
    ticks.run()
    ids = {row.pgt_name: row.pgt_id for row in store.all()}
    assert [store.unfinished_fills(pgt_id) for pgt_id in ids.values()] == [0, 0]
    # As starts leave it that were killed while they computed both, and then one of them alone.
    for name, ends in (("few", 1), ("of_b", fills.MAX_UNFINISHED_FILLS)):
        for _ in range(ends):
            store.begin_fill(ids[name])
        connection.execute("SELECT pgtrickle.reinitialize_stream_table(%s)", (name,))
    change(ticks)
    ticks.run()
    code, message = error_of(ticks, "of_b")
    assert code == "FillCrashed" and "ended 3 times while it computed" in message
    assert ticks.statuses() == {"few": "ACTIVE", "of_b": "SUSPENDED"} and ticks.lab.differences("few", FEW) == 0
    connection.execute("SELECT pgtrickle.resume_stream_table('of_b')")
    change(ticks)
    ticks.run_with_long()
    ticks.run_with_long()
    assert ticks.statuses()["of_b"] == "ACTIVE" and ticks.lab.differences("of_b", OF_B) == 0
    assert [store.unfinished_fills(pgt_id) for pgt_id in ids.values()] == [0, 0]


def test_computations_that_may_have_ended_the_process_begin_one_by_one(make_ticks: Callable[..., Ticks]) -> None:
    ticks = make_ticks()
    store = ticks.failures.catalog.stream_tables
    create(ticks, many=MANY, few=FEW, of_b=OF_B)
    ticks.lab.step()
    ids = {row.pgt_name: row.pgt_id for row in store.all()}
    ticks.tables.load(store.all())
    for name in ("many", "few"):
        store.begin_fill(ids[name])
    ticks.run()
    assert ticks.computer.is_running(ids["many"]) and ticks.statuses()["few"] == "INITIALIZING"
    assert ticks.statuses()["of_b"] == "ACTIVE"
    assert (store.unfinished_fills(ids["many"]), store.unfinished_fills(ids["few"])) == (2, 1)
    ticks.run_with_long()
    ticks.run()
    assert set(ticks.statuses().values()) == {"ACTIVE"}
    assert [store.unfinished_fills(pgt_id) for pgt_id in ids.values()] == [0, 0, 0]


class Killed(BaseException):
    """The process is gone: nothing catches it, and nothing is cleaned up."""


def small_refresh_that_kills(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    real = compute_module.compute

    def compute(spark: Any, table: StreamTable, *rest: Any, **options: Any) -> Any:
        # What a sink lacked at the start was computed before, and is not what kills.
        if table.table.name == name and sys._getframe(1).f_code.co_name != "recompute":
            raise Killed
        return real(spark, table, *rest, **options)

    monkeypatch.setattr(computer_module, "compute", compute)


def test_a_small_refresh_that_ends_the_process(
    make_ticks: Callable[..., Ticks], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody counts small refreshes until a process has died; then the one that does it is found among the others."""
    ticks = make_ticks()
    connection = ticks.lab.connection
    create(ticks, few=FEW, of_b=OF_B, more="SELECT id, k FROM a")
    ticks.lab.step()
    ticks.run()
    noted = "SELECT xmin::text, pgt_ids FROM pgtrickle.pgt_begun"
    before = connection.execute(noted).fetchall()
    for _ in range(2):
        change(ticks)
        ticks.run()
    assert connection.execute(noted).fetchall() == before, "nothing is written for a small refresh"
    small_refresh_that_kills(monkeypatch, "of_b")
    change(ticks)
    deaths = 0
    while ticks.statuses()["of_b"] == "ACTIVE":
        try:
            for _ in range(6):
                ticks.run()
        except Killed:
            deaths += 1
            assert deaths < 10, ticks.statuses()
            ticks = make_ticks()
    assert deaths == 2 + fills.MAX_UNFINISHED_FILLS, "one that nobody watched, one that watched, and three tries"
    code, message = error_of(ticks, "of_b")
    assert code == "FillCrashed" and "ended 3 times while it computed" in message
    assert ticks.statuses() == {"few": "ACTIVE", "of_b": "SUSPENDED", "more": "ACTIVE"}
    for _ in range(2):
        change(ticks)
        ticks.run()
    assert ticks.lab.differences("few", FEW) == 0 and ticks.lab.differences("more", "SELECT id, k FROM a") == 0
    monkeypatch.undo()
    connection.execute("SELECT pgtrickle.resume_stream_table('of_b')")
    ticks.run()
    assert set(ticks.statuses().values()) == {"ACTIVE"} and ticks.lab.differences("of_b", OF_B) == 0
    ticks.run()
    left = connection.execute("SELECT count(*) FROM pgtrickle.pgt_plans WHERE plan ? 'unfinished_fills'").fetchone()
    assert left == (0,) and connection.execute("SELECT pgt_ids FROM pgtrickle.pgt_begun").fetchone() == ([],)


def test_small_refreshes_are_noted_only_after_a_death_and_for_some_time(make_ticks: Callable[..., Ticks]) -> None:
    ticks = make_ticks()
    create(ticks, few=FEW)
    ticks.lab.step()
    ticks.run()
    (few,) = ticks.tables.planned
    begun = "SELECT pgt_ids FROM pgtrickle.pgt_begun"

    def of_the_next_tick() -> list[object]:
        change(ticks)
        ticks.run()
        return ticks.lab.connection.execute(begun).fetchall()

    assert of_the_next_tick() == [([],)]
    # The process is killed, and so is the one after it, when nothing was computed.
    for _ in range(2):
        ticks = make_ticks()
        assert of_the_next_tick() == [([few],)]
        ticks.run()
        assert ticks.lab.connection.execute(begun).fetchall() == [([],)]
    ticks.failures.fills.clock = lambda: time.monotonic() + fills.WATCH_S
    assert of_the_next_tick() == [([],)]
    # It ends by itself.
    ticks.failures.fills.end_all()
    assert ticks.lab.connection.execute(begun).fetchall() == []
    ticks = make_ticks()
    assert of_the_next_tick() == [([],)]


@pytest.mark.parametrize("happens", ["pause", "suspension"])
def test_what_happens_during_a_repair_stays(make_ticks: Callable[..., Ticks], happens: str) -> None:
    ticks = make_ticks()
    create(ticks, many=MANY)
    ticks.lab.step()
    ticks.run_with_long()
    connection = ticks.lab.connection
    connection.execute("SELECT pgtrickle.reinitialize_stream_table('many')")
    change(ticks)
    ticks.run()
    assert ticks.computer.long_refreshes.has_any
    [many] = ticks.tables.planned.values()
    if happens == "pause":
        connection.execute("SELECT pgtrickle.pause_stream_table('many')")
    else:
        ticks.failures.catalog.stream_tables.suspend(many.id, TargetDiverged("its Delta table has other rows"))
    ticks.wait_for_long()
    ticks.run()
    ticks.wait_for_writes()
    ticks.run()
    # The rows are discarded, and the request stays: it is carried out after the resume.
    requests = connection.execute("SELECT count(*) FROM pgtrickle.pgt_reinitializations").fetchone()
    assert (ticks.statuses(), requests) == ({"many": "PAUSED" if happens == "pause" else "SUSPENDED"}, (1,))
    if happens == "suspension":
        assert error_of(ticks, "many")[0] == "TargetDiverged"
    connection.execute("SELECT pgtrickle.resume_stream_table('many')")
    change(ticks)
    ticks.run_with_long()
    assert ticks.statuses() == {"many": "ACTIVE"} and ticks.lab.differences("many", MANY) == 0


class PanicException(BaseException):
    """As delta-rs raises it."""


@pytest.mark.parametrize("error", [pa.ArrowInvalid("cannot convert 'a secret'"), PanicException("a secret")])
def test_an_unexpected_error_of_one_delta_table(
    make_ticks: Callable[..., Ticks], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: BaseException
) -> None:
    ticks = make_ticks()
    create(ticks, few=FEW, of_b=OF_B)
    ticks.lab.step()
    ticks.run()
    maintenance = ticks.maintenance()
    maintenance.flush_delta()
    real = DeltaSink._merge

    def merge(self: DeltaSink, table: StreamTable, *rest: Any) -> None:
        if table.table.name == "few":
            raise error
        real(self, table, *rest)

    monkeypatch.setattr(DeltaSink, "_merge", merge)
    change(ticks)
    ticks.run()
    maintenance.flush_delta()
    assert ticks.statuses() == {"few": "SUSPENDED", "of_b": "ACTIVE"}
    code, message = error_of(ticks, "few")
    assert code == "UnexpectedFailure" and type(error).__name__ in message and "secret" not in message
    assert delta_rows(tmp_path, "of_b") == target_rows(ticks, "of_b")
    monkeypatch.undo()
    ticks.lab.connection.execute("SELECT pgtrickle.resume_stream_table('few')")
    change(ticks)
    ticks.run_with_long()
    maintenance.flush_delta()
    assert set(ticks.statuses().values()) == {"ACTIVE"}
    assert delta_rows(tmp_path, "few") == target_rows(ticks, "few")
    ticks.assert_all_closed()
