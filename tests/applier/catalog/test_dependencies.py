"""Sessions that may be altering something: those of other programs, never the applier's own long writes."""

from __future__ import annotations

import random
import threading
import time

import psycopg
import pytest

from applier.catalog.database import Database
from applier.catalog.dependencies import DependencyStore, ObjectIds
from applier.catalog.install import install_catalog


@pytest.mark.parametrize(("program", "concerns"), [("psql", True), ("pg-trickle-applier", False)])
def test_our_own_sessions_alter_nothing(database: str, program: str, concerns: bool) -> None:
    """As a write beside the ticks that takes minutes: nobody waits for it."""

    def create() -> None:
        with psycopg.connect(database, autocommit=True, application_name=program) as connection:
            connection.execute("BEGIN; SELECT pg_current_xact_id()")
            connection.execute("DO 'BEGIN PERFORM pg_sleep(2); END'")

    thread = threading.Thread(target=create)
    thread.start()
    opened = Database(database)
    store, until = DependencyStore(opened), time.monotonic() + 10
    while not (found := [s for s in store.sessions_at_work() if s.state == "active"]):
        assert time.monotonic() < until
        time.sleep(0.02)
    assert [s.concerns({1}) for s in found] == [concerns]
    thread.join()
    opened.close()


def test_no_two_rows_of_the_catalog_count_the_same(database: str) -> None:
    """Object and transaction numbers grow together, so a digest that mixes them badly misses every fiftieth change."""
    opened = Database(database)
    connection, store = opened.connection, DependencyStore(opened)
    install_catalog(connection)
    connection.execute("CREATE TABLE public.t (id int PRIMARY KEY); CREATE PUBLICATION streamed FOR TABLE public.t")
    row = connection.execute("SELECT 'public.t'::regclass::oid::int8").fetchone()
    assert row is not None
    ids = ObjectIds(frozenset([int(str(row[0]))]), frozenset(), frozenset())
    before = store.digest(ids)
    pick = random.Random(1)
    for _ in range(300):
        for _ in range(pick.randrange(3)):
            connection.execute("SELECT pg_current_xact_id()")
        with connection.transaction():
            connection.execute("ALTER PUBLICATION streamed DROP TABLE public.t")
            connection.execute("ALTER PUBLICATION streamed ADD TABLE public.t")
        after = store.digest(ids)
        assert after != before
        before = after
    opened.close()
