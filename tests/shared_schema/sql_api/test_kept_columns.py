"""A stream table that should follow new columns and cannot says why: in health_check(), or to who switches it on."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from applier.catalog.install import install_catalog

Connection = psycopg.Connection[tuple[object, ...]]

EVOLVE = "SELECT pgtrickle._evolve(ARRAY(SELECT pgt_id FROM pgtrickle.pgt_stream_tables))"
HEALTH = "SELECT severity, detail FROM pgtrickle.health_check() WHERE check_name = 'evolution'"


@pytest.fixture
def db(database: str) -> Iterator[Connection]:
    with psycopg.connect(database, autocommit=True) as connection:
        install_catalog(connection)
        connection.execute(
            "CREATE TABLE north (id int PRIMARY KEY, v int); CREATE TABLE south (id int PRIMARY KEY, v int)"
        )
        yield connection


def create(db: Connection, *, evolves: bool) -> None:
    query = "SELECT * FROM north UNION ALL SELECT * FROM south"
    db.execute("SELECT pgtrickle.create_stream_table('sides', %s, auto_evolve => %s)", (query, evolves))


def health(db: Connection) -> tuple[str, str]:
    ((severity, detail),) = db.execute(HEALTH).fetchall()
    return str(severity), str(detail)


def test_the_health_check_says_why_columns_are_kept(db: Connection) -> None:
    create(db, evolves=True)
    assert db.execute(EVOLVE).fetchone() == (0,) and health(db)[0] == "OK"
    db.execute("ALTER TABLE north ADD COLUMN w int")
    for _ in range(2):
        assert db.execute(EVOLVE).fetchone() == (0,)
        severity, detail = health(db)
        assert severity == "WARNING" and "public.sides: each UNION query must have the same number of columns" in detail
    assert db.execute("SELECT status FROM pgtrickle.quick_health").fetchone() == ("ERROR",), "no program runs"
    # Whoever does not want the columns has no problem.
    db.execute("SELECT pgtrickle.alter_stream_table('sides', auto_evolve => false)")
    assert health(db)[0] == "OK"
    db.execute("UPDATE pgtrickle.pgt_stream_tables SET auto_evolve = true")
    assert health(db)[0] == "WARNING"
    db.execute("ALTER TABLE south ADD COLUMN w int")
    assert db.execute(EVOLVE).fetchone() == (1,) and health(db)[0] == "OK"


def test_who_switches_it_on_is_told_at_once(db: Connection) -> None:
    create(db, evolves=False)
    db.execute("ALTER TABLE north ADD COLUMN w int")
    said: list[str] = []
    db.add_notice_handler(lambda notice: said.append(f"{notice.severity}: {notice.message_primary}"))
    db.execute("SELECT pgtrickle.alter_stream_table('sides', auto_evolve => true)")
    assert said == [
        "WARNING: stream table public.sides keeps its columns: each UNION query must have the same number of columns"
    ]
    # Only the applier writes it down: nobody's transaction stands in its way.
    assert health(db)[0] == "OK"


def test_what_was_dropped_has_no_problem(db: Connection) -> None:
    create(db, evolves=True)
    db.execute("ALTER TABLE north ADD COLUMN w int")
    db.execute(EVOLVE)
    db.execute("SELECT pgtrickle.drop_stream_table('sides')")
    assert health(db)[0] == "OK" and db.execute("TABLE pgtrickle.pgt_kept_columns").fetchall() == []
