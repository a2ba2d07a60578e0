"""SLA and tier as the SQL functions accept, keep and show them, without running binaries."""

from __future__ import annotations

import json
from collections.abc import Iterator

import psycopg
import pytest
from psycopg import errors

from applier.catalog.database import Database
from applier.catalog.history import AssignedPace, History
from applier.catalog.install import install_catalog
from applier.catalog.stream_tables import StreamTableStore
from applier.refresh.timing.tiers import tier_of_sla
from tests.fixtures.postgres import PostgresServer

Connection = psycopg.Connection[tuple[object, ...]]


@pytest.fixture(scope="module")
def url(postgres: PostgresServer) -> Iterator[str]:
    with psycopg.connect(postgres.url, autocommit=True) as server:
        server.execute("CREATE DATABASE sla")
        yield psycopg.conninfo.make_conninfo(postgres.url, dbname="sla")
        server.execute("DROP DATABASE sla (FORCE)")


@pytest.fixture(scope="module")
def db(url: str) -> Iterator[Connection]:
    with psycopg.connect(url, autocommit=True) as connection:
        install_catalog(connection)
        connection.execute("CREATE TABLE orders (id int PRIMARY KEY)")
        connection.execute("SELECT pgtrickle.create_stream_table('st', 'TABLE orders', sla => '30 s')")
        yield connection


def shown(db: Connection) -> tuple[object, ...] | None:
    return db.execute(
        "SELECT freshness_deadline_ms, refresh_tier, tier_by_hand FROM pgtrickle.pgt_stream_tables"
        " WHERE pgt_name = 'st'"
    ).fetchone()


@pytest.mark.parametrize("seconds", [0.001, 1, 5, 5.001, 30, 30.001, 86_400])
def test_sql_and_the_applier_begin_with_the_same_tier(db: Connection, seconds: float) -> None:
    tier = db.execute("SELECT pgtrickle.set_stream_table_sla('st', make_interval(secs => %s))", (seconds,)).fetchone()
    assert tier == (tier_of_sla(seconds * 1000).value,)


def test_an_sla_chooses_the_tier_until_a_person_does(db: Connection) -> None:
    assert db.execute("SELECT pgtrickle.alter_stream_table('st', sla => '20 s')").fetchone() == ("config",)
    assert shown(db) == (20_000, "warm", False)
    db.execute("SELECT pgtrickle.alter_stream_table('st', tier => 'FROZEN')")
    assert shown(db) == (20_000, "frozen", True)
    assert db.execute("SELECT tier FROM pgtrickle.pgt_status() WHERE name = 'public.st'").fetchone() == ("frozen",)
    db.execute("SELECT pgtrickle.alter_stream_table('st', sla => '1 h', tier => 'hot')")
    assert shown(db) == (3_600_000, "hot", True)
    db.execute("SELECT pgtrickle.set_stream_table_sla('st', '1 h')")
    assert shown(db) == (3_600_000, "cold", False)
    assert db.execute("SELECT pgtrickle.set_stream_table_sla('st', NULL)").fetchone() == ("hot",)
    assert shown(db) == (None, "hot", False)


@pytest.mark.parametrize(
    "wrong",
    [
        "sla => '-1 s'",
        "sla => '0'",
        "sla => '11 years'",
        "tier => 'lukewarm'",
        "sla => '9 s', tier => ''",
        "sla => '-1 s', tier => 'hot'",
    ],
)
def test_a_bad_value_is_refused_with_a_hint_and_changes_nothing(db: Connection, wrong: str) -> None:
    before = shown(db)
    with pytest.raises(errors.InvalidParameterValue, match=r"is out of bounds|is not known") as refused:
        db.execute(f"SELECT pgtrickle.alter_stream_table('st', schedule => '7m', {wrong})".encode())
    assert refused.value.diag.message_hint
    assert shown(db) == before
    assert db.execute("SELECT schedule FROM pgtrickle.pgt_stream_tables").fetchall() == [("1s",)]
    if "tier" not in wrong:
        with pytest.raises(errors.InvalidParameterValue, match="is out of bounds") as refused:
            db.execute(f"SELECT pgtrickle.set_stream_table_sla('st', {wrong})".encode())
        assert refused.value.diag.message_hint and shown(db) == before
        with pytest.raises(errors.InvalidParameterValue):
            db.execute(f"SELECT pgtrickle.create_stream_table('other', 'TABLE orders', {wrong})".encode())
        assert db.execute("SELECT to_regclass('other')").fetchone() == (None,)


@pytest.mark.parametrize(
    "options", [{"sla": "-1 s"}, {"sla": "soon"}, {"tier": "tepid"}, {"sla": "9 s", "tear": "hot"}]
)
def test_a_bad_value_for_several_alters_none(db: Connection, options: dict[str, str]) -> None:
    before = shown(db)
    with pytest.raises(
        psycopg.Error, match=r"no stream table was altered, because of public.st: |'tear', which is not known"
    ):
        given = json.dumps({"schedule": "7m"} | options)
        db.execute("SELECT pgtrickle.bulk_alter_stream_tables('{st}', %s)", (given,))
    assert shown(db) == before
    assert db.execute("SELECT schedule FROM pgtrickle.pgt_stream_tables").fetchall() == [("1s",)]


def test_an_assigned_tier_counts_for_its_sla_only(db: Connection, url: str) -> None:
    db.execute("SELECT pgtrickle.set_stream_table_sla('st', '30 s')")
    database = Database(url)
    try:
        store, history = StreamTableStore(database), History(database)
        (stored,) = store.all()
        assert (stored.sla_ms, stored.tier, stored.assigned_tier, stored.interval_stretch) == (30_000, "warm", None, 1)
        history.note_state(stored.pgt_id, "DIFFERENTIAL", "MODE", None)

        def assign() -> None:
            (row,) = store.all()
            history.note_pace(row.pgt_id, AssignedPace("hot", 30_000, 4.0, row.pace_version))
            assert seen() == ("hot", "00:00:30", 4)
            assert [(again.tier, again.interval_stretch) for again in store.all()] == [("hot", 4)]

        def seen() -> tuple[object, ...] | None:
            return db.execute(
                "SELECT tier, sla::text, interval_stretch FROM pgtrickle.pg_stat_stream_tables"
            ).fetchone()

        assign()
        # The same once more changes nothing, and the tier in use is returned.
        assert db.execute("SELECT pgtrickle.set_stream_table_sla('st', '30 s')").fetchone() == ("hot",)
        assert seen() == ("hot", "00:00:30", 4)
        for altered in (
            "set_stream_table_sla('st', '29 s')",
            "set_stream_table_sla('st', NULL)",
            "alter_stream_table('st', tier => 'cold')",
            "alter_stream_table('st', schedule => '1h')",
        ):
            # Also after it is as it was before.
            late = store.all()[0]
            db.execute(f"SELECT pgtrickle.{altered}".encode())
            again = db.execute("SELECT pgtrickle.set_stream_table_sla('st', '30 s')").fetchone()
            assert (again, seen()) == (("warm",), ("warm", "00:00:30", 1)), altered
            # A refresh that began before writes what it found for what was then.
            history.note_pace(late.pgt_id, AssignedPace("hot", 30_000, 4.0, late.pace_version))
            assert seen() == ("warm", "00:00:30", 1)
            assign()
        db.execute("SELECT pgtrickle.alter_stream_table('st', schedule => '1s')")
    finally:
        database.close()


def test_the_summary_counts_breaches_and_what_is_left_of_the_budget(db: Connection) -> None:
    summary = "SELECT name, tier, refreshes, p50_ms, p99_ms < 60000, breaches, error_budget, is_broken FROM"

    def summed() -> list[tuple[object, ...]]:
        return db.execute(f"{summary} pgtrickle.sla_summary()".encode()).fetchall()

    db.execute("SELECT pgtrickle.set_stream_table_sla('st', '10 s')")
    assert summed() == [("public.st", "warm", 0, None, None, 0, 1, False)]
    db.execute(
        "INSERT INTO pgtrickle.pgt_refresh_history (pgt_id, start_time, end_time, action, refresh_reason,"
        " tick_watermark_lsn, status, rows_inserted, rows_deleted, freshness_ms, sla_ms)"
        " SELECT s.pgt_id, now() - make_interval(hours => n / 200 * 30), now(), 'DIFFERENTIAL', 'MODE', '0/1',"
        # The last ones are older than the window, and one refresh failed.
        " CASE n WHEN 7 THEN 'FAILED' ELSE 'COMPLETED' END, 1, 0,"
        " CASE WHEN n IN (5, 7) OR n >= 200 THEN 60000 ELSE n END, 10000"
        " FROM pgtrickle.pgt_stream_tables s, generate_series(0, 210) n"
    )
    expected = ("public.st", "warm", 199, 101.0, True, 1, pytest.approx(1 - 1 / 1.99), False)
    assert summed() == [expected]
    # Another SLA does not judge what was before it, nor does one judge what nothing was promised for.
    db.execute("SELECT pgtrickle.set_stream_table_sla('st', '10 ms')")
    db.execute("UPDATE pgtrickle.pgt_refresh_history SET sla_ms = NULL WHERE freshness_ms BETWEEN 10 AND 20")
    ((_, _, refreshes, _, _, breaches, budget, _),) = summed()
    assert (refreshes, breaches, budget) == (188, 1, pytest.approx(1 - 1 / 1.88))
    # What rests has no refresh that would tell of its age: it counts as one.
    db.execute(
        "INSERT INTO pgtrickle.pgt_frontiers (pgt_id, frontier, complete_until, refreshed_at)"
        " SELECT pgt_id, '0/1', clock_timestamp() - interval '90 s', now() FROM pgtrickle.pgt_stream_tables"
    )
    for rests in ("ACTIVE", "PAUSED", "SUSPENDED"):
        db.execute("UPDATE pgtrickle.pgt_stream_tables SET status = %s", (rests,))
        ((_, _, refreshes, _, _, breaches, budget, is_broken),) = summed()
        assert (refreshes, breaches, budget, is_broken) == (188, 2, 0, True)
    db.execute("UPDATE pgtrickle.pgt_stream_tables SET status = 'ACTIVE', refresh_tier = 'frozen', tier_by_hand = true")
    db.execute("DELETE FROM pgtrickle.pgt_refresh_history")
    assert summed() == [("public.st", "frozen", 0, None, None, 1, 0, True)]
    db.execute("SELECT pgtrickle.set_stream_table_sla('st', NULL)")
    assert db.execute("SELECT * FROM pgtrickle.sla_summary()").fetchall() == []
