"""Schedules, modes and options that the SQL functions accept, without running binaries."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from psycopg import errors

from applier.catalog.install import install_catalog
from applier.refresh.timing.schedule import parse_schedule
from tests.fixtures.postgres import PostgresServer

Connection = psycopg.Connection[tuple[object, ...]]


@pytest.fixture(scope="module")
def db(postgres: PostgresServer) -> Iterator[Connection]:
    with psycopg.connect(postgres.url, autocommit=True) as server:
        server.execute("CREATE DATABASE scheduling")
        with psycopg.connect(postgres.url, dbname="scheduling", autocommit=True) as connection:
            install_catalog(connection)
            connection.execute("CREATE TABLE orders (id int PRIMARY KEY)")
            yield connection
        server.execute("DROP DATABASE scheduling (FORCE)")


@pytest.mark.parametrize(
    "schedule",
    ["1s", "1h30m", "250ms", "continuous", "calculated", "@daily", "*/5 * * * *", "0 3 * * MON", "1,2 * 1-5 * *"],
)
def test_the_applier_reads_every_schedule_that_sql_accepts(db: Connection, schedule: str) -> None:
    db.execute("SELECT pgtrickle._check_schedule(%s)", (schedule,))
    parse_schedule(schedule)


@pytest.mark.parametrize("schedule", ["", "1", "s", "1 s", "-1s", "every day", "* * * *", "1s; DROP TABLE x", None])
def test_what_sql_does_not_accept(db: Connection, schedule: str | None) -> None:
    with pytest.raises(errors.InvalidParameterValue, match="is not understood"):
        db.execute("SELECT pgtrickle._check_schedule(%s)", (schedule,))


def test_options_are_checked_and_stored(db: Connection) -> None:
    db.execute(
        "SELECT pgtrickle.create_stream_table('kept_options', 'TABLE orders', refresh_mode => 'full',"
        " append_only => true, full_policy => 'ERROR', auto_threshold => 0.4)"
    )
    options = "SELECT refresh_mode, append_only, full_policy, auto_threshold FROM pgtrickle.pgt_stream_tables"
    assert db.execute(f"{options} WHERE pgt_name = 'kept_options'".encode()).fetchone() == ("FULL", True, "error", 0.4)
    db.execute("SELECT pgtrickle.alter_stream_table('kept_options', full_policy => 'allow')")
    assert db.execute(f"{options} WHERE pgt_name = 'kept_options'".encode()).fetchone() == ("FULL", True, "allow", 0.4)
    for wrong in ("full_policy => 'maybe'", "auto_threshold => 1.5", "refresh_mode => 'SOMETIMES'"):
        with pytest.raises(errors.InvalidParameterValue):
            db.execute(f"SELECT pgtrickle.alter_stream_table('kept_options', {wrong})".encode())


def test_a_circle_is_refused_with_its_path(db: Connection) -> None:
    for name, query in {"ring_a": "TABLE orders", "ring_b": "TABLE ring_a", "ring_c": "TABLE ring_b"}.items():
        db.execute("SELECT pgtrickle.create_stream_table(%s, %s)", (name, query))
    with pytest.raises(errors.InvalidTableDefinition) as refused:
        db.execute("SELECT pgtrickle.alter_stream_table('ring_a', query => 'SELECT id FROM ring_c')")
    assert "ring_a -> ring_c -> ring_b -> ring_a" in str(refused.value).replace("public.", "")


def test_nothing_drains_when_no_applier_runs(db: Connection) -> None:
    assert db.execute("SELECT pgtrickle.drain(0)").fetchone() == (False,)
    assert db.execute("SELECT pgtrickle.is_drained()").fetchone() == (False,)
    assert db.execute("SELECT count(*) FROM pgtrickle.pgt_drain").fetchone() == (0,)
