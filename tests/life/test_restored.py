"""The server was put back to an older backup: its stream tables say so, and one command repairs them.

The catalog is restored with the server, so its frontiers are old too; the topics, the traces and Delta are not.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import psycopg
import pytest
from psycopg import errors

from tests import oracle
from tests.fixtures.own_server import OwnServer
from tests.fixtures.roles import StackOfRoles
from tests.fixtures.stack import open_stack
from tests.life.test_repair import Connection, assert_equal, assert_everywhere, create, one

pytestmark = [
    pytest.mark.skipif(not os.environ.get("PG_TRICKLE_LONG_TESTS"), reason="a stack of its own: PG_TRICKLE_LONG_TESTS"),
    pytest.mark.timeout(900),
]

STREAM_TABLES = ("kept", "summed")


@pytest.fixture(scope="module")
def stack() -> Iterator[StackOfRoles]:
    """Yield a stack of its own: its server's files are put back."""
    with open_stack("restored") as stack:
        yield stack


def connected(stack: StackOfRoles) -> Connection:
    return psycopg.connect(stack.addresses.database_url, autocommit=True)


def assert_suspended(db: Connection) -> None:
    found = db.execute("SELECT DISTINCT last_error_code FROM pgtrickle.pgt_stream_tables").fetchall()
    assert found == [("ServerRestored",)], found


def assert_refused(db: Connection) -> None:
    """Check that every stream table is suspended with the reason and the call that mends it, whoever asks."""
    for name in STREAM_TABLES:
        with pytest.raises(errors.ObjectNotInPrerequisiteState, match="restored to an older state") as refused:
            db.execute("SELECT pgtrickle.wait_for(%s)", (name,))
        assert "pg-trickle-cdc resync --restored" in str(refused.value.diag.message_hint)
        with pytest.raises(errors.ObjectNotInPrerequisiteState):
            db.execute("SELECT pgtrickle.reinitialize_stream_table(%s)", (name,))
        with pytest.raises(errors.ObjectNotInPrerequisiteState):
            db.execute("SELECT pgtrickle.resume_stream_table(%s)", (name,))


def resync(stack: StackOfRoles, db: Connection) -> None:
    stack.stop("cdc")
    db.execute("SET ROLE postgres; GRANT EXECUTE ON FUNCTION pg_switch_wal() TO trickle_cdc; SET ROLE trickle_owner")
    stack.binaries["cdc"].run_once("resync", "--restored", "--yes")
    stack.restart("cdc")


@pytest.fixture(scope="module")
def own(stack: StackOfRoles) -> OwnServer:
    """Return the server of the stack: it has a backup, and was written to since."""
    own = OwnServer(stack.postgres)
    with connected(stack) as db:
        db.execute(
            "CREATE TABLE src (id int PRIMARY KEY, v int); INSERT INTO src SELECT i, i FROM generate_series(1, 50) i"
        )
        create(db, "kept", "SELECT id, v FROM src")
        create(db, "summed", "SELECT v % 5 AS k, count(*) AS n, sum(v) AS s FROM src GROUP BY 1")
        assert_equal(db, *STREAM_TABLES)
    for part in ("applier", "cdc"):
        stack.stop(part)
    own.back_up()
    for part in ("cdc", "applier"):
        stack.restart(part)
    with connected(stack) as db:
        db.execute("UPDATE src SET v = v + 1 WHERE id <= 20; DELETE FROM src WHERE id = 50")
        db.execute("INSERT INTO src VALUES (99, 9)")
        assert_everywhere(db, stack, *STREAM_TABLES)
    return own


def test_put_back_while_the_applier_runs(stack: StackOfRoles, own: OwnServer) -> None:
    stack.stop("cdc")
    own.put_back()
    with connected(stack) as db:
        db.execute("INSERT INTO src VALUES (60, 60)")
        oracle.eventually(lambda: assert_refused(db))
        # As many changes again: the log is longer than it was, and it is another one.
        db.execute("CREATE TABLE filler AS SELECT i, repeat('x', 500) FROM generate_series(1, 20000) i")
        assert_refused(db)
        resync(stack, db)
        assert_everywhere(db, stack, *STREAM_TABLES)
        db.execute("UPDATE src SET v = 0 WHERE id < 5")
        assert_everywhere(db, stack, *STREAM_TABLES)
        assert one(db, "SELECT count(*) FROM kept") == 51


def test_put_back_while_nobody_runs_and_the_log_is_longer_at_the_start(stack: StackOfRoles, own: OwnServer) -> None:
    for part in ("applier", "cdc"):
        stack.stop(part)
    own.put_back()
    with connected(stack) as db:
        db.execute("CREATE TABLE filler AS SELECT i, repeat('x', 500) FROM generate_series(1, 60000) i")
        db.execute("DELETE FROM src WHERE id > 40")
        # Without a consumer it is never ready; it has to speak up all the same.
        stack.restart("applier", wait=False)
        oracle.eventually(lambda: assert_suspended(db), 180)
        assert_refused(db)
        resync(stack, db)
        assert_everywhere(db, stack, *STREAM_TABLES)
        db.execute("UPDATE src SET v = 1 WHERE id = 7")
        assert_equal(db, *STREAM_TABLES)
