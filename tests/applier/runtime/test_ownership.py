"""One owner at a time: what a former one still writes is refused, and a standby takes over from one that is gone."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from applier.catalog.database import Database, connect
from applier.catalog.epochs import ENDED, confirm_epoch, drop_epoch, has_ended, hold_epoch
from applier.catalog.install import install_catalog
from applier.errors import AnotherApplier
from applier.runtime import stand_by
from applier.runtime.ownership import Ownership
from applier.runtime.stand_by import SETTLE_S, SILENT_S, OwnerWatch, StandBy
from applier.sinks.postgres.transaction import prepare_write_session
from applier.sinks.staging.staged_delta import STAGED_PREFIX, drop_leftovers, own_prefix

SLOT = "pg_trickle"
Connection = psycopg.Connection[tuple[object, ...]]

NOT_BY_EPOCH = {"pgt_ownership", "pgt_applier_instances", "pgt_lock_numbers", "pgt_schema_version"}
"""The tables by which the owner is found, and that of the installer."""


@pytest.fixture
def db(database: str) -> Iterator[Connection]:
    with psycopg.connect(database, autocommit=True) as connection:
        install_catalog(connection)
        yield connection
    drop_epoch(database)


def owner(url: str) -> tuple[Ownership, Connection]:
    """A process that has just become the owner, with the connection of its catalog."""
    ownership, connection = Ownership(url, SLOT), connect(url)
    ownership.acquire(connection)
    return ownership, connection


def test_every_table_of_the_catalog_refuses_an_epoch_that_has_ended(db: Connection) -> None:
    db.execute("CREATE TABLE t (id int PRIMARY KEY)")
    db.execute("SELECT pgtrickle.create_stream_table('st', 'SELECT id FROM t')")
    unguarded = db.execute(
        "SELECT c.relname FROM pg_class c WHERE c.relnamespace = 'pgtrickle'::regnamespace AND c.relkind IN ('r', 'p')"
        " AND NOT EXISTS (SELECT FROM pg_trigger t WHERE t.tgrelid = c.oid AND t.tgenabled = 'O'"
        " AND t.tgname = 'pgt_refuse_old_epoch' AND t.tgtype & 60 = 60)"
    ).fetchall()
    assert {str(name) for (name,) in unguarded} == NOT_BY_EPOCH


@contextmanager
def of_epoch(url: str, ownership: Ownership) -> Iterator[Connection]:
    """A session of a process that still writes; it was not ended, because it was cut off when its successor came."""
    with psycopg.connect(url, autocommit=True) as connection:
        prepare_write_session(1000)(connection)
        connection.execute("SELECT set_config('pg_trickle.epoch', %s, false)", (str(ownership.epoch),))
        yield connection


def test_what_a_former_owner_writes_is_refused(db: Connection, database: str) -> None:
    db.execute("CREATE TABLE t (id int PRIMARY KEY)")
    db.execute("SELECT pgtrickle.create_stream_table('st', 'SELECT id FROM t')")
    old, first = owner(database)
    with of_epoch(database, old) as writer, Database(database).connection as beats:
        writer.execute("INSERT INTO public.st VALUES (1)")
        drop_epoch(database)
        first.close()
        new, second = owner(database)
        with pytest.raises(psycopg.OperationalError, match="terminating"):
            beats.execute("SELECT 1")
        for statement in (
            "INSERT INTO public.st VALUES (2)",
            "TRUNCATE public.st",
            "UPDATE pgtrickle.pgt_stream_tables SET partial_until = NULL WHERE false",
            "INSERT INTO pgtrickle.pgt_checkpoints (applier, frontier, manifest) VALUES ('x', '0/1', '{}')",
        ):
            with pytest.raises(psycopg.OperationalError, match="taken over") as caught:
                writer.execute(statement.encode())
            assert caught.value.sqlstate == ENDED and has_ended(caught.value)
        with pytest.raises(psycopg.OperationalError, match="taken over"):
            confirm_epoch(writer.cursor())
        # Sessions that it opens now are refused, and its beat tells it why.
        hold_epoch(database, old.epoch or 0)
        with pytest.raises(AnotherApplier, match="taken over"):
            connect(database)
        hold_epoch(database, new.epoch or 0)
        lost: list[BaseException] = []
        renewed = Database(database)
        old.renew(renewed, threading.Event(), lost.append)
        renewed.close()
        assert [type(error) for error in lost] == [AnotherApplier]
    # The new one, and sessions that maintain nothing, write as ever.
    with of_epoch(database, new) as writer:
        writer.execute("DELETE FROM public.st WHERE id = 1")
        writer.execute("DELETE FROM pgtrickle.pgt_checkpoints")
        confirm_epoch(writer.cursor())
    db.execute("SELECT pgtrickle.set_visibility('st', 'progressive')")
    confirm_epoch(db.cursor())
    second.close()


def test_a_write_that_is_under_way_ends_before_the_new_epoch_begins(db: Connection, database: str) -> None:
    db.execute("CREATE TABLE t (id int PRIMARY KEY)")
    db.execute("SELECT pgtrickle.create_stream_table('st', 'SELECT id FROM t')")
    old, first = owner(database)
    written, beats = Database(database, prepare_write_session(1000)), Database(database)
    with pytest.raises(psycopg.OperationalError), written.connection.transaction():
        written.connection.execute("INSERT INTO public.st VALUES (1)")
        # No write keeps the owner from saying that it is alive.
        assert old.beat(beats, "owner")
        drop_epoch(database)
        first.close()
        began = time.monotonic()
        new, second = owner(database)
        assert time.monotonic() - began < 2 and (new.epoch or 0) > (old.epoch or 0)
        written.connection.execute("SELECT 1")
    assert db.execute("SELECT count(*) FROM public.st").fetchone() == (0,)
    for connection in (second, written, beats):
        connection.close()


def test_parts_of_two_owners_have_different_names(db: Connection, database: str) -> None:
    _, first = owner(database)
    before = own_prefix(database)
    db.execute(
        f"CREATE TABLE pgtrickle.{before}1_7 (a int); CREATE TABLE pgtrickle.{STAGED_PREFIX}1_7 (a int)".encode()
    )
    drop_epoch(database)
    first.close()
    _, second = owner(database)
    assert own_prefix(database) != before
    db.execute(f"CREATE TABLE pgtrickle.{own_prefix(database)}1_7 (a int)".encode())
    drop_leftovers(database)
    left = db.execute("SELECT relname FROM pg_class WHERE starts_with(relname, %s)", (STAGED_PREFIX,)).fetchall()
    assert left == [(f"{own_prefix(database)}1_7",)]
    second.close()


def watching(database: str) -> tuple[StandBy, Database]:
    beats = Database(database)
    _ = beats.connection
    return StandBy(Ownership(database, SLOT), beats, lambda: None), beats


@pytest.mark.parametrize("how", ["ended", "silent"])
def test_a_standby_takes_over(db: Connection, database: str, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    monkeypatch.setattr(stand_by, "SILENT_S", 1.5)
    old, first = owner(database)
    drop_epoch(database)
    waiting, beats = watching(database)
    stopping, of_owner = threading.Event(), Database(database)
    timer = threading.Timer(1.0, first.close if how == "ended" else lambda: None)
    timer.start()
    began = time.monotonic()
    reason = waiting.wait(stopping)
    took = time.monotonic() - began
    assert reason is not None and ("ended" in reason) == (how == "ended")
    assert (1.0 <= took < 2.0) if how == "ended" else (1.5 <= took < 2.5)
    assert old.has_standby(of_owner)
    line = "SELECT severity, detail FROM pgtrickle.health_check() WHERE check_name = 'standby'"
    assert "1 " in str(db.execute(line).fetchone())
    with connect(database) as fresh:
        waiting.ownership.reason = reason
        waiting.ownership.acquire(fresh)
        assert db.execute("SELECT reason FROM pgtrickle.pgt_ownership").fetchone() == (reason,)
        assert not old.beat(of_owner, "owner")
        assert waiting.ownership.beat(beats, "owner") and not old.has_standby(of_owner)
    for connection in (first, of_owner, beats):
        connection.close()
    timer.join()


def test_a_standby_that_is_stopped_does_not_take_over(db: Connection, database: str) -> None:
    _, first = owner(database)
    waiting, beats = watching(database)
    stopping = threading.Event()
    threading.Timer(0.4, stopping.set).start()
    assert waiting.wait(stopping) is None
    first.close()
    beats.close()


BEAT = datetime(2024, 1, 1, tzinfo=UTC)


def test_an_owner_is_silent_when_its_beat_stays_the_same_while_it_is_watched() -> None:
    watch = OwnerWatch()
    assert watch.look(BEAT, True, 100.0) is None
    assert watch.look(BEAT, True, 100.0 + SILENT_S - 0.1) is None
    later = BEAT + timedelta(seconds=1)
    assert watch.look(later, True, 100.0 + SILENT_S) is None
    # The standby itself was stopped meanwhile: it only looks at what is there now.
    assert watch.look(later + timedelta(seconds=1), True, 1000.0) is None
    assert watch.look(later + timedelta(seconds=1), True, 1000.0 + SILENT_S) is not None


def test_an_owner_may_come_back_first_after_the_server_was_away() -> None:
    watch = OwnerWatch()
    assert watch.look(BEAT, True, 1.0) is None
    watch.note_away(100.0)
    assert watch.look(BEAT, False, 100.5) is None
    assert watch.look(BEAT, True, 100.0 + SETTLE_S) is None
    assert watch.look(BEAT, False, 100.0 + SETTLE_S + 0.1) is not None


def test_an_owner_that_ended_is_replaced_at_once() -> None:
    assert OwnerWatch().look(BEAT, False, 0.3) is not None
