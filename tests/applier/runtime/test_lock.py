"""A session lost by the network: both sides notice, and the applier acquires its lock again instead of exiting."""

from __future__ import annotations

import os
import secrets
import time
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from applier.catalog.database import Database, connect
from applier.catalog.install import install_catalog
from applier.errors import AnotherApplier, Infrastructure
from applier.runtime.lock import APPLIER_LOCK, ApplierLock
from tests.chaos.proxy import Proxy


def test_the_own_lost_session_is_waited_for(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        install_catalog(connection)
    lock = ApplierLock("pg_trickle")
    with connect(database) as lost, connect(database) as fresh:
        lock.acquire(lost)
        with pytest.raises(Infrastructure, match="lost"):
            lock.acquire(fresh)
        with pytest.raises(AnotherApplier):
            ApplierLock("pg_trickle").acquire(fresh)
        lost.close()
        deadline = time.monotonic() + 10
        while True:
            try:
                lock.acquire(fresh)
                break
            except Infrastructure:
                assert time.monotonic() < deadline
                time.sleep(0.05)


def test_a_stranger_does_not_keep_the_applier_out(database: str) -> None:
    """Anybody may hold an advisory lock: it neither stops the applier nor passes for one."""
    stranger = f"stranger_{secrets.token_hex(4)}"
    running = "SELECT pgtrickle._is_running('pg-trickle-applier')"
    with psycopg.connect(database, autocommit=True) as admin:
        install_catalog(admin)
        admin.execute(f"CREATE ROLE {stranger} LOGIN PASSWORD 'hush'".encode())
        try:
            with (
                psycopg.connect(make_conninfo(database, user=stranger, password="hush"), autocommit=True) as intruder,
                connect(database) as own,
                connect(database) as second,
            ):
                intruder.execute("SELECT pg_advisory_lock(%s, hashtext('pg_trickle'))", (APPLIER_LOCK,))
                intruder.execute("SELECT pg_advisory_lock_shared(%s, hashtext('pg_trickle'))", (APPLIER_LOCK,))
                assert admin.execute(running).fetchone() == (False,)
                ApplierLock("pg_trickle").acquire(own)
                assert admin.execute(running).fetchone() == (True,)
                with pytest.raises(AnotherApplier):
                    ApplierLock("pg_trickle").acquire(second)
                # Neither do those of definitions, of installations, of drains or of waiting sessions.
                for key in ("1885828211, 0", "1885828210", "1885828215, 0", "1885828215, 1"):
                    intruder.execute(f"SELECT pg_advisory_lock({key})".encode())
                admin.execute("SET lock_timeout = '2s'; CREATE TABLE t (id int PRIMARY KEY)")
                admin.execute("SELECT pgtrickle.create_stream_table('st', 'SELECT id FROM t')")
                assert install_catalog(admin) == []
                assert admin.execute("SELECT pgtrickle._drain_state()").fetchone() == ("running",)
                assert admin.execute("SELECT pgtrickle._refresh_requests()").fetchall() == []
                admin.execute(f"GRANT USAGE ON SCHEMA pgtrickle TO {stranger}".encode())
                with pytest.raises(psycopg.errors.InsufficientPrivilege), intruder.transaction():
                    intruder.execute("LOCK TABLE pgtrickle.pgt_definition_lock IN ACCESS SHARE MODE")
        finally:
            admin.execute(f"DROP OWNED BY {stranger}; DROP ROLE {stranger}".encode())


def test_a_connection_that_cannot_be_prepared_does_not_stay(database: str) -> None:
    opened = []

    def refuse(connection: psycopg.Connection[tuple[object, ...]]) -> None:
        opened.append(connection)
        raise Infrastructure("not now")

    with pytest.raises(Infrastructure):
        _ = Database(database, refuse).connection
    assert opened[0].closed


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can lose a connection without a word")
def test_the_server_ends_a_session_whose_client_is_gone(database: str) -> None:
    url = urlsplit(database)
    proxy = Proxy(url.port or 0)
    through = connect(urlunsplit(url._replace(netloc=f"{url.netloc.rpartition(':')[0]}:{proxy.port}")))
    with psycopg.connect(database, autocommit=True) as watcher:
        through.execute("SELECT pg_advisory_lock(4711)")
        # Unacknowledged data would be sent again and acknowledged.
        time.sleep(0.5)
        proxy.cut()
        held = "SELECT FROM pg_locks WHERE locktype = 'advisory' AND objid = 4711"
        assert watcher.execute(held).rowcount == 1
        deadline = time.monotonic() + 30
        while watcher.execute(held).rowcount:
            assert time.monotonic() < deadline, "the server believes in a client that is gone"
            time.sleep(0.2)
    # The other side: a response that never comes is not waited for forever.
    with pytest.raises(psycopg.OperationalError):
        through.execute("SELECT 1")
