"""Gates, watermarks and refresh groups as the SQL functions keep them, without running binaries."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import errors
from psycopg.conninfo import make_conninfo

from applier.catalog.database import Database
from applier.catalog.dependencies import DependencyStore
from applier.catalog.install import install_catalog
from tests.fixtures.postgres import PostgresServer

Connection = psycopg.Connection[Any]


@pytest.fixture(scope="module")
def installed(postgres: PostgresServer) -> Iterator[Connection]:
    with psycopg.connect(postgres.url, autocommit=True) as server:
        server.execute("CREATE DATABASE gates")
        with psycopg.connect(postgres.url, dbname="gates", autocommit=True) as connection:
            install_catalog(connection)
            for name in ("orders", "lines", "others", "unread"):
                connection.execute(f"CREATE TABLE {name} (id int PRIMARY KEY)".encode())
            connection.execute("CREATE TABLE parts (id int PRIMARY KEY) PARTITION BY RANGE (id)")
            connection.execute("CREATE TABLE part_1 PARTITION OF parts FOR VALUES FROM (0) TO (9)")
            for name, query in {
                "of_orders": "SELECT id FROM orders",
                "of_lines": "SELECT id FROM lines",
                "of_both": "SELECT o.id FROM of_orders o JOIN of_lines l USING (id)",
                "of_others": "SELECT id FROM others",
                "of_parts": "SELECT id FROM parts",
            }.items():
                connection.execute("SELECT pgtrickle.create_stream_table(%s, %s)", (name, query))
            yield connection
        server.execute("DROP DATABASE gates (FORCE)")


@pytest.fixture
def db(installed: Connection) -> Iterator[Connection]:
    with installed.transaction(force_rollback=True):
        yield installed


def refused(db: Connection, call: str, match: str) -> None:
    """The call raises one error of a bad value, which says what to do, and changes nothing."""
    tables = ("pgt_source_gates", "pgt_watermarks", "pgt_watermark_groups", "pgt_refresh_groups")
    state = [db.execute(f"TABLE pgtrickle.{table}".encode()).fetchall() for table in tables]
    with pytest.raises(errors.DatabaseError, match=match) as raised, db.transaction():
        db.execute(f"SELECT pgtrickle.{call}".encode())
    assert raised.value.diag.message_hint, raised.value
    assert [db.execute(f"TABLE pgtrickle.{table}".encode()).fetchall() for table in tables] == state


def held(db: Connection, name: str) -> list[str]:
    found = db.execute(
        "SELECT h.name FROM pgtrickle.pgt_stream_tables s, pgtrickle._held_by(s.pgt_id) h WHERE s.pgt_name = %s",
        (name,),
    )
    return [row[0] for row in found.fetchall()]


def test_a_gate_holds_every_reader_of_its_source(db: Connection) -> None:
    version = db.execute("SELECT pgtrickle._gates_version()").fetchone()
    assert version == (None,), "nothing is read while there is no gate"
    (at,) = db.execute("SELECT pgtrickle.gate_source('orders')").fetchall()[0]
    gates = db.execute("SELECT source, gated, gate_lsn, held_stream_tables FROM pgtrickle.source_gates()").fetchall()
    assert gates == [("public.orders", True, at, ["public.of_both", "public.of_orders"])]
    assert held(db, "of_both") == ["public.orders"] == held(db, "of_orders")
    assert held(db, "of_lines") == [] == held(db, "of_others")
    assert db.execute("SELECT pgtrickle.gate_source('orders')").fetchone() == (at,), "a closed gate stays where it is"
    status = db.execute("SELECT source, stream_table, at_gate FROM pgtrickle.bootstrap_gate_status()").fetchall()
    assert status == [("public.orders", "public.of_both", False), ("public.orders", "public.of_orders", False)]
    closed = db.execute("SELECT pgtrickle._gates_version()").fetchone()
    assert db.execute("SELECT pgtrickle.ungate_source('public.orders')").fetchone() == (True,)
    assert db.execute("SELECT pgtrickle._gates_version()").fetchone() not in (closed, (None,))
    assert held(db, "of_both") == []
    assert db.execute("SELECT pgtrickle.ungate_source('orders')").fetchone() == (False,)
    (again,) = db.execute("SELECT pgtrickle.gate_source('orders')").fetchall()[0]
    assert db.execute("SELECT %s::pg_lsn > %s::pg_lsn", (again, at)).fetchone() == (True,)


def test_a_partitioned_source_is_gated_by_its_root(db: Connection) -> None:
    is_no_source = pytest.raises(errors.WrongObjectType, match="table part_1 is not a captured source")
    with is_no_source as raised, db.transaction():
        db.execute("SELECT pgtrickle.gate_source('part_1')")
    assert "name its root public.parts" in (raised.value.diag.message_hint or "")
    db.execute("SELECT pgtrickle.gate_source('parts')")
    assert held(db, "of_parts") == ["public.parts"]


def test_the_gate_of_a_dropped_source_holds_nobody(db: Connection) -> None:
    db.execute("SELECT pgtrickle.gate_source('others')")
    db.execute("DROP TABLE others")
    assert held(db, "of_others") == []
    assert db.execute("SELECT count(*) FROM pgtrickle.source_gates()").fetchone() == (0,)
    assert db.execute("SELECT count(*) FROM pgtrickle._gates()").fetchone() == (0,)
    detail = db.execute("SELECT detail FROM pgtrickle.health_check() WHERE check_name = 'gates'").fetchone()
    assert detail == ("no source is gated",)


def test_a_commit_that_changes_a_gate_is_seen_before_its_rows_are(db: Connection, postgres: PostgresServer) -> None:
    """Its position may be before the frontier of a tick that cannot see the rows yet: readers wait for it."""
    opened = Database(make_conninfo(postgres.url, dbname="gates"))
    store = DependencyStore(opened)
    (relid,) = db.execute("SELECT 'orders'::regclass::oid::int8").fetchall()[0]
    for call in ("gate_source('orders')", "advance_watermark('orders', now())"):
        assert not any(relid in session.locked for session in store.sessions_at_work())
        with db.transaction(force_rollback=True):
            db.execute(f"SELECT pgtrickle.{call}".encode())
            assert any(relid in session.locked for session in store.sessions_at_work())
    opened.close()


def test_whoever_may_only_read_may_not_gate(db: Connection) -> None:
    db.execute("CREATE ROLE gate_reader")
    db.execute("GRANT USAGE ON SCHEMA pgtrickle TO gate_reader")
    db.execute("GRANT SELECT ON ALL TABLES IN SCHEMA pgtrickle TO gate_reader")
    db.execute("SET LOCAL ROLE gate_reader")
    assert db.execute("SELECT count(*) FROM pgtrickle.source_gates()").fetchone() == (0,)
    for call in ("gate_source('orders')", "advance_watermark('orders', now())"):
        with pytest.raises(errors.InsufficientPrivilege, match="permission denied for table"), db.transaction():
            db.execute(f"SELECT pgtrickle.{call}".encode())
    db.execute("RESET ROLE")
    db.execute("GRANT INSERT, UPDATE ON pgtrickle.pgt_source_gates, pgtrickle.pgt_watermarks TO gate_reader")
    db.execute("GRANT UPDATE ON pgtrickle.pgt_watermark_groups TO gate_reader")
    db.execute("SET LOCAL ROLE gate_reader")
    for call in ("gate_source('orders')", "ungate_source('orders')", "advance_watermark('orders', now())"):
        db.execute(f"SELECT pgtrickle.{call}".encode())
    db.execute("RESET ROLE")


@pytest.mark.parametrize("function", ["wait_for", "refresh_stream_table", "refresh_if_stale"])
def test_nobody_waits_for_what_is_held(db: Connection, function: str) -> None:
    db.execute("SELECT pgtrickle.gate_source('orders')")
    with pytest.raises(errors.ObjectNotInPrerequisiteState) as raised, db.transaction():
        db.execute(f"SELECT pgtrickle.{function}('of_both')".encode())
    assert "of_both is held: source public.orders is gated since" in str(raised.value)
    assert raised.value.diag.message_hint == "SELECT pgtrickle.ungate_source('public.orders')"
    with pytest.raises(errors.QueryCanceled, match="did not reach"), db.transaction():
        db.execute("SELECT pgtrickle.wait_for('of_others', timeout => '10 ms')")


@pytest.mark.parametrize(
    ("call", "match"),
    [
        ("gate_source('unread')", "table unread is not a captured source"),
        ("gate_source('of_orders')", "table of_orders is not a captured source"),
        ("gate_source('nowhere')", "there is no table nowhere"),
        ("gate_source(NULL)", "there is no table NULL"),
        ("ungate_source('unread')", "not a captured source"),
        ("advance_watermark('unread', now())", "not a captured source"),
        ("advance_watermark('orders', NULL)", "a watermark cannot be NULL"),
        ("advance_watermark('orders', 'infinity')", "a watermark cannot be infinity"),
        ("create_watermark_group('g', ARRAY['orders', 'unread'])", "table unread is not a captured source"),
        ("create_watermark_group('g', ARRAY['orders', 'nowhere'])", "there is no table nowhere"),
        ("create_watermark_group('g', ARRAY['orders', 'public.orders'])", "at least two different sources"),
        ("create_watermark_group('g', NULL)", "at least two different sources"),
        ("create_watermark_group('g', ARRAY['orders', 'lines'], -1)", "tolerance_secs -1 is out of bounds"),
        ("create_watermark_group('g', ARRAY['orders', 'lines'], 'NaN')", "tolerance_secs NaN is out of bounds"),
        ("create_watermark_group(' ', ARRAY['orders', 'lines'])", "needs a name"),
        ("drop_watermark_group('nothing')", "there is no watermark group nothing"),
        ("create_refresh_group('g', ARRAY['of_orders', 'orders'])", "there is no stream table orders"),
        ("create_refresh_group('g', ARRAY['of_orders'])", "at least two different stream tables"),
        ("create_refresh_group('g', ARRAY['of_orders', 'of_lines'], 'dirty')", "isolation 'dirty' is not known"),
        ("drop_refresh_group('nothing')", "there is no refresh group nothing"),
    ],
)
def test_a_bad_value_changes_nothing(db: Connection, call: str, match: str) -> None:
    refused(db, call, match)


def test_a_watermark_never_goes_back(db: Connection) -> None:
    db.execute("SELECT pgtrickle.advance_watermark('orders', '2026-01-02 00:00+00')")
    refused(db, "advance_watermark('orders', '2026-01-01 00:00+00')", "cannot go back")
    db.execute("SELECT pgtrickle.advance_watermark('orders', '2026-01-02 00:00+00')")
    db.execute("SELECT pgtrickle.advance_watermark('orders', '2026-01-03 00:00+00')")
    reached = db.execute("SELECT source, watermark = '2026-01-03 00:00+00' FROM pgtrickle.watermarks()").fetchall()
    assert reached == [("public.orders", True)]


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
@pytest.mark.parametrize(
    "call", ["advance_watermark('orders', now())", "create_watermark_group('g', '{orders,lines}')"]
)
def test_watermarks_are_compared_under_read_committed_only(
    installed: Connection, postgres: PostgresServer, level: str, call: str
) -> None:
    """An old snapshot would compare with watermarks that others have passed since."""
    with psycopg.connect(make_conninfo(postgres.url, dbname="gates")) as session:
        session.execute(f"SET TRANSACTION ISOLATION LEVEL {level}".encode())
        refused(session, call, f"is not possible in a {level.lower()} transaction")


def test_of_two_sessions_the_later_watermark_stays(installed: Connection, postgres: PostgresServer) -> None:
    """Whoever is second waits for the first, and is refused if it would go back from what that one has reached."""
    url, said = make_conninfo(postgres.url, dbname="gates"), []

    def advance(minute: int) -> None:
        with psycopg.connect(url) as session:
            try:
                session.execute("SELECT pgtrickle.advance_watermark('orders', %s)", (f"2026-01-01 00:{minute}+00",))
                said.append("advanced")
            except errors.InvalidParameterValue as error:
                said.append(str(error.diag.message_primary))

    try:
        for first, second, outcome in ((10, 5, "cannot go back"), (20, 30, "advanced")):
            said.clear()
            other = threading.Thread(target=advance, args=(second,))
            with psycopg.connect(url) as session:
                session.execute("SELECT pgtrickle.advance_watermark('orders', %s)", (f"2026-01-01 00:{first}+00",))
                other.start()
                other.join(0.3)
                assert said == [], "it waits for the first"
            other.join(30)
            assert len(said) == 1 and outcome in said[0]
            reached = installed.execute("SELECT extract(minute FROM watermark) FROM pgtrickle.watermarks()").fetchall()
            assert reached == [(max(first, second),)]
    finally:
        installed.execute("TRUNCATE pgtrickle.pgt_watermarks")


def test_of_two_loaders_that_advance_at_once_the_second_sees_the_first(
    installed: Connection, postgres: PostgresServer
) -> None:
    url = make_conninfo(postgres.url, dbname="gates")
    call = "SELECT pgtrickle.advance_watermark(%s, '2026-01-01 00:10+00')"
    installed.execute("SELECT pgtrickle.create_watermark_group('day', '{orders,lines}')")
    try:
        with psycopg.connect(url) as one, psycopg.connect(url) as two:
            one.execute(call, ("orders",))
            other = threading.Thread(target=two.execute, args=(call, ("lines",)))
            other.start()
            other.join(0.3)
            one.commit()
            other.join(30)
        assert installed.execute("SELECT aligned FROM pgtrickle.watermark_status()").fetchall() == [(True,)]
    finally:
        installed.execute("TRUNCATE pgtrickle.pgt_watermarks, pgtrickle.pgt_watermark_groups")


def test_a_group_with_a_dropped_source_says_so(db: Connection) -> None:
    db.execute("SELECT pgtrickle.create_watermark_group('day', '{orders,lines,others}')")
    db.execute("SELECT pgtrickle.advance_watermark('orders', now())")
    db.execute("SELECT pgtrickle.advance_watermark('lines', now())")
    (relid,) = db.execute("SELECT 'others'::regclass::oid").fetchall()[0]
    db.execute("DROP TABLE others")
    (waits_for,) = db.execute("SELECT waits_for FROM pgtrickle.watermark_status()").fetchall()[0]
    assert waits_for == [f"dropped table {relid}"]
    problem = f"sources of it were dropped (oid {relid}): drop the group"
    with pytest.raises(errors.ObjectNotInPrerequisiteState) as raised, db.transaction():
        db.execute("SELECT pgtrickle.wait_for('of_both')")
    assert problem in str(raised.value) and "drop_watermark_group('day')" in str(raised.value.diag.message_hint)
    line = "SELECT severity, detail FROM pgtrickle.health_check() WHERE check_name = 'gates'"
    severity, detail = db.execute(line.encode()).fetchall()[0]
    assert severity == "WARNING" and problem in detail
    refused(db, "advance_watermark('others', now())", "there is no table others")
    db.execute("SELECT pgtrickle.drop_watermark_group('day')")
    assert held(db, "of_both") == []


def test_a_group_parts_and_meets_again(db: Connection) -> None:
    db.execute("SELECT pgtrickle.create_watermark_group('day', ARRAY['orders', 'lines'], 60)")
    refused(db, "create_watermark_group('day', ARRAY['orders', 'lines'])", "exists already")

    def status() -> tuple[Any, ...]:
        (found,) = db.execute(
            "SELECT aligned, waits_for, held_stream_tables, lag_secs, sources_with_watermark, sources_total, stuck"
            " FROM pgtrickle.watermark_status()"
        ).fetchall()
        return tuple(found)

    def advance(source: str, minute: int, second: int = 0) -> None:
        db.execute("SELECT pgtrickle.advance_watermark(%s, %s)", (source, f"2026-01-01 00:{minute:02}:{second:02}+00"))

    held_ones = ["public.of_both"]
    assert status() == (True, [], [], None, 0, 2, False), "a group without watermarks holds nothing"
    advance("orders", 10)
    assert status() == (False, ["public.lines"], held_ones, 0.0, 1, 2, False)
    assert held(db, "of_both") == ["day"] and held(db, "of_orders") == [], "who reads one of them goes on"
    (parted,) = db.execute("SELECT parted_lsn FROM pgtrickle.pgt_watermark_groups").fetchall()[0]
    advance("orders", 20)
    assert db.execute("SELECT parted_lsn FROM pgtrickle.pgt_watermark_groups").fetchone() == (parted,)
    advance("lines", 19)
    assert status() == (True, [], [], 60.0, 2, 2, False), "within the tolerance"
    advance("orders", 20, 1)
    assert status() == (False, ["public.lines"], held_ones, 61.0, 2, 2, False)
    db.execute("SELECT pgtrickle.set_setting('watermark_holdback_timeout', '1')")
    db.execute("UPDATE pgtrickle.pgt_watermark_groups SET parted_at = parted_at - interval '10 s'")
    assert status()[-1] is True
    is_held = pytest.raises(errors.ObjectNotInPrerequisiteState, match="the watermarks of group day are not aligned")
    with is_held, db.transaction():
        db.execute("SELECT pgtrickle.wait_for('of_both')")
    db.execute("SELECT pgtrickle.drop_watermark_group('day')")
    assert held(db, "of_both") == []


def test_the_health_check_names_gates_that_are_closed_for_long(db: Connection) -> None:
    line = "SELECT severity, detail FROM pgtrickle.health_check() WHERE check_name = 'gates'"
    assert db.execute(line.encode()).fetchone() == ("OK", "no source is gated")
    db.execute("SELECT pgtrickle.gate_source('orders')")
    assert db.execute(line.encode()).fetchall()[0][0] == "INFO"
    db.execute("UPDATE pgtrickle.pgt_source_gates SET gated_at = gated_at - interval '2 h'")
    severity, detail = db.execute(line.encode()).fetchall()[0]
    assert severity == "WARNING" and detail.startswith("source public.orders is gated for 02:00:0")


def test_a_refresh_group_compares_frontiers(db: Connection) -> None:
    db.execute("SELECT pgtrickle.create_refresh_group('page', ARRAY['of_orders', 'of_lines'])")
    refused(db, "create_refresh_group('page', ARRAY['of_both', 'of_others'])", "exists already")
    refused(db, "create_refresh_group('two', ARRAY['of_orders', 'of_others'])", "is in refresh group page already")
    line = "SELECT members, is_consistent, problem FROM pgtrickle.refresh_groups()"
    members = ["public.of_lines", "public.of_orders"]
    assert db.execute(line.encode()).fetchone() == (members, False, "not all are filled")
    db.execute(
        "INSERT INTO pgtrickle.pgt_frontiers (pgt_id, frontier, refreshed_at)"
        " SELECT pgt_id, '0/10', now() FROM pgtrickle.pgt_stream_tables"
    )
    assert db.execute(line.encode()).fetchone() == (members, True, None)
    db.execute(
        "UPDATE pgtrickle.pgt_frontiers f SET frontier = '0/20' FROM pgtrickle.pgt_stream_tables s"
        " WHERE s.pgt_id = f.pgt_id AND s.pgt_name = 'of_lines'"
    )
    assert db.execute(line.encode()).fetchone() == (members, False, "not all have reached the latest frontier")
    db.execute("SELECT pgtrickle.gate_source('orders')")
    (found,) = db.execute(line.encode()).fetchall()
    assert found[2].startswith("public.of_orders is held: source public.orders is gated")
    db.execute("SELECT pgtrickle.drop_refresh_group('page')")
    assert db.execute(line.encode()).fetchall() == []
