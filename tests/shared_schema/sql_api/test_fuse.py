"""The fuse as the SQL functions keep it, without running binaries: options, rights, decisions, and what is shown."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import errors

from applier.catalog.database import Database
from applier.catalog.fuses import FuseStore
from applier.catalog.install import install_catalog
from applier.catalog.stream_tables import StreamTableStore, lock_in_service
from applier.errors import FuseBlown
from shared_schema.lsn import Lsn
from tests.fixtures.postgres import PostgresServer

Connection = psycopg.Connection[Any]

STATE = "SELECT to_jsonb(s) - 'last_error_at' FROM pgtrickle.pgt_stream_tables s ORDER BY s.pgt_id"


@pytest.fixture(scope="module")
def installed(postgres: PostgresServer) -> Iterator[tuple[Connection, str]]:
    with psycopg.connect(postgres.url, autocommit=True) as server:
        server.execute("CREATE DATABASE fuses")
        url = psycopg.conninfo.make_conninfo(postgres.url, dbname="fuses")
        with psycopg.connect(url, autocommit=True) as connection:
            install_catalog(connection)
            connection.execute("CREATE TABLE orders (id int PRIMARY KEY, kind text)")
            for name, query in {
                "fused": "SELECT id, kind FROM orders",
                "reader": "SELECT kind FROM fused",
                "far": "SELECT kind FROM reader",
                "apart": "SELECT id FROM orders",
            }.items():
                connection.execute("SELECT pgtrickle.create_stream_table(%s, %s)", (name, query))
            connection.execute(
                "INSERT INTO pgtrickle.pgt_frontiers (pgt_id, frontier, refreshed_at)"
                " SELECT pgt_id, '0/10', now() FROM pgtrickle.pgt_stream_tables"
            )
            connection.execute("UPDATE pgtrickle.pgt_stream_tables SET status = 'ACTIVE'")
            yield connection, url
        server.execute("DROP DATABASE fuses (FORCE)")


@pytest.fixture
def db(installed: tuple[Connection, str]) -> Iterator[Connection]:
    with installed[0].transaction(force_rollback=True):
        yield installed[0]


def on(db: Connection) -> Database:
    """Return the connection as the applier's stores take it."""
    database = Database("")
    database._connection = db
    return database


def blow(db: Connection, *, key: str = '["id"]', changes: int | None = 500) -> None:
    """Suspend `fused` as the applier does it."""
    (pgt_id,) = db.execute("SELECT pgt_id FROM pgtrickle.pgt_stream_tables WHERE pgt_name = 'fused'").fetchall()[0]
    error = FuseBlown("the fuse is blown", hint="reset it", until=Lsn(0x20), changes=changes, limit=100)
    StreamTableStore(on(db)).suspend(pgt_id, error)
    db.execute(
        "INSERT INTO pgtrickle.pgt_plans (pgt_id, plan) VALUES (%s, jsonb_build_object('row_key', %s::jsonb))"
        " ON CONFLICT (pgt_id) DO UPDATE SET plan = excluded.plan",
        (pgt_id, key),
    )


def one(db: Connection, query: str) -> tuple[Any, ...]:
    (found,) = db.execute(query.encode()).fetchall()
    return tuple(found)


def states(db: Connection) -> dict[str, str]:
    return dict(db.execute("SELECT name, state FROM pgtrickle.fuse_status()").fetchall())


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ("fuse => 'maybe'", "fuse 'maybe' is not known"),
        ("fuse_ceiling => 0", "fuse_ceiling 0 is out of bounds"),
        ("fuse_ceiling => -1", "fuse_ceiling -1 is out of bounds"),
        ("fuse_ceiling => 1.5", "fuse_ceiling 1.5 is out of bounds"),
        ("fuse_ceiling => 'NaN'", "fuse_ceiling NaN is out of bounds"),
        ("fuse_ceiling => 'infinity'", "fuse_ceiling Infinity is out of bounds"),
        ("fuse_sensitivity => 0", "fuse_sensitivity 0 is out of bounds"),
        ("fuse_sensitivity => 1001", "fuse_sensitivity 1001 is out of bounds"),
        ("fuse_sensitivity => 'NaN'", "fuse_sensitivity NaN is out of bounds"),
        ("fuse => 'on'", "has nothing to compare with"),
    ],
)
def test_a_bad_option_is_refused_with_a_hint_and_changes_nothing(db: Connection, options: str, match: str) -> None:
    before = db.execute(STATE.encode()).fetchall()
    for call in (
        f"alter_stream_table('apart', schedule => '9m', {options})",
        f"create_stream_table('wrong', 'SELECT id FROM orders', {options})",
    ):
        with pytest.raises(errors.InvalidParameterValue, match=match) as raised, db.transaction():
            db.execute(f"SELECT pgtrickle.{call}".encode())
        assert raised.value.diag.message_hint
    assert db.execute(STATE.encode()).fetchall() == before


def test_options_and_the_default_say_whether_there_is_a_fuse(db: Connection) -> None:
    shown = "SELECT fuse, ceiling, sensitivity, state FROM pgtrickle.fuse_status() WHERE name = 'public.apart'"
    assert one(db, shown) == ("default", None, None, "off")
    db.execute("SELECT pgtrickle.set_setting('fuse_default_ceiling', '0.25')")
    assert one(db, shown) == ("default", 0.25, None, "intact")
    db.execute("SELECT pgtrickle.alter_stream_table('apart', fuse => 'ON')")
    assert one(db, shown) == ("on", 0.25, None, "intact")
    db.execute("SELECT pgtrickle.alter_stream_table('apart', fuse => 'auto', fuse_ceiling => 7, fuse_sensitivity => 2)")
    assert one(db, shown) == ("auto", 7, 2, "intact")
    db.execute("SELECT pgtrickle.alter_stream_table('apart', fuse => 'off')")
    assert one(db, shown) == ("off", 7, 2, "off")
    with pytest.raises(errors.InvalidParameterValue), db.transaction():
        db.execute("SELECT pgtrickle.set_setting('fuse_default_ceiling', '-1')")


def test_a_blown_one_is_shown_with_its_figures_and_holds_its_readers(db: Connection) -> None:
    assert set(states(db).values()) == {"off"}
    blow(db)
    held = "held: the fuse is blown of public.fused"
    assert states(db) == {
        "public.fused": "blown",
        "public.reader": held,
        "public.far": held,
        "public.apart": "off",
    }
    assert one(
        db,
        "SELECT blown_at IS NOT NULL, from_lsn, until_lsn, changes, row_limit, detail FROM pgtrickle.fuse_status()"
        " WHERE state = 'blown'",
    ) == (True, "0/10", "0/20", 500, 100, "the fuse is blown")
    assert one(db, "SELECT fuse_state FROM pgtrickle.pgt_status() WHERE name = 'public.far'") == (held,)
    for function in ("wait_for", "refresh_stream_table"):
        with pytest.raises(errors.ObjectNotInPrerequisiteState) as raised, db.transaction():
            db.execute(f"SELECT pgtrickle.{function}('far')".encode())
        assert "far is held: the fuse is blown of public.fused" in str(raised.value)
        assert "reset_fuse" in str(raised.value.diag.message_hint)
    with pytest.raises(errors.QueryCanceled, match="did not reach"), db.transaction():
        db.execute("SELECT pgtrickle.wait_for('apart', timeout => '10 ms')")
    is_refused = pytest.raises(errors.ObjectNotInPrerequisiteState, match="cannot be resumed: the fuse is blown")
    with is_refused as raised, db.transaction():
        db.execute("SELECT pgtrickle.resume_stream_table('fused')")
    assert "reset_fuse('public.fused', 'apply')" in str(raised.value.diag.message_hint)
    # One that is computed as a whole waits for nobody.
    db.execute("SELECT pgtrickle.reinitialize_stream_table('reader')")
    assert states(db)["public.reader"] == "off" and states(db)["public.far"] == held


@pytest.mark.parametrize(
    ("call", "match"),
    [
        ("reset_fuse('apart')", "the fuse of stream table public.apart is not blown"),
        ("reset_fuse('reader', 'skip_changes')", "the fuse of stream table public.reader is not blown"),
        ("reset_fuse('fused', 'ignore')", "action 'ignore' is not known"),
        ("reset_fuse('fused', NULL)", "action NULL is not known"),
        ("reset_fuse('orders')", "there is no stream table orders"),
    ],
)
def test_a_bad_reset_is_refused_and_changes_nothing(db: Connection, call: str, match: str) -> None:
    blow(db)
    before = db.execute(STATE.encode()).fetchall()
    with pytest.raises(errors.DatabaseError, match=match) as raised, db.transaction():
        db.execute(f"SELECT pgtrickle.{call}".encode())
    assert raised.value.diag.message_hint
    assert db.execute(STATE.encode()).fetchall() == before


@pytest.mark.parametrize(("why", "match"), [("no key", "its rows have no key"), ("full", "computes the whole")])
def test_changes_are_skipped_only_where_later_ones_can_be_written(db: Connection, why: str, match: str) -> None:
    blow(db, key="null" if why == "no key" else '["id"]')
    if why == "full":
        db.execute("UPDATE pgtrickle.pgt_stream_tables SET refresh_mode = 'FULL' WHERE pgt_name = 'fused'")
    before = db.execute(STATE.encode()).fetchall()
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match=match) as raised, db.transaction():
        db.execute("SELECT pgtrickle.reset_fuse('fused', 'skip_changes')")
    assert raised.value.diag.message_hint == "Use apply or reinitialize."
    assert db.execute(STATE.encode()).fetchall() == before
    assert one(db, "SELECT pgtrickle.reset_fuse('fused', 'apply')")[0].startswith("500 change rows up to 0/20")


@pytest.mark.parametrize("action", ["apply", "REINITIALIZE", "skip_changes"])
def test_a_reset_says_what_will_be_done_and_can_be_made_once(db: Connection, action: str) -> None:
    blow(db)
    (said,) = one(db, f"SELECT pgtrickle.reset_fuse('fused', '{action}')")
    stored = one(
        db,
        "SELECT s.status, s.last_error_code, s.fuse_passes_until, s.fuse_skips_until, r.reason"
        " FROM pgtrickle.pgt_stream_tables s LEFT JOIN pgtrickle.pgt_reinitializations r USING (pgt_id)"
        " WHERE s.pgt_name = 'fused'",
    )
    match action:
        case "apply":
            assert said == "500 change rows up to 0/20 are let through once"
            assert stored == ("ACTIVE", None, "0/20", None, None)
        case "REINITIALIZE":
            assert said == "public.fused is computed as a whole, and rows that differ are written"
            assert stored == ("SUSPENDED", "FuseBlown", None, None, "REINITIALIZE")
        case _:
            assert said == (
                "500 change rows up to 0/20 are skipped: public.fused is not equal to its query until it is"
                " reinitialized; the changes are not skipped in what reads it: public.reader, public.far"
            )
            assert stored == ("ACTIVE", None, None, "0/20", None)
            assert states(db)["public.fused"] == "skipping changes"
    assert "blown" not in states(db).values() and states(db)["public.reader"] == "off"
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match="is not blown"), db.transaction():
        db.execute("SELECT pgtrickle.reset_fuse('fused', 'apply')")


def test_skipped_changes_are_shown_everywhere(db: Connection) -> None:
    query = "SELECT severity, detail FROM pgtrickle.health_check() WHERE check_name = 'fuses'"
    assert one(db, query)[0] == "OK" and one(db, "SELECT unequal FROM pgtrickle.quick_health") == (0,)
    db.execute(
        "UPDATE pgtrickle.pgt_stream_tables SET fuse_skipped_at = now(), fuse_skipped_changes = 500"
        " WHERE pgt_name = 'fused'"
    )
    other = "not equal: changes were skipped of public.fused"
    assert states(db) == {
        "public.fused": "not equal: changes were skipped",
        "public.reader": other,
        "public.far": other,
        "public.apart": "off",
    }
    severity, detail = one(db, query)
    assert severity == "WARNING" and "public.fused: it is not equal to its query: 500 change rows" in detail
    assert "public.far: it has changes that were skipped by reset_fuse of public.fused" in detail
    assert one(db, "SELECT unequal FROM pgtrickle.quick_health") == (3,)


def test_only_the_owner_decides(db: Connection) -> None:
    blow(db)
    db.execute("CREATE ROLE fuse_stranger")
    db.execute("GRANT USAGE ON SCHEMA pgtrickle, public TO fuse_stranger")
    db.execute("GRANT SELECT, UPDATE ON ALL TABLES IN SCHEMA pgtrickle TO fuse_stranger")
    with pytest.raises(errors.InsufficientPrivilege, match="must be owner of stream table"), db.transaction():
        db.execute("SET LOCAL ROLE fuse_stranger")
        db.execute("SELECT pgtrickle.reset_fuse('public.fused')")
    assert states(db)["public.fused"] == "blown"


def test_two_sessions_decide_once(installed: tuple[Connection, str]) -> None:
    first, url = installed
    blow(first)
    try:
        outcomes: list[str] = []

        def decide() -> None:
            with psycopg.connect(url) as second:
                try:
                    second.execute("SELECT pgtrickle.reset_fuse('fused', 'skip_changes')")
                    outcomes.append("skipped")
                except errors.ObjectNotInPrerequisiteState as error:
                    outcomes.append(str(error.diag.message_primary))

        other = threading.Thread(target=decide)
        with first.transaction():
            first.execute("SELECT pgtrickle.reset_fuse('fused', 'apply')")
            other.start()
            other.join(0.3)
            assert outcomes == [], "it waits for the first decision"
        other.join(30)
        assert outcomes == ["the fuse of stream table public.fused is not blown"]
        stored = "SELECT fuse_skips_until, fuse_passes_until FROM pgtrickle.pgt_stream_tables WHERE pgt_name = 'fused'"
        assert one(first, stored) == (None, "0/20")
    finally:
        first.execute(
            "UPDATE pgtrickle.pgt_stream_tables SET status = 'ACTIVE', last_error_code = NULL, fuse_passes_until = NULL"
        )


def test_only_ordinary_refreshes_are_samples(db: Connection) -> None:
    (pgt_id,) = one(db, "SELECT pgt_id FROM pgtrickle.pgt_stream_tables WHERE pgt_name = 'apart'")
    for rows, action, reason, detail, status in (
        (1, "DIFFERENTIAL", "INCREMENTAL", None, "COMPLETED"),
        (2, "FULL", "INITIAL", None, "COMPLETED"),
        (3, "FULL", "CHANGE_RATIO", "many", "COMPLETED"),
        (4, "DIFFERENTIAL", "INCREMENTAL", "let through by reset_fuse", "COMPLETED"),
        (4, "DIFFERENTIAL", "INCREMENTAL", "let through by reset_fuse; catches up", "COMPLETED"),
        (4, "DIFFERENTIAL", "MODE", "catches up", "COMPLETED"),
        (5, "DIFFERENTIAL", "INCREMENTAL", None, "FAILED"),
        (6, "FULL", "REINITIALIZE", "", "COMPLETED"),
        (0, "DIFFERENTIAL", "INCREMENTAL", None, "COMPLETED"),
        (7, "DIFFERENTIAL", "INCREMENTAL", "", "COMPLETED"),
    ):
        db.execute(
            "INSERT INTO pgtrickle.pgt_refresh_history (pgt_id, action, refresh_reason, refresh_reason_detail, status,"
            " initiated_by, rows_in, rows_inserted, rows_deleted, tick_watermark_lsn, start_time,"
            " end_time) VALUES (%s, %s, %s, %s, %s, 'SCHEDULER', %s, 0, 0, '0/20', now(), now())",
            (pgt_id, action, reason, detail, status, rows),
        )
    samples = FuseStore(on(db))
    assert samples.read(pgt_id, 10) == [1, 3, 7]
    assert samples.read(pgt_id, 2) == [3, 7], "the last ones"


@pytest.mark.parametrize(
    ("call", "match"),
    [
        ("resume_stream_table('fused')", "cannot be resumed: the fuse is blown"),
        ("reinitialize_stream_table('fused')", "cannot be computed as a whole: the fuse is blown"),
        ("reinitialize_stream_table('apart', cascade => true)", ""),
        ("alter_stream_table('fused', 'SELECT id, kind || ''!'' AS kind FROM orders')", "cannot be given a new query"),
        ("alter_stream_table('fused', 'SELECT kind FROM orders')", "cannot be given a new query: the fuse is blown"),
        ("refresh_stream_table('fused')", "cannot be refreshed: the fuse is blown"),
        ("wait_for('fused')", "cannot be refreshed: the fuse is blown"),
        ("alter_stream_table('fused', fuse => 'off', schedule => '9m')", ""),
        ("resume_all()", ""),
        ("pause_all()", ""),
        (
            "_request_reinitialize(pgt_id, 'REPAIR', '') FROM pgtrickle.pgt_stream_tables WHERE pgt_name = 'fused'",
            "",
        ),
        ("note_resync('test')", ""),
    ],
)
@pytest.mark.parametrize("state", ["as it blew", "paused meanwhile", "suspended meanwhile"])
def test_only_reset_fuse_ends_a_blown_fuse(db: Connection, state: str, call: str, match: str) -> None:
    blow(db)
    set_to = {
        "paused meanwhile": "status = 'PAUSED', last_error_code = NULL, last_error_message = NULL",
        "suspended meanwhile": "last_error_code = 'PublishingFailed', last_error_message = 'the topic is full'",
    }
    if state in set_to:
        db.execute(f"UPDATE pgtrickle.pgt_stream_tables SET {set_to[state]} WHERE pgt_name = 'fused'".encode())
    if match:
        with pytest.raises(errors.ObjectNotInPrerequisiteState, match=match) as raised, db.transaction():
            db.execute(f"SELECT pgtrickle.{call}".encode())
        assert "reset_fuse('public.fused', 'apply')" in str(raised.value.diag.message_hint)
    else:
        db.execute(f"SELECT pgtrickle.{call}".encode())
    assert states(db)["public.fused"] == "blown"
    # Only somebody's own request takes a reader past it.
    assert ("held" in states(db)["public.far"]) != call.startswith("note_resync")
    (row,) = [row for row in StreamTableStore(on(db)).all() if row.pgt_name == "fused"]
    assert row.is_fuse_blown and not row.in_service
    with db.cursor() as cursor:
        assert not lock_in_service(cursor, row.pgt_id)
    shown = one(db, "SELECT detail FROM pgtrickle.fuse_status() WHERE state = 'blown'")
    assert shown == ("the fuse is blown",)


def test_a_request_of_meanwhile_is_carried_out_after_the_reset(db: Connection) -> None:
    blow(db)
    db.execute(
        "SELECT pgtrickle._request_reinitialize(pgt_id, 'AUTO_SCHEMA_EVOLUTION', 'a column was added')"
        " FROM pgtrickle.pgt_stream_tables WHERE pgt_name = 'fused'"
    )
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match="it is to be computed as a whole"), db.transaction():
        db.execute("SELECT pgtrickle.reset_fuse('fused', 'skip_changes')")
    assert one(db, "SELECT pgtrickle.reset_fuse('fused', 'apply')") == (
        "public.fused: it is to be computed as a whole (AUTO_SCHEMA_EVOLUTION: a column was added)",
    )
    assert states(db)["public.fused"] == "off"
    (row,) = [row for row in StreamTableStore(on(db)).all() if row.pgt_name == "fused"]
    assert row.in_service and row.reinit_reason == "AUTO_SCHEMA_EVOLUTION"


def test_another_suspension_of_meanwhile_outlives_the_reset(db: Connection) -> None:
    blow(db)
    db.execute(
        "UPDATE pgtrickle.pgt_stream_tables SET last_error_code = 'PublishingFailed', last_error_message = 'it is full'"
        " WHERE pgt_name = 'fused'"
    )
    assert one(db, "SELECT pgtrickle.reset_fuse('fused', 'apply')")[0].endswith(
        "it is suspended: resume_stream_table puts it back into service"
    )
    query = "SELECT status, last_error_message FROM pgtrickle.pgt_stream_tables WHERE pgt_name = 'fused'"
    assert one(db, query) == ("SUSPENDED", "it is full") and states(db)["public.fused"] == "off"


def test_what_nobody_can_count_is_applied_as_a_whole(db: Connection) -> None:
    blow(db, changes=None)
    assert one(db, "SELECT changes, row_limit FROM pgtrickle.fuse_status() WHERE state = 'blown'") == (None, 100)
    with db.transaction(force_rollback=True):
        (said,) = one(db, "SELECT pgtrickle.reset_fuse('fused', 'skip_changes')")
        assert said.startswith("an unknown number of change rows up to 0/20 are skipped")
    (said,) = one(db, "SELECT pgtrickle.reset_fuse('fused', 'apply')")
    assert said == "public.fused is computed as a whole, and rows that differ are written"
    assert states(db)["public.fused"] == "off"
