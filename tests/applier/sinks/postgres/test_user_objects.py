"""Objects that users add to a stream table keep working: triggers, foreign keys, indexes, grants, publications."""

from __future__ import annotations

import contextlib
import secrets
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg import errors

from applier.catalog.install import install_catalog
from applier.errors import TargetError
from applier.sinks.postgres import write_progress
from applier.sinks.postgres.merge_sql import MERGE_SINCE
from tests import oracle
from tests.applier.sinks.stream_tables import Bag, Connection, delta, executed, held, make, sink

NOW = datetime(2024, 2, 29, tzinfo=UTC)


@pytest.fixture
def db(database: str) -> Iterator[Connection]:
    with psycopg.connect(database, autocommit=True) as connection:
        install_catalog(connection)
        yield connection


FIRST: Bag = Counter({(1, "one"): 1, (2, "two"): 1, (3, "three"): 1})
SECOND: Bag = Counter({(2, "zwei"): 1, (3, "three"): 1, (4, "four"): 1})


def test_triggers_foreign_keys_indexes_and_grants(db: Connection, database: str) -> None:
    table = make(db, "st", {"a": "int", "b": "text"}, (0,))
    role = f"reader_{secrets.token_hex(4)}"
    db.execute(
        "CREATE TABLE seen (op text, old text, new text);"
        "CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " INSERT INTO seen VALUES (tg_op, old.b, new.b); RETURN NULL; END $$;"
        "CREATE TRIGGER see AFTER INSERT OR UPDATE OR DELETE ON st FOR EACH ROW EXECUTE FUNCTION see();"
        "CREATE INDEX by_text ON st (b);"
        f"CREATE ROLE {role}; GRANT SELECT ON st TO {role}".encode()
    )
    to = sink(database)
    to.apply(table, delta(table, Counter(), FIRST, (0, 10)), NOW, executed("fill"))
    db.execute(
        "ALTER TABLE st ADD PRIMARY KEY (a); CREATE TABLE refers (a int REFERENCES st ON DELETE CASCADE);"
        "INSERT INTO refers VALUES (1), (2); DELETE FROM seen"
    )
    to.apply(table, delta(table, FIRST, SECOND, (10, 20)), NOW, executed("changes"))
    assert set(db.execute("TABLE seen").fetchall()) == {
        ("DELETE", "one", None),
        ("UPDATE", "two", "zwei"),
        ("INSERT", None, "four"),
    }
    assert db.execute("TABLE refers").fetchall() == [(2,)]
    with db.transaction(force_rollback=True):
        db.execute(f"SET LOCAL ROLE {role}".encode())
        assert db.execute("SELECT count(*) FROM st").fetchone() == (3,)
    db.execute(f"DROP OWNED BY {role}; DROP ROLE {role}".encode())
    db.execute("CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not today'; END $$")
    db.execute("CREATE TRIGGER no BEFORE DELETE ON st FOR EACH ROW WHEN (old.a = 3) EXECUTE FUNCTION no()")
    with pytest.raises(TargetError, match=r"a = 3.*not today"):
        to.apply(table, delta(table, SECOND, Counter(), (20, 30)), NOW, executed("changes"))


def test_a_row_is_deleted_and_not_one_that_looks_or_compares_the_same(db: Connection, database: str) -> None:
    """A cast of a user gives the same text for different values; a collation takes different texts for equal."""
    db.execute(
        "CREATE TYPE pair AS (a int, b int);"
        "CREATE FUNCTION same(pair) RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT 'same' $$;"
        "CREATE CAST (pair AS text) WITH FUNCTION same(pair)"
    )
    kinds = [("pairs", "pair", ("(1,1)", "(2,2)", "(,)")), ("scaled", "numeric", ("1.0", "1.00", "2"))]
    # A build without ICU has no such collation.
    with contextlib.suppress(errors.FeatureNotSupported):
        db.execute("CREATE COLLATION any_case (provider = icu, locale = 'und-u-ks-level2', deterministic = false)")
        kinds.append(("spelled", "text COLLATE any_case", ("a", "A", "b")))
    for name, kind, values in kinds:
        for place, gone in enumerate(values):
            table, to = make(db, f"{name}_{place}", {"v": kind}, None), sink(database)
            all_rows: Bag = Counter({(value,): 1 for value in values})
            to.apply(table, delta(table, Counter(), all_rows, (0, 10)), NOW, executed("fill"))
            to.apply(table, delta(table, Counter({(gone,): 1}), Counter(), (10, 20)), NOW, executed("changes"))
            left = db.execute(f"SELECT concat(v) FROM {table.table.quoted}".encode()).fetchall()
            assert sorted(str(value) for (value,) in left) == sorted(set(values) - {gone}), (name, gone)


def test_the_row_identity_is_a_unique_index(db: Connection, database: str) -> None:
    """Before PostgreSQL 15 an index never treats NULLs as equal, so one over nullable columns is not unique."""
    since = db.info.server_version >= MERGE_SINCE
    begins, ends = ("CREATE UNIQUE INDEX", " NULLS NOT DISTINCT") if since else ("CREATE INDEX", "")
    for name, key, columns in (("one", (0,), "a"), ("both", (1, 0), "b, a"), ("none", None, None)):
        table = make(db, name, {"a": "int", "b": "text"}, key)
        sink(database).apply(table, delta(table, Counter(), FIRST, (0, 10)), NOW, executed("fill"))
        made = db.execute("SELECT indexdef FROM pg_indexes WHERE tablename = %s", (name,)).fetchall()
        assert [str(index[0]).startswith(begins) for index in made] == ([] if key is None else [True])
        assert all(f"({columns}){ends}" in str(index[0]) for index in made)


def test_the_progress_of_a_long_write(db: Connection, database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other sessions see rows, rate and remaining time while the transaction is open."""
    monkeypatch.setattr(write_progress, "REPORT_EVERY_S", 0.0)
    table = make(db, "st", {"a": "int"}, (0,))
    seen = (
        "SELECT writing_rows_done, writing_rows_total, writing_rows_per_s > 0, writing_eta > '0 s'"
        " FROM pgtrickle.pg_stat_stream_tables"
    )
    with write_progress.WriteProgress(database, table) as progress:
        time.sleep(0.02)
        progress.report(250, 1000)
        assert db.execute(seen).fetchone() == (250, 1000, True, True)
    assert db.execute(seen).fetchone() == (None, None, None, None)


@pytest.mark.parametrize(
    "write", ["INSERT INTO st VALUES (9, '')", "UPDATE st SET b = ''", "TRUNCATE st", "DELETE FROM st"]
)
def test_nobody_else_writes_unless_it_is_allowed(db: Connection, write: str) -> None:
    make(db, "st", {"a": "int", "b": "text"}, (0,))
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match=r"of stream table public.st is refused"):
        db.execute(write.encode())
    db.execute("SELECT pgtrickle.allow_direct_dml('st')")
    install_catalog(db)
    db.execute(write.encode())
    db.execute("SELECT pgtrickle.allow_direct_dml('st', false)")
    with pytest.raises(errors.ObjectNotInPrerequisiteState):
        db.execute(write.encode())


def test_a_subscriber_receives_what_happens(db: Connection, database: str, second_database: str) -> None:
    table = make(db, "st", {"a": "int", "b": "text"}, (0,))
    to = sink(database)
    assert db.execute("SELECT pgtrickle.stream_table_to_publication('st')").fetchone() == ("pgt_pub_st",)
    assert db.execute("SELECT publication FROM pgtrickle.pg_stat_stream_tables").fetchone() == ("pgt_pub_st",)
    # A user dropped it: filling creates it again.
    db.execute("DROP PUBLICATION pgt_pub_st")
    to.apply(table, delta(table, Counter(), FIRST, (0, 10)), NOW, executed("fill"))
    name = f"sub_{secrets.token_hex(4)}"
    db.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (name,))
    url = urlsplit(database)
    with psycopg.connect(second_database, autocommit=True) as subscriber:
        subscriber.execute("CREATE TABLE st (a int, b text)")
        subscriber.execute(
            f"CREATE SUBSCRIPTION {name} CONNECTION '{url.geturl()}' PUBLICATION pgt_pub_st"
            f" WITH (create_slot = false, slot_name = '{name}')".encode()
        )
        try:
            arrives(subscriber, FIRST)
            to.apply(table, delta(table, FIRST, SECOND, (10, 20)), NOW, executed("changes"))
            arrives(subscriber, SECOND)
            assert held(db, table) == SECOND
        finally:
            subscriber.execute(f"DROP SUBSCRIPTION {name}".encode())
    db.execute("SELECT pgtrickle.drop_stream_table('st')")
    assert db.execute("SELECT count(*) FROM pg_publication WHERE pubname = 'pgt_pub_st'").fetchone() == (0,)


def arrives(subscriber: Connection, expected: Bag) -> None:
    def check() -> None:
        oracle.assert_same(expected, Counter(subscriber.execute("TABLE st").fetchall()), "subscriber")

    oracle.eventually(check)
