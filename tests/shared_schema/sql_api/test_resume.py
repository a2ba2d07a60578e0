"""`resume_stream_table` by SQL alone: refused with the reason while the cause is there. Every class has its remedy."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator

import psycopg
import pytest
from psycopg import errors

import applier
import shared_schema
from applier.catalog.database import Database
from applier.catalog.dependencies import DependencyStore
from applier.catalog.install import install_catalog
from shared_schema.errors import TrickleError
from shared_schema.table_schema import TableId

Connection = psycopg.Connection[tuple[object, ...]]

OF_NO_STREAM_TABLE = {
    "AnotherApplier": "ends the program",
    "CheckFailed": "raised to whoever asked for the comparison",
    "GroupCommitRefused": "each stream table is written alone then",
    "InstallError": "ends the program",
    "JarCorrupt": "ends the program",
    "JavaMissing": "ends the program",
    "NotCompiled": "ends the program",
    "SettingsError": "ends the program",
    "SourceBusy": "planned in a later tick",
    "Superseded": "a later request replaced this one",
}

USE_CLASSES = ["_needs_new_copies", "_needs_resync", "_present_cause", "_resume_stream_table", "_sinks_differ"]


def error_classes(base: type[TrickleError] = TrickleError) -> Iterator[type[TrickleError]]:
    """Return every expected error of the applier that is not tried again."""
    for kind in base.__subclasses__():
        yield from error_classes(kind)
        if not kind.retryable and kind.__module__.partition(".")[0] in ("applier", "shared_schema"):
            yield kind


@pytest.fixture
def db(database: str) -> Iterator[Connection]:
    with psycopg.connect(database, autocommit=True) as connection:
        install_catalog(connection)
        connection.execute("CREATE TABLE t (id int PRIMARY KEY, v int)")
        connection.execute("SELECT pgtrickle.create_stream_table('st', 'SELECT id, v FROM t')")
        yield connection


def one(db: Connection, query: str, *arguments: object) -> object:
    row = db.execute(query.encode(), arguments or None).fetchone()
    return row[0] if row else None


def suspend(db: Connection, code: str) -> None:
    db.execute(
        "UPDATE pgtrickle.pgt_stream_tables SET status = 'SUSPENDED', last_error_code = %s, last_error_message = 'm',"
        " last_error_hint = 'h', last_error_at = now()",
        (code,),
    )


def refused(db: Connection, because: str) -> str:
    """Check that `resume` is refused for this reason and that the diagnosis agrees; return the hint."""
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match=f"cannot be resumed: .*{because}") as error:
        db.execute("SELECT pgtrickle.resume_stream_table('st')")
    assert one(db, "SELECT still_there FROM pgtrickle.diagnose_errors('st')") is True
    return error.value.diag.message_hint or ""


def resumed(db: Connection) -> None:
    """Check that nothing is in the way any more: it is computed as a whole."""
    assert one(db, "SELECT still_there FROM pgtrickle.diagnose_errors('st')") is False
    db.execute("SELECT pgtrickle.resume_stream_table('st')")
    assert one(db, "SELECT count(*) FROM pgtrickle.pgt_reinitializations WHERE refused_at IS NULL") == 1


def test_every_class_that_can_suspend_has_a_remedy(db: Connection) -> None:
    for package in (applier, shared_schema):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    classes = {kind.__name__ for kind in error_classes()}
    assert OF_NO_STREAM_TABLE.keys() <= classes, "a class is gone"
    asked = "SELECT r.kind, r.remedy FROM pgtrickle.pgt_stream_tables s, pgtrickle._remedy(%s, s) r"
    remedies = {name: db.execute(asked, (name,)).fetchall()[0] for name in sorted(classes)}
    known = {name for name, (kind, _) in remedies.items() if kind != "unknown"}
    assert known == classes - OF_NO_STREAM_TABLE.keys()
    assert all(remedy and "%" not in str(remedy) for _, remedy in remedies.values()), remedies
    # The functions that tell classes apart name none that does not exist.
    named = one(
        db,
        "SELECT array_agg(m[1]) FROM pg_proc p, regexp_matches(p.prosrc, $$'([A-Z][a-z]+[A-Z][A-Za-z]+)'$$, 'g') m"
        " WHERE p.proname = ANY (%s)",
        USE_CLASSES,
    )
    assert isinstance(named, list)
    found = {name for name in named if not name.endswith("Lock")}
    assert len(found) > 10 and found <= classes, found - classes


def test_a_source_that_the_consumer_cannot_follow(db: Connection, database: str) -> None:
    stored = Database(database)
    store = DependencyStore(stored)
    store.note_stopped({TableId("public", "t"): "a row does not fit", TableId("public", "u"): "x"})
    suspend(db, "SourceStopped")
    assert "restart pg-trickle-cdc" in refused(db, "public.t are not captured: a row does not fit")
    assert "does not fit" in str(one(db, "SELECT blocked_reason FROM pgtrickle.wal_source_status()"))
    store.note_stopped({TableId("public", "u"): "x"})
    resumed(db)
    store.note_stopped({})
    assert one(db, "SELECT count(*) FROM pgtrickle.pgt_stopped_sources") == 0
    stored.close()


@pytest.mark.parametrize(
    ("breaks", "because", "mends"),
    [
        (
            "ALTER PUBLICATION pg_trickle SET (publish = 'insert')",
            "streams only insert",
            "ALTER PUBLICATION pg_trickle SET (publish = 'insert, update, delete, truncate')",
        ),
        (
            "ALTER PUBLICATION pg_trickle SET TABLE t WHERE (id > 1)",
            "row filter",
            "ALTER PUBLICATION pg_trickle DROP TABLE t",
        ),
        (
            "ALTER PUBLICATION pg_trickle SET TABLE t (id)",
            "column list",
            "ALTER PUBLICATION pg_trickle SET TABLE t",
        ),
        (
            "ALTER PUBLICATION pg_trickle DROP TABLE t; ALTER TABLE t SET UNLOGGED",
            "temporary or unlogged",
            "ALTER TABLE t SET LOGGED",
        ),
    ],
)
def test_a_publication_that_cannot_be_put_right_by_itself(
    db: Connection, breaks: str, because: str, mends: str
) -> None:
    db.execute(breaks.encode())
    suspend(db, "PublicationChanged")
    assert refused(db, because)
    db.execute(mends.encode())
    resumed(db)
    assert one(db, "SELECT problem FROM pgtrickle._publication_facts(ARRAY['t'::regclass::oid])") is None
    # The rows meanwhile are not in the stream.
    assert one(db, "SELECT epoch FROM pgtrickle.pgt_recaptures") == 1


@pytest.mark.parametrize(
    ("breaks", "because", "mends"),
    [
        ("ALTER TABLE t DROP COLUMN v", "can no longer be run", "ALTER TABLE t ADD COLUMN v int"),
        ("ALTER TABLE t RENAME TO away", "can no longer be run", "ALTER TABLE away RENAME TO t"),
        ("ALTER TABLE t ALTER v TYPE bigint", "returns other columns now", "ALTER TABLE t ALTER v TYPE int"),
        ("ALTER TABLE t ENABLE ROW LEVEL SECURITY", "row-level security", "ALTER TABLE t DISABLE ROW LEVEL SECURITY"),
    ],
)
def test_a_source_that_is_not_what_it_was(db: Connection, breaks: str, because: str, mends: str) -> None:
    db.execute(breaks.encode())
    suspend(db, "SourceChanged")
    refused(db, because)
    db.execute(mends.encode())
    resumed(db)


def test_a_server_that_was_restored(db: Connection) -> None:
    for code in ("ServerRestored", "SinkAhead"):
        suspend(db, code)
        assert "pg-trickle-cdc resync --restored" in refused(db, "m")
    # The command requests every stream table.
    db.execute("SELECT pgtrickle.note_resync('restored', true)")
    assert one(db, "SELECT still_there FROM pgtrickle.diagnose_errors('st')") is False


def test_a_lock_that_somebody_holds(db: Connection, database: str) -> None:
    suspend(db, "TargetLocked")
    with psycopg.connect(database) as other:
        other.execute("LOCK TABLE st IN SHARE MODE")
        assert "pg_terminate_backend" in refused(db, "holds a lock")
    db.execute("SELECT pgtrickle.resume_stream_table('st')")


def test_what_cannot_be_checked_is_not_refused(db: Connection) -> None:
    for code in (
        "TargetError",
        "UnexpectedFailure",
        "PublishingFailed",
        "PlanningCrashed",
        "FillCrashed",
        "BadSchedule",
    ):
        suspend(db, code)
        assert one(db, "SELECT still_there FROM pgtrickle.diagnose_errors('st')") is None
        db.execute("SELECT pgtrickle.resume_stream_table('st')")


def test_who_may_announce_a_resync(db: Connection) -> None:
    """The consumer's role owns nothing; it is granted this one function."""
    db.execute("ALTER PUBLICATION pg_trickle DROP TABLE t")
    db.execute("CREATE ROLE resyncs; GRANT USAGE ON SCHEMA pgtrickle TO resyncs")
    try:
        db.execute("SET ROLE resyncs")
        with pytest.raises(errors.InsufficientPrivilege):
            db.execute("SELECT pgtrickle.note_resync('lost')")
        db.execute("RESET ROLE; GRANT EXECUTE ON FUNCTION pgtrickle.note_resync(text, boolean) TO resyncs")
        # An upgrade keeps it.
        install_catalog(db)
        db.execute("SET ROLE resyncs")
        assert one(db, "SELECT pgtrickle.note_resync('lost')") == 1
        with pytest.raises(errors.InsufficientPrivilege):
            db.execute("SELECT pgtrickle._reinitialize_one(1, '', '', '', true)")
    finally:
        db.execute("RESET ROLE; DROP OWNED BY resyncs; DROP ROLE resyncs")
    assert one(db, "SELECT count(*) FROM pg_publication_tables WHERE tablename = 't'") == 1
