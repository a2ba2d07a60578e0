"""What a stream table over `*` should be, is not taken from what is stored of it."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from applier.catalog.install import install_catalog
from tests.life.ddl_world import SCHEMAS, Star, World


@pytest.fixture
def world(database: str) -> Iterator[World]:
    with psycopg.connect(database, autocommit=True) as connection:
        install_catalog(connection)
        world = World(connection)
        connection.execute(SCHEMAS.encode())
        for name in ("mood", "address", "customers"):
            world._create_object(name)
        world.create("st_evolving", "SELECT * FROM world.customers")
        yield world


def columns(world: World) -> list[str]:
    rows = world.connection.execute("SELECT * FROM world.oracle_st_evolving LIMIT 0").description
    assert rows is not None
    return [column.name for column in rows]


def test_the_oracle_of_a_star_is_written_from_the_numbers_of_the_columns(world: World) -> None:
    own = ["id", "name", "region", "m", "credit", "home", "code"]
    assert world.pin_star("st_evolving") and columns(world) == own
    # Two columns change their names, the table its name and place: the stream table's columns stay what they were.
    world.connection.execute(
        "ALTER TABLE world.customers RENAME name TO x; ALTER TABLE world.customers RENAME region TO name;"
        " ALTER TABLE world.customers RENAME x TO region; ALTER TABLE world.customers RENAME TO clients;"
        " ALTER TABLE world.clients SET SCHEMA elsewhere;"
        " UPDATE pgtrickle.pgt_stream_tables SET defining_query = 'wrong'"
    )
    assert world.pin_star("st_evolving") and columns(world) == own
    differing = "SELECT count(*) FROM world.oracle_st_evolving o JOIN elsewhere.clients c USING (id)"
    assert world.connection.execute(f"{differing} WHERE o.name <> c.region".encode()).fetchall() == [(0,)]
    # New columns count once the stream table has them, in the order of the source.
    world.connection.execute("ALTER TABLE elsewhere.clients ADD w int DEFAULT 7, ADD z int DEFAULT 8")
    assert world.pin_star("st_evolving") and columns(world) == own
    world.connection.execute("ALTER TABLE world.st_evolving ADD w int")
    assert world.pin_star("st_evolving") and columns(world) == [*own, "w"]
    world.connection.execute("ALTER TABLE world.st_evolving ADD later int")
    assert world.pin_star("st_evolving") and columns(world) == [*own, "w", "later"]
    row = world.connection.execute("SELECT w, later FROM world.oracle_st_evolving LIMIT 1").fetchone()
    assert row == (7, 8)


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE world.customers DROP credit; ALTER TABLE world.customers ADD credit int",
        "ALTER TABLE world.st_evolving ADD more int",
        "DROP TABLE world.customers",
    ],
)
def test_a_star_that_stands_for_something_else(world: World, change: str) -> None:
    world.connection.execute("DROP VIEW world.oracle_st_evolving")
    world.connection.execute(change.encode())
    assert not world.pin_star("st_evolving")


def test_only_a_star_of_one_table_is_pinned(world: World) -> None:
    assert world.stars == {"st_evolving": Star(world.oids["customers"], world._columns(world.oids["customers"]))}
    world.connection.execute("SELECT pgtrickle.drop_stream_table('world.st_evolving')")
    world.create("st_evolving", "SELECT id, name FROM world.customers")
    assert world.stars == {}
