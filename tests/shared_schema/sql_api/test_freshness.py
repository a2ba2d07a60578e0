"""Staleness and silence by SQL alone: the rows that the programs write are written here by hand."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from applier.catalog.install import install_catalog
from shared_schema.beats import SILENT_AFTER_S

Connection = psycopg.Connection[tuple[object, ...]]


@pytest.fixture
def db(database: str) -> Iterator[Connection]:
    with psycopg.connect(database, autocommit=True) as connection:
        install_catalog(connection)
        connection.execute("CREATE TABLE t (id int PRIMARY KEY)")
        connection.execute("SELECT pgtrickle.create_stream_table('st', 'SELECT id FROM t')")
        connection.execute("UPDATE pgtrickle.pgt_stream_tables SET status = 'ACTIVE'")
        yield connection


def frontier(db: Connection, at: str, ago_s: float | None) -> None:
    """Store a frontier of the stream table that was complete so long ago."""
    db.execute("DELETE FROM pgtrickle.pgt_frontiers")
    db.execute(
        "INSERT INTO pgtrickle.pgt_frontiers (pgt_id, frontier, complete_until, refreshed_at) SELECT pgt_id,"
        " %s::pg_lsn, clock_timestamp() - make_interval(secs => %s), now() FROM pgtrickle.pgt_stream_tables",
        (at, ago_s),
    )


def consumer(
    db: Connection,
    at: str,
    ago_s: float,
    earlier: tuple[str | None, float | None] = (None, None),
    beat_ago_s: float = 0,
) -> None:
    """Write a beat of the consumer: whoever is at `at` is complete until `ago_s` seconds ago."""
    db.execute(
        "INSERT INTO pgtrickle.pgt_consumer_beats AS b VALUES ('pg_trickle', clock_timestamp()"
        " - make_interval(secs => %s), %s::pg_lsn, clock_timestamp() - make_interval(secs => %s), %s::pg_lsn,"
        " clock_timestamp() - make_interval(secs => %s)) ON CONFLICT (slot) DO UPDATE SET beat_at = excluded.beat_at,"
        " frontier = excluded.frontier, complete_until = excluded.complete_until,"
        " earlier_frontier = excluded.earlier_frontier, earlier_complete_until = excluded.earlier_complete_until",
        (beat_ago_s, at, ago_s, *earlier),
    )


def staleness(db: Connection) -> float | None:
    row = db.execute("SELECT pgtrickle.get_staleness('st')").fetchone()
    assert row is not None
    # The same in the status.
    shown = db.execute("SELECT extract(epoch FROM staleness)::float8 FROM pgtrickle.pgt_status()").fetchone()
    assert shown is not None
    if row[0] is None:
        assert shown[0] is None
        return None
    assert isinstance(row[0], float) and isinstance(shown[0], float) and abs(row[0] - shown[0]) < 1
    return row[0]


def health(db: Connection) -> dict[str, tuple[str, str]]:
    rows = db.execute("SELECT check_name, severity, detail FROM pgtrickle.health_check()").fetchall()
    return {str(name): (str(severity), str(detail)) for name, severity, detail in rows}


def test_both_sides_call_the_same_time_silence(db: Connection) -> None:
    found = db.execute("SELECT extract(epoch FROM pgtrickle._silent_after())::float8").fetchone()
    assert found == (SILENT_AFTER_S,)


def test_nothing_is_known_without_beats(db: Connection) -> None:
    assert staleness(db) is None
    frontier(db, "0/100", None)
    assert staleness(db) is None
    assert health(db)["consumer_running"][0] == "WARNING"


def test_whoever_includes_the_last_rows_is_as_complete_as_the_stream(db: Connection) -> None:
    frontier(db, "0/100", 600)
    assert staleness(db) == pytest.approx(600, abs=2)
    consumer(db, "0/100", 0.5)
    assert staleness(db) == pytest.approx(0.5, abs=1)


def test_whoever_lags_is_complete_until_the_first_commit_that_it_lacks(db: Connection) -> None:
    frontier(db, "0/100", 600)
    consumer(db, "0/200", 0, earlier=("0/100", 7))
    assert staleness(db) == pytest.approx(7, abs=1)
    consumer(db, "0/300", 0, earlier=("0/200", 3))
    assert staleness(db) == pytest.approx(600, abs=2)


def test_a_moment_in_the_future_is_not_believed(db: Connection) -> None:
    # The clock was set back by an hour.
    frontier(db, "0/100", -3600)
    assert staleness(db) is None
    consumer(db, "0/100", 0)
    assert staleness(db) == pytest.approx(0, abs=1)
    consumer(db, "0/100", -3600, beat_ago_s=-3600)
    assert staleness(db) is None
    assert health(db)["consumer_running"][0] == "ERROR"
    # A moment: clocks of two machines are not equal to the microsecond.
    consumer(db, "0/100", -0.5)
    assert staleness(db) == 0


def test_sources_elsewhere_are_measured_by_their_own_clock(db: Connection) -> None:
    db.execute(
        "INSERT INTO pgtrickle.pgt_settings_in_use VALUES"
        " ('pg-trickle-applier', 'sources_elsewhere', 'true', 'environment')"
    )
    frontier(db, "0/100", 7200)
    # The source's clock is an hour behind; it is complete until 2 s ago by its clock.
    db.execute(
        "INSERT INTO pgtrickle.pgt_applier_beats (slot, beat_at, heard_at, clock_offset, frontier, complete_until)"
        " VALUES ('pg_trickle', clock_timestamp(), clock_timestamp(), '1 h', '0/100',"
        " clock_timestamp() - interval '1 h 2 s')"
    )
    assert staleness(db) == pytest.approx(2, abs=1)
    assert health(db)["consumer_running"] == ("OK", "the consumer reads the log")
    # A beat that the consumer of another slot of this database wrote does not count.
    consumer(db, "0/100", 0)
    assert staleness(db) == pytest.approx(2, abs=1)
    db.execute("UPDATE pgtrickle.pgt_applier_beats SET heard_at = heard_at - interval '9 s'")
    assert "has not been heard of for 9 s" in health(db)["consumer_running"][1]


def test_a_consumer_that_may_not_write_here_is_heard_through_the_applier(db: Connection) -> None:
    consumer(db, "0/100", 500, beat_ago_s=500)
    frontier(db, "0/100", 600)
    db.execute(
        "INSERT INTO pgtrickle.pgt_applier_beats (slot, beat_at, heard_at, clock_offset, frontier, complete_until)"
        " VALUES ('pg_trickle', clock_timestamp(), clock_timestamp(), '0', '0/100', clock_timestamp())"
    )
    assert health(db)["consumer_running"][0] == "OK"
    assert staleness(db) == pytest.approx(0, abs=1)


def test_what_a_program_reports_about_itself_is_shown(db: Connection) -> None:
    consumer(db, "0/100", 0)
    db.execute("UPDATE pgtrickle.pgt_consumer_beats SET problem = 'no Kafka broker has confirmed a beat for 5 s'")
    assert health(db)["consumer_running"] == ("ERROR", "pg-trickle-cdc: no Kafka broker has confirmed a beat for 5 s")


def test_a_stream_table_far_behind_is_named(db: Connection) -> None:
    frontier(db, "0/100", 600)
    consumer(db, "0/200", 0)
    assert health(db)["stale_tables"] == ("WARNING", "far behind their schedule: public.st")
    consumer(db, "0/100", 0)
    assert health(db)["stale_tables"][0] == "OK"
