"""Costs in the history: the model that a restart finds, the same line in SQL, and what is recommended from it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from applier.catalog.beats import BeatStore
from applier.catalog.database import Database
from applier.catalog.history import History, HistoryRow, RefreshExecution, record_refresh
from applier.catalog.install import install_catalog
from applier.refresh.method.cost_cache import model_of
from applier.refresh.method.cost_model import SAMPLES_OF_SIZE, CostModel, FullCost, PredictionLimits, fit_line
from applier.refresh.method.strategy import NEW_CONTENT, RefreshReason
from shared_schema.lsn import Lsn, LsnRange

Connection = psycopg.Connection[tuple[object, ...]]
LIMITS = PredictionLimits()


@pytest.fixture
def db(database: str) -> Iterator[Connection]:
    with psycopg.connect(database, autocommit=True) as connection:
        install_catalog(connection)
        connection.execute("CREATE TABLE cost_source (id int PRIMARY KEY)")
        connection.execute("SELECT pgtrickle.create_stream_table('costly', 'SELECT id FROM cost_source')")
        yield connection


def the_id(db: Connection) -> int:
    row = db.execute("SELECT pgt_id FROM pgtrickle.pgt_stream_tables WHERE pgt_name = 'costly'").fetchone()
    assert row is not None
    return int(str(row[0]))


def record(
    db: Connection,
    action: str,
    changes: int,
    took: tuple[float, float],
    *,
    reason: str = "INCREMENTAL",
    ago: timedelta = timedelta(minutes=1),
    source_rows: int = 100_000,
    error: str | None = None,
) -> None:
    started = datetime.now(UTC) - ago
    executed = RefreshExecution(action, reason, "", "SCHEDULER", started, changes, took[0], source_rows=source_rows)
    with db.cursor() as cursor:
        record_refresh(cursor, HistoryRow(the_id(db), executed, 1, 0, took[1], LsnRange(Lsn(1), Lsn(2))), error)


def record_line(db: Connection) -> None:
    for n in range(1, 13):
        record(db, "DIFFERENTIAL", n * 1_000, (100 + n * 100 + n % 3, 20 + n * 10), ago=timedelta(seconds=100 - n))
    record(db, "DIFFERENTIAL", 5_500, (60_000, 75))


def load(database: str, db: Connection) -> CostModel:
    return model_of(History(Database(database)).read_costs(the_id(db), LIMITS.window))


def test_a_restart_keeps_the_model(database: str, db: Connection) -> None:
    record(db, "FULL", 0, (300, 100), reason="INITIAL", ago=timedelta(days=2), source_rows=50_000)
    record_line(db)
    model = load(database, db)
    assert [one.changes for one in model.differentials] == [n * 1_000 for n in range(1, 13)] + [5_500]
    found = model.predict(20_000, 100_000, datetime.now(UTC), LIMITS)
    assert found is not None and found.samples == 13
    assert found.differential_ms == pytest.approx(100 + 2_000 + 20 + 200, rel=0.02)
    assert found.full_ms == pytest.approx(800), "twice the rows of the fill, which is older than the window"


def test_only_what_was_executed_counts(database: str, db: Connection) -> None:
    record(db, "DIFFERENTIAL", 9, (1, 1), ago=timedelta(minutes=61))
    record(db, "DIFFERENTIAL", 8, (1, 1), error="failed")
    record(db, "FULL", 8, (1, 1), reason="REPAIR")
    record(db, "FULL_IN_POSTGRES", 8, (1, 1), reason="QUERY_REFUSED")
    assert load(database, db) == CostModel()
    record(db, "DIFFERENTIAL", 7, (1, 1))
    for took in (1, 2, 3, 4):
        record(db, "FULL", 7, (took, 1), reason="MEASURED_COST", ago=timedelta(seconds=50 - took))
    model = load(database, db)
    assert len(model.differentials) == 1 and [full.took_ms for full in model.fulls] == [3, 4, 5]


def test_what_was_measured_before_all_rows_were_new_does_not_count(database: str, db: Connection) -> None:
    assert {reason.value for reason in NEW_CONTENT} == {
        reason.value
        for reason in RefreshReason
        if db.execute("SELECT pgtrickle._is_new_content(%s)", (reason.value,)).fetchone() == (True,)
    }
    for reason in NEW_CONTENT:
        record(db, "DIFFERENTIAL", 7, (1, 1))
        record(db, "FULL", 0, (9, 9), reason=reason.value)
        assert load(database, db) == CostModel.of([], [FullCost(18, 100_000)])
        assert History(Database(database)).read_recent(9) == [(the_id(db), "FULL", 18)]
    assert recommend(db)["samples"] == 0
    record(db, "DIFFERENTIAL", 7, (1, 1))
    assert len(load(database, db).differentials) == 1 and recommend(db)["samples"] == 1
    # As by the exchange for a table with other columns: the history stays, its times do not count.
    db.execute("UPDATE pgtrickle.pgt_refresh_history SET of_replaced = true")
    assert load(database, db) == CostModel() and History(Database(database)).read_recent(9) == []


def test_the_large_ones_are_read_too_and_of_each_size_the_newest(database: str, db: Connection) -> None:
    many = [(n % 9 + 1, float(n)) for n in range(200)]
    for changes, took in [(50_000, 1.0), *many]:
        record(db, "DIFFERENTIAL", changes, (took, 1), ago=timedelta(seconds=300 - took))
    read = History(Database(database)).read_costs(the_id(db), LIMITS.window)
    assert [one.rows for one in read].count(50_000) == 1
    newest = [took for changes, took in many if changes in (4, 5, 6, 7)][-SAMPLES_OF_SIZE:]
    assert [one.compute_ms for one in read if one.rows in (4, 5, 6, 7)] == newest


def test_the_line_is_the_same_in_sql(db: Connection) -> None:
    record_line(db)
    rows = [n * 1_000 for n in range(1, 13)] + [5_500]
    line = fit_line(rows, [100 + n * 100 + n % 3 for n in range(1, 13)] + [60_000])
    assert line is not None and line.slope == pytest.approx(0.1, rel=0.01)
    found = db.execute("SELECT compute_slope, write_slope, samples FROM pgtrickle.df_threshold_advice").fetchone()
    assert found is not None and found[0] == pytest.approx(line.slope) and found[1] == pytest.approx(0.01)
    chance = random.Random(7)
    for samples in (*range(1, 9), *range(3, 9), *range(3, 9), *[40] * 9):
        largest = [900 if chance.random() < 0.9 else 50_000 for _ in range(samples)]
        rows = [chance.randint(1, most if samples > 9 else 50_000) for most in largest]
        took = [
            (9.0 if chance.random() < (0.1 if samples > 9 else 0.3) else chance.uniform(0.8, 1.2)) * (50 + n * 0.1)
            for n in rows
        ]
        fitted = fit_line(rows, took)
        found = db.execute(
            "SELECT slope, intercept, r2 FROM pgtrickle._cost_line(%s::float8[], %s)", (rows, took)
        ).fetchone()
        expected = (None,) * 3 if fitted is None else (fitted.slope, fitted.intercept, fitted.r2)
        assert found == pytest.approx(expected), (rows, took)
    undefined = db.execute("SELECT slope, is_line FROM pgtrickle._cost_line('{5,5}', '{1,2}')").fetchone()
    assert undefined == (None, False)


def advice(db: Connection) -> tuple[object, ...]:
    row = db.execute("SELECT break_even_rows, advised_threshold, advice FROM pgtrickle.df_threshold_advice").fetchone()
    assert row is not None
    return row


def recommended(db: Connection) -> tuple[object, ...]:
    row = db.execute("SELECT current_mode, recommended_mode, reason FROM pgtrickle.recommend_refresh_mode('costly')")
    return row.fetchall()[0]


def test_advice_follows_the_figures(db: Connection) -> None:
    assert advice(db)[2] == "none yet: 0 of 5 differential refreshes within prediction_window"
    assert recommended(db)[1:] == (
        "AUTO",
        "not known yet: 0 of 5 differential refreshes within prediction_window, no full refresh",
    )
    record_line(db)
    assert advice(db)[2] == "none: no full refresh was measured"
    record(db, "FULL", 0, (400, 400), reason="CHANGE_RATIO")
    even, advised, said = advice(db)
    # 1.5 * 800 ms = 121 ms + 0.11 ms per row.
    assert even == pytest.approx(9_800, rel=0.02) and (advised, said) == (0.1, "lower: auto_threshold => 0.1")
    assert recommended(db)[:2] == ("AUTO", "AUTO") and "cheaper from 9" in str(recommended(db)[2])
    db.execute("SELECT pgtrickle.alter_stream_table('costly', auto_threshold => 0.1)")
    assert advice(db)[2] == "keep: auto_threshold 0.1"
    for _ in range(3):
        record(db, "FULL", 0, (100, 100), reason="CHANGE_RATIO")
    assert recommended(db)[1] == "FULL"
    for _ in range(3):
        record(db, "FULL", 0, (90_000, 1), reason="CHANGE_RATIO")
    assert recommended(db)[1] == "DIFFERENTIAL" and advice(db)[2] == "raise: auto_threshold => 1"
    db.execute("SELECT pgtrickle.alter_stream_table('costly', refresh_mode => 'FULL')")
    assert advice(db)[2] == "none: the refresh mode is FULL"


def recommend(db: Connection) -> dict[str, object]:
    row = db.execute("SELECT pgtrickle.recommend_schedule('costly')").fetchone()
    assert row is not None and isinstance(row[0], dict)
    return row[0]


def test_a_schedule_that_refreshes_fit_into(db: Connection) -> None:
    for n in range(19):
        record(db, "DIFFERENTIAL", 10, (3_900 + 10 * n, 10))
    found = recommend(db)
    assert found["recommended_schedule"] is None
    assert found["reason"] == "not known yet: 19 of 20 refreshes (schedule_recommendation_min_samples)"
    # A single one that took long moves neither the median nor the deviation.
    record(db, "DIFFERENTIAL", 10, (900_000, 10))
    found = recommend(db)
    assert (found["current_schedule"], found["recommended_schedule"], found["samples"]) == ("1s", "7s", 20)
    # Where some of ten take long, the median and the deviation are those of the others.
    for _ in range(4):
        record(db, "DIFFERENTIAL", 10, (25_000, 10))
    found = recommend(db)
    assert found["recommended_schedule"] == "26s" and "takes more than 25010 ms" in str(found["reason"])


@pytest.mark.parametrize(("took_ms", "schedule"), [(3.0, "1s"), (70_000_000.0, "86400s"), (90_000_000.0, "90000s")])
def test_a_recommended_schedule_has_bounds(db: Connection, took_ms: float, schedule: str) -> None:
    for _ in range(20):
        record(db, "DIFFERENTIAL", 10, (took_ms, 0))
    assert recommend(db)["recommended_schedule"] == schedule


def test_modes_are_recommended_for_one_or_for_all(db: Connection) -> None:
    db.execute("SELECT pgtrickle.create_stream_table('another', 'SELECT id FROM cost_source')")
    call = "SELECT stream_table, recommended_mode FROM pgtrickle.recommend_refresh_mode({})"
    both = [("public.another", "AUTO"), ("public.costly", "AUTO")]
    assert [db.execute(call.format(given).encode()).fetchall() for given in ("", "NULL")] == [both, both]
    assert db.execute(call.format("'costly'").encode()).fetchall() == both[1:]
    with pytest.raises(psycopg.errors.UndefinedTable, match="no stream table"):
        db.execute("SELECT * FROM pgtrickle.recommend_refresh_mode('nowhere')")


def test_the_applier_shows_its_counters(database: str, db: Connection) -> None:
    shown = "SELECT value FROM pgtrickle.scheduler_diagnostics()"
    assert db.execute(shown).fetchall() == [(256,), (None,), (None,), (None,)]
    counters = {"cost_cache_entries": 2, "cost_cache_hits": 7, "cost_cache_misses": 3}
    BeatStore(Database(database), "pg_trickle", lambda: counters).write("", None)
    assert db.execute(shown).fetchall() == [(256,), (2,), (7,), (3,)]
