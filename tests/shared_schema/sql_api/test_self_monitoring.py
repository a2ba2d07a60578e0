"""Self-monitoring by SQL alone: what is made and dropped, who may read the history, what is said of slow refreshes."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from psycopg import errors

from applier.catalog.beats import BeatStore
from applier.catalog.database import Database
from applier.catalog.install import install_catalog, uninstall_catalog

Connection = psycopg.Connection[tuple[object, ...]]

NAMES = ["pgtrickle.df_efficiency", "pgtrickle.df_anomaly", "pgtrickle.df_failures", "pgtrickle.df_freshness"]

STREAMED = (
    "SELECT EXISTS (SELECT FROM pg_publication_tables WHERE tablename = 'pgt_refresh_history'),"
    " (SELECT relreplident FROM pg_class WHERE oid = 'pgtrickle.pgt_refresh_history'::regclass)"
)
SETUP, TEARDOWN = (
    "SELECT * FROM pgtrickle.setup_self_monitoring()",
    "SELECT * FROM pgtrickle.teardown_self_monitoring()",
)


@pytest.fixture
def db(database: str) -> Iterator[Connection]:
    with psycopg.connect(database, autocommit=True) as connection:
        install_catalog(connection)
        connection.execute("CREATE TABLE monitored_source (id int PRIMARY KEY)")
        connection.execute("SELECT pgtrickle.create_stream_table('monitored', 'SELECT id FROM monitored_source')")
        yield connection


def rows(db: Connection, query: str, *arguments: object) -> list[tuple[object, ...]]:
    return db.execute(query.encode(), arguments or None).fetchall()


def test_it_is_made_once_and_leaves_nothing(db: Connection) -> None:
    status = "SELECT name, status FROM pgtrickle.self_monitoring_status()"
    before = rows(db, STREAMED)
    assert before == [(False, "d")] and rows(db, status) == [(name, "NOT SET UP") for name in NAMES]
    assert rows(db, SETUP) == [(name, "created") for name in NAMES]
    assert rows(db, STREAMED) == [(True, "f")]
    assert rows(db, status) == [(name, "INITIALIZING") for name in NAMES]
    db.execute("SELECT pgtrickle.drop_stream_table('pgtrickle.df_failures')")
    assert rows(db, SETUP) == [(name, "created" if name == NAMES[2] else "exists") for name in NAMES]
    assert rows(db, TEARDOWN) == [(name, "dropped") for name in reversed(NAMES)]
    assert rows(db, STREAMED) == before and rows(db, TEARDOWN) == []
    assert rows(db, "SELECT pgt_name FROM pgtrickle.pgt_stream_tables") == [("monitored",)]
    assert rows(db, SETUP) == [(name, "created") for name in NAMES]


@pytest.mark.parametrize("source", ["pgt_refresh_history", "df_efficiency"])
def test_no_other_stream_table_may_be_made_from_it(db: Connection, source: str) -> None:
    db.execute(SETUP)
    query = f"SELECT pgt_id, count(*) AS n FROM pgtrickle.{source} GROUP BY pgt_id"
    with pytest.raises(errors.WrongObjectType, match=f"over pgtrickle.{source} would refresh itself without end"):
        db.execute("SELECT pgtrickle.create_stream_table('looped', %s)", (query,))
    with pytest.raises(errors.WrongObjectType, match="without end"):
        db.execute("SELECT pgtrickle.alter_stream_table('monitored', %s)", (query,))
    assert rows(db, "SELECT to_regclass('looped')") == [(None,)]


def test_without_it_the_history_is_in_no_stream(db: Connection) -> None:
    query = "SELECT pgt_id, count(*) AS n FROM pgtrickle.pgt_refresh_history GROUP BY pgt_id"
    with pytest.raises(errors.WrongObjectType, match="without end"):
        db.execute("SELECT pgtrickle.create_stream_table('looped', %s)", (query,))
    # PostgreSQL reads it on a schedule, as any table that is not captured.
    db.execute("SELECT pgtrickle.create_stream_table('counted', %s, refresh_mode => 'FULL')", (query,))
    kinds = "SELECT source_type FROM pgtrickle.pgt_dependencies WHERE source_name = 'pgt_refresh_history'"
    assert rows(db, kinds) == [("UNCAPTURED",)] and rows(db, STREAMED) == [(False, "d")]


def test_where_it_is_impossible_it_says_so(db: Connection) -> None:
    db.execute("CREATE ROLE monitoring_guest; GRANT USAGE ON SCHEMA pgtrickle TO monitoring_guest")
    db.execute("GRANT SELECT ON ALL TABLES IN SCHEMA pgtrickle TO monitoring_guest")
    with pytest.raises(errors.InsufficientPrivilege, match="right to create tables") as refused, db.transaction():
        db.execute("SET LOCAL ROLE monitoring_guest")
        db.execute(SETUP)
    assert "Call it as a member of" in str(refused.value.diag.message_hint)
    db.execute("DROP PUBLICATION pg_trickle; CREATE PUBLICATION pg_trickle FOR ALL TABLES")
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match="has all tables"):
        db.execute(SETUP)
    db.execute("DROP PUBLICATION pg_trickle; SELECT pgtrickle.set_setting('sources_elsewhere', 'true')")
    db.execute(
        "INSERT INTO pgtrickle.pgt_settings_in_use"
        " VALUES ('pg-trickle-applier', 'sources_elsewhere', 'true', 'setting')"
    )
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match="sources are in another database"):
        db.execute(SETUP)
    assert rows(db, "SELECT count(*) FROM pgtrickle.pgt_stream_tables") == [(1,)]
    db.execute("DROP OWNED BY monitoring_guest; DROP ROLE monitoring_guest")


def test_readers_of_the_history_may_read_them_and_it_is_uninstalled(db: Connection) -> None:
    db.execute("CREATE ROLE monitoring_reader; GRANT USAGE ON SCHEMA pgtrickle TO monitoring_reader")
    db.execute("GRANT SELECT ON ALL TABLES IN SCHEMA pgtrickle TO monitoring_reader")
    db.execute(SETUP)
    with db.transaction(force_rollback=True):
        db.execute("SET LOCAL ROLE monitoring_reader")
        assert [rows(db, f"SELECT count(*) FROM {name}") for name in NAMES] == [[(0,)]] * len(NAMES)
    db.execute("SELECT pgtrickle.drop_stream_table('monitored')")
    assert "schema pgtrickle" in uninstall_catalog(db)
    assert rows(db, "SELECT to_regnamespace('pgtrickle')") == [(None,)]
    db.execute("DROP OWNED BY monitoring_reader; DROP ROLE monitoring_reader")


def test_health_advice_and_the_watch_know_slow_refreshes(db: Connection, database: str) -> None:
    found = "SELECT severity, detail FROM pgtrickle.health_check() WHERE check_name = 'slow_refreshes'"
    assert rows(db, found) == []
    slow = "SELECT slow_refreshes FROM pgtrickle.df_threshold_advice WHERE name = 'public.monitored'"
    counted = "SELECT r -> 'slow_refreshes', r ->> 'reason' FROM pgtrickle.recommend_schedule('monitored') r"
    assert rows(db, slow) == [(None,)] and rows(db, counted)[0][0] is None
    db.execute(SETUP)
    assert rows(db, slow) == [(0,)]
    own = Database(database)
    store = BeatStore(own, "pg_trickle")
    assert rows(db, found) == [("OK", "no refresh of the last hour took unusually long")]
    assert all(read.slow_refresh_id is None for read in store.watched())
    db.execute("ALTER TABLE pgtrickle.df_anomaly DISABLE TRIGGER pgt_refuse_dml")
    for refresh_id, took_ms, age in ((1, 5000, "2 h"), (3, 9000, "1 min"), (2, 7000, "2 min")):
        db.execute(
            "INSERT INTO pgtrickle.df_anomaly (refresh_id, pgt_id, action, start_time, took_ms, mean_ms)"
            " SELECT %s, pgt_id, 'FULL', clock_timestamp() - %s::interval, %s, 100 FROM pgtrickle.pgt_stream_tables"
            " WHERE pgt_name = 'monitored'",
            (refresh_id, age, took_ms),
        )
        # The first one is too old.
        assert rows(db, found)[0][0] == ("OK" if refresh_id == 1 else "WARNING")
    assert rows(db, slow) == [(2,)], "the first one is before prediction_window"
    db.execute(
        "INSERT INTO pgtrickle.pgt_refresh_history (pgt_id, start_time, end_time, action, refresh_reason, rows_in,"
        " rows_inserted, rows_deleted, compute_ms, write_ms, tick_watermark_lsn, status)"
        " SELECT pgt_id, clock_timestamp() - interval '3 h', clock_timestamp(), 'DIFFERENTIAL', 'INCREMENTAL', 1, 1, 0,"
        " 80, 20, '0/1', 'COMPLETED' FROM pgtrickle.pgt_stream_tables, generate_series(1, 20) i"
        " WHERE pgt_name = 'monitored'"
    )
    assert rows(db, counted) == [
        (
            3,
            "a refresh usually takes at most 100 ms (median and three deviations);"
            " 3 took over four times as long as others: pgtrickle.df_anomaly",
        )
    ]
    ((severity, detail),) = rows(db, found)
    assert severity == "WARNING" and "public.monitored: 9000 ms at" in str(detail) and "5000" not in str(detail)
    watched = {read.pgt_name: (read.slow_refresh_id, read.slow_refresh_ms) for read in store.watched()}
    assert watched.pop("monitored") == (3, 9000) and set(watched.values()) == {(None, None)}
    own.close()
