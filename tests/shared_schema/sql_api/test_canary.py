"""Canaries and functions for several stream tables, by SQL alone; rows and frontiers are set as by an applier."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator

import psycopg
import pytest
from psycopg import errors

from applier.catalog.install import install_catalog

Connection = psycopg.Connection[tuple[object, ...]]


@pytest.fixture
def db(database: str) -> Iterator[Connection]:
    with psycopg.connect(database, autocommit=True) as connection:
        install_catalog(connection)
        connection.execute("CREATE TABLE orders (id int PRIMARY KEY, kind text, amount float8)")
        connection.execute(
            "SELECT pgtrickle.create_stream_table('sales', 'SELECT kind, amount FROM orders', schedule => '7m',"
            " full_policy => 'error', auto_threshold => 0.3)"
        )
        yield connection


def rows(db: Connection, query: str, *arguments: object) -> list[tuple[object, ...]]:
    return db.execute(query.encode(), arguments or None).fetchall()


def fill(db: Connection, name: str, values: str, frontier: str = "0/10") -> None:
    """Write what an applier would have written."""
    db.execute(f"ALTER TABLE {name} DISABLE TRIGGER pgt_refuse_dml".encode())
    db.execute(f"DELETE FROM {name}".encode())
    db.execute(f"INSERT INTO {name} VALUES {values}".encode())
    db.execute(
        "WITH filled AS (UPDATE pgtrickle.pgt_stream_tables SET status = 'ACTIVE'"
        " WHERE pgt_relid = %s::regclass RETURNING pgt_id)"
        " INSERT INTO pgtrickle.pgt_frontiers (pgt_id, frontier) SELECT pgt_id, %s::pg_lsn FROM filled"
        " ON CONFLICT (pgt_id) DO UPDATE SET frontier = excluded.frontier",
        (name, frontier),
    )


def begin(db: Connection, query: str = "SELECT kind, amount * 2 AS amount FROM orders") -> str:
    return str(rows(db, "SELECT pgtrickle.canary_begin('sales', %s)", query)[0][0])


def test_a_canary_has_the_options_and_no_readers(db: Connection) -> None:
    db.execute("SELECT pgtrickle.stream_table_to_publication('sales', 'outside')")
    assert begin(db) == "public.sales__canary"
    options = "SELECT schedule, full_policy, auto_threshold FROM pgtrickle.pgt_stream_tables ORDER BY pgt_id"
    assert rows(db, options) == [("7m", "error", 0.3)] * 2
    assert rows(db, "SELECT pgtrickle.stream_table_spec('sales__canary') ->> 'publication'") == [(None,)]
    assert rows(db, "SELECT name, canary, status, is_comparable, new_query FROM pgtrickle.canary_status()") == [
        (
            "public.sales",
            "public.sales__canary",
            "INITIALIZING",
            False,
            "SELECT kind, amount * 2 AS amount FROM orders",
        )
    ]
    with pytest.raises(errors.WrongObjectType, match="is a canary, which no other stream table can read"):
        db.execute("SELECT pgtrickle.create_stream_table('over', 'TABLE sales__canary')")
    with pytest.raises(errors.DuplicateObject, match="has a canary already"):
        begin(db)
    with pytest.raises(errors.ObjectInUse, match="itself the trial"):
        db.execute("SELECT pgtrickle.canary_begin('sales__canary', 'SELECT 1 AS one')")
    db.execute("SELECT pgtrickle.canary_cancel('sales')")
    assert rows(db, "SELECT to_regclass('sales__canary'), count(*) FROM pgtrickle.pgt_stream_tables") == [(None, 1)]
    with pytest.raises(errors.UndefinedObject, match="has no canary"):
        db.execute("SELECT pgtrickle.canary_cancel('sales')")


def test_a_bad_beginning_changes_nothing(db: Connection) -> None:
    db.execute("SELECT pgtrickle.create_stream_table('reader', 'SELECT kind, amount FROM sales')")
    for query, error in {
        "SELECT nothing FROM orders": errors.UndefinedColumn,
        "SELECT kind, amount FROM reader": errors.InvalidTableDefinition,
        "SELECT 1 AS a; SELECT 2 AS b": errors.SyntaxError,
    }.items():
        with pytest.raises(error):
            begin(db, query)
    db.execute("SELECT pgtrickle.pause_stream_table('sales')")
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match="is paused: there is nothing to compare"):
        begin(db)
    long = "x" * 60
    db.execute("SELECT pgtrickle.create_stream_table(%s, 'TABLE orders')", (long,))
    with pytest.raises(errors.NameTooLong):
        db.execute("SELECT pgtrickle.canary_begin(%s, 'TABLE orders')", (long,))
    assert rows(db, "SELECT count(*) FROM pgtrickle.pgt_stream_tables WHERE canary_of IS NOT NULL") == [(0,)]


def test_rows_are_compared_at_one_frontier_only(db: Connection) -> None:
    begin(db)
    diff = "SELECT row_source, diff_row FROM pgtrickle.canary_diff('sales')"
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match="neither is filled yet"):
        rows(db, diff)
    fill(db, "sales", "('a', 0.1), ('a', 0.1), ('b', NULL), ('c', 3)")
    with pytest.raises(
        errors.ObjectNotInPrerequisiteState, match=r"stands at 0/10, public\.sales__canary at no frontier yet"
    ):
        rows(db, diff)
    # As many copies as one side has more; floats to their last digit; NULL equals NULL.
    fill(db, "sales__canary", "('a', 0.1), ('b', NULL), ('c', 3.0000000000000004)", "0/20")
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match=r"public\.sales__canary at 0/20") as refused:
        rows(db, diff)
    assert "wait_for('public.sales__canary')" in (refused.value.diag.message_hint or "")
    fill(db, "sales", "('a', 0.1), ('a', 0.1), ('b', NULL), ('c', 3)", "0/20")
    assert rows(db, diff) == [
        ("current", {"kind": "a", "amount": 0.1}),
        ("current", {"kind": "c", "amount": 3}),
        ("canary", {"kind": "c", "amount": 3.0000000000000004}),
    ]
    assert rows(db, "SELECT is_comparable FROM pgtrickle.canary_status()") == [(True,)]
    db.execute(
        "UPDATE pgtrickle.pgt_stream_tables SET status = 'SUSPENDED', last_error_message = 'no'"
        " WHERE canary_of IS NOT NULL"
    )
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match=r"public\.sales__canary is suspended: no"):
        rows(db, diff)
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match=r"cannot be promoted: .*is suspended: no"):
        db.execute("SELECT pgtrickle.canary_promote('sales')")


def test_columns_may_be_called_like_what_the_comparison_uses(db: Connection) -> None:
    columns = "kind AS t, amount AS v, 1 AS k, 2 AS copy, 3 AS shown"
    db.execute("SELECT pgtrickle.create_stream_table('odd', %s)", (f"SELECT {columns} FROM orders",))
    db.execute("SELECT pgtrickle.canary_begin('odd', %s)", (f"SELECT {columns}, 4 AS more FROM orders",))
    fill(db, "odd", "('a', 1, 1, 2, 3), ('b', 1, 1, 2, 3)")
    fill(db, "odd__canary", "('a', 1, 1, 2, 3, 4), ('c', 1, 1, 2, 3, 4)")
    rest = {"v": 1, "k": 1, "copy": 2, "shown": 3}
    assert rows(db, "SELECT row_source, diff_row FROM pgtrickle.canary_diff('odd')") == [
        ("current", {"t": "b", **rest}),
        ("canary", {"t": "c", **rest, "more": 4}),
    ]


def test_rows_that_are_not_of_their_query_are_not_compared(db: Connection) -> None:
    begin(db)
    for name in ("sales", "sales__canary"):
        fill(db, name, "('a', 1)")
    comparable = "SELECT is_comparable FROM pgtrickle.canary_status()"
    assert rows(db, comparable) == [(True,)]
    with db.transaction(force_rollback=True):
        db.execute("UPDATE pgtrickle.pgt_stream_tables SET fuse_skipped_at = now() WHERE pgt_name = 'sales'")
        assert rows(db, comparable) == [(False,)]
        with pytest.raises(errors.ObjectNotInPrerequisiteState, match=r"changes of public\.sales were skipped"):
            rows(db, "SELECT pgtrickle.canary_diff('sales')")
    # The rows of the canary are still those of its old query: nobody has seen what would be promoted.
    db.execute("SELECT pgtrickle.alter_stream_table('sales__canary', 'SELECT kind, amount * 3 AS amount FROM orders')")
    assert rows(db, comparable) == [(False,)]
    for function in ("canary_diff", "canary_promote"):
        with pytest.raises(
            errors.ObjectNotInPrerequisiteState, match=r"a new query of public\.sales__canary is pending"
        ):
            rows(db, f"SELECT pgtrickle.{function}('sales')")
    assert rows(db, "SELECT count(*) FROM pgtrickle.pgt_stream_tables") == [(2,)]


def test_columns_that_only_one_side_has_are_shown_but_not_compared(db: Connection) -> None:
    begin(db, "SELECT kind, id FROM orders")
    fill(db, "sales", "('a', 1), ('b', 2)")
    fill(db, "sales__canary", "('a', 7), ('c', 8)")
    assert rows(db, "SELECT * FROM pgtrickle.canary_diff('sales')") == [
        ("current", {"kind": "b", "amount": 2}),
        ("canary", {"kind": "c", "id": 8}),
    ]


def test_a_column_may_have_any_name(db: Connection) -> None:
    db.execute(
        "SELECT pgtrickle.create_stream_table('t', 'SELECT id AS t, kind AS k, amount AS v, id AS copy, kind AS n,"
        " kind AS c, kind AS shown FROM orders')"
    )
    db.execute("SELECT pgtrickle.canary_begin('t', 'SELECT id AS t, kind AS k, amount AS v FROM orders')")
    fill(db, "t", "(1, 'a', 1, 1, 'b', 'c', 'd')")
    fill(db, "t__canary", "(2, 'a', 1)")
    assert rows(db, "SELECT * FROM pgtrickle.canary_diff('t')") == [
        ("current", {"t": 1, "k": "a", "v": 1, "copy": 1, "n": "b", "c": "c", "shown": "d"}),
        ("canary", {"t": 2, "k": "a", "v": 1}),
    ]


@pytest.mark.parametrize(
    ("state", "outcome"),
    [
        ("status = 'SUSPENDED', last_error_code = 'CalculationError', last_error_message = 'division by zero'", ""),
        ("status = 'PAUSED'", ""),
        ("status = 'SUSPENDED', fuse_blown_at = now(), fuse_blown_detail = 'it is blown'", "new query: it is blown"),
    ],
)
def test_a_stream_table_out_of_service_is_promoted_unless_its_fuse_is_blown(
    db: Connection, state: str, outcome: str
) -> None:
    begin(db)
    fill(db, "sales", "('a', 1)")
    fill(db, "sales__canary", "('a', 2)")
    db.execute(f"UPDATE pgtrickle.pgt_stream_tables SET {state} WHERE pgt_name = 'sales'".encode())
    if outcome:
        with pytest.raises(errors.ObjectNotInPrerequisiteState, match=outcome):
            db.execute("SELECT pgtrickle.canary_promote('sales')")
        assert rows(db, "SELECT count(*) FROM pgtrickle.canary_status()") == [(1,)], "the canary is still there"
    else:
        assert rows(db, "SELECT pgtrickle.canary_promote('sales')") == [("compatible",)]
        assert rows(db, "SELECT count(*) FROM pgtrickle.canary_status()") == [(0,)]


def request_reinitialize(db: Connection, name: str) -> None:
    db.execute(
        "SELECT pgtrickle._request_reinitialize(pgt_id, 'REPAIR', 'seen') FROM pgtrickle.pgt_stream_tables"
        " WHERE pgt_name = %s",
        (name,),
    )


def test_a_request_that_comes_while_a_canary_is_promoted_is_kept(db: Connection) -> None:
    requests = (
        "SELECT s.pgt_name, r.requested_at FROM pgtrickle.pgt_reinitializations r"
        " JOIN pgtrickle.pgt_stream_tables s USING (pgt_id)"
    )
    adopt = "SELECT pgtrickle._adopt(pgt_id, %s) FROM pgtrickle.pgt_stream_tables WHERE pgt_name = 'sales'"
    begin(db)
    fill(db, "sales", "('a', 1)")
    fill(db, "sales__canary", "('a', 2)")
    db.execute("SELECT pgtrickle.canary_promote('sales')")
    request_reinitialize(db, "sales")
    [(_, first)] = rows(db, requests)
    request_reinitialize(db, "sales")
    # The applier has computed the new rows since the first request, or since none.
    for seen in (None, first):
        with db.transaction(force_rollback=True):
            rows(db, adopt, seen)
            assert [name for name, _ in rows(db, requests)] == ["sales"]
    [(_, last)] = rows(db, requests)
    rows(db, adopt, last)
    assert rows(db, requests) == []
    # Likewise when another table replaces it.
    db.execute("SELECT pgtrickle.alter_stream_table('sales', 'SELECT kind, id FROM orders')")
    request_reinitialize(db, "sales")
    db.execute("SELECT pgtrickle._exchange(pgt_id) FROM pgtrickle.pgt_stream_tables WHERE replaces IS NOT NULL")
    assert [name for name, _ in rows(db, requests)] == ["sales"]


@pytest.mark.parametrize("first", ["canary_begin('sales', 'SELECT kind FROM orders')", "drop_stream_table('sales')"])
def test_a_canary_is_begun_while_its_stream_table_is_dropped(db: Connection, database: str, first: str) -> None:
    others = {
        "canary_begin('sales', 'SELECT kind FROM orders')": "drop_stream_table('sales')",
        "drop_stream_table('sales')": "canary_begin('sales', 'SELECT kind FROM orders')",
    }
    said = race(db, database, first, others[first])
    # One that was begun goes with its stream table; of one that is gone none is begun.
    assert said == [None if first.startswith("canary") else "there is no stream table sales"] or said == [
        "stream table sales was dropped"
    ]
    assert rows(db, "SELECT count(*) FROM pgtrickle.pgt_stream_tables") == [(0,)]
    assert rows(db, "SELECT to_regclass('sales'), to_regclass('sales__canary')") == [(None, None)]


def race(db: Connection, database: str, first: str, second: str) -> list[str | None]:
    """Run two calls at the same time; the second is there before the first commits. Return the errors of the second."""
    said: list[str | None] = []

    def run() -> None:
        with psycopg.connect(database) as session:
            try:
                session.execute(f"SELECT pgtrickle.{second}".encode())
                said.append(None)
            except errors.DatabaseError as error:
                said.append(error.diag.message_primary)

    other = threading.Thread(target=run)
    with db.transaction():
        db.execute(f"SELECT pgtrickle.{first}".encode())
        other.start()
        other.join(0.3)
    other.join(30)
    return said


def test_a_stream_table_that_is_dropped_meanwhile_stops_none_or_all(db: Connection, database: str) -> None:
    for name in ("one", "two"):
        db.execute("SELECT pgtrickle.create_stream_table(%s, 'TABLE orders')", (name,))
    options = "SELECT pgt_name, schedule FROM pgtrickle.pgt_stream_tables ORDER BY 1"
    said = race(
        db, database, "drop_stream_table('two')", "bulk_alter_stream_tables('{one,two}', '{\"schedule\": \"9m\"}')"
    )
    assert len(said) == 1 and said[0] is not None
    assert said[0] in (
        "there is no stream table two",
        ("no stream table was altered, because of public.two: there is no stream table public.two"),
    )
    assert rows(db, options) == [("one", "1s"), ("sales", "7m")]
    db.execute("SELECT pgtrickle.create_stream_table('two', 'TABLE orders')")
    said = race(db, database, "drop_stream_table('two')", "bulk_drop_stream_tables('{one,two}')")
    assert said == [None] and rows(db, options) == [("sales", "7m")]
    db.execute("SELECT pgtrickle.create_stream_table('two', 'TABLE orders')")
    db.execute("SELECT pgtrickle.pause_all()")
    assert race(db, database, "drop_stream_table('two')", "resume_all()") == [None]
    status = "SELECT pgt_name, status FROM pgtrickle.pgt_stream_tables"
    assert rows(db, status) == [("sales", "INITIALIZING")]


def test_dropping_a_stream_table_drops_its_canary(db: Connection) -> None:
    begin(db)
    db.execute("SELECT pgtrickle.drop_stream_table('sales')")
    assert rows(db, "SELECT count(*) FROM pgtrickle.pgt_stream_tables") == [(0,)]
    assert rows(db, "SELECT to_regclass('sales__canary')") == [(None,)]


def test_all_are_paused_and_resumed(db: Connection) -> None:
    for name in ("one", "two"):
        db.execute("SELECT pgtrickle.create_stream_table(%s, 'TABLE orders')", (name,))
    fill(db, "one", "(1, 'a', 1)")
    db.execute("UPDATE pgtrickle.pgt_stream_tables SET status = 'SUSPENDED' WHERE pgt_name = 'two'")
    status = "SELECT pgt_name, status FROM pgtrickle.pgt_stream_tables ORDER BY 1"
    assert rows(db, "SELECT pgtrickle.pause_all()") == [(2,)]
    assert rows(db, status) == [("one", "PAUSED"), ("sales", "PAUSED"), ("two", "SUSPENDED")]
    assert rows(db, "SELECT pgtrickle.resume_all()") == [(2,)]
    assert rows(db, status) == [("one", "ACTIVE"), ("sales", "INITIALIZING"), ("two", "SUSPENDED")]
    assert rows(db, "SELECT pgtrickle.resume_all()") == [(0,)]


def test_several_are_altered_or_none(db: Connection) -> None:
    db.execute("SELECT pgtrickle.create_stream_table('other', 'TABLE orders')")
    alter = "SELECT pgtrickle.bulk_alter_stream_tables(%s, %s)"
    options = "SELECT schedule, auto_threshold FROM pgtrickle.pgt_stream_tables ORDER BY pgt_id"
    wanted = json.dumps({"schedule": "9m", "auto_threshold": 0.7})
    assert rows(db, alter, ["sales", "other", "public.sales"], wanted) == [(2,)]
    assert rows(db, options) == [("9m", 0.7)] * 2
    with pytest.raises(errors.UndefinedTable, match="there is no stream table missing"):
        rows(db, alter, ["sales", "missing", "gone"], json.dumps({"schedule": "1m"}))
    with pytest.raises(
        errors.InvalidParameterValue, match=r"no stream table was altered, because of public\.sales: schedule"
    ):
        rows(db, alter, ["sales", "other"], json.dumps({"schedule": "sometimes"}))
    db.execute(
        "UPDATE pgtrickle.pgt_stream_tables SET replaces = (SELECT min(pgt_id) FROM pgtrickle.pgt_stream_tables)"
        " WHERE pgt_name = 'other'"
    )
    with pytest.raises(errors.ObjectInUse, match=r"no stream table was altered, because of public\.other"):
        rows(db, alter, ["sales", "other"], json.dumps({"schedule": "1m"}))
    for bad in ("{}", "[]", '{"query": "SELECT 1"}', '{"speed": 9}', "null"):
        with pytest.raises(errors.InvalidParameterValue):
            rows(db, alter, ["sales"], bad)
    with pytest.raises(errors.NullValueNotAllowed):
        rows(db, alter, ["sales", None], wanted)
    assert rows(db, options) == [("9m", 0.7)] * 2


def test_several_are_dropped_or_none(db: Connection) -> None:
    for name, query in {"base": "TABLE orders", "over": "TABLE base", "above": "TABLE over"}.items():
        db.execute("SELECT pgtrickle.create_stream_table(%s, %s)", (name, query))
    drop = "SELECT pgtrickle.bulk_drop_stream_tables(%s, cascade => %s)"
    with pytest.raises(
        errors.DependentObjectsStillExist, match=r"no stream table was dropped, because others read public\.base"
    ):
        rows(db, drop, ["sales", "base", "over"], False)
    with pytest.raises(errors.UndefinedTable, match="no stream table missing"):
        rows(db, drop, ["sales", "missing"], True)
    db.execute("CREATE VIEW uses AS TABLE base")
    with pytest.raises(
        errors.DependentObjectsStillExist, match=r"no stream table was dropped, because of public\.base"
    ):
        rows(db, drop, ["sales", "base"], True)
    assert rows(db, "SELECT count(*) FROM pgtrickle.pgt_stream_tables") == [(4,)]
    db.execute("DROP VIEW uses")
    assert rows(db, drop, ["base", "over", "above"], False) == [(3,)]
    db.execute("SELECT pgtrickle.create_stream_table('base', 'TABLE orders')")
    db.execute("SELECT pgtrickle.create_stream_table('over', 'TABLE base')")
    begin(db)
    assert rows(db, drop, ["sales", "sales__canary", "base"], True) == [(4,)]
    assert rows(db, "SELECT count(*) FROM pgtrickle.pgt_stream_tables") == [(0,)]
