"""Behaviour beyond the normal case: every type, refusals, failing data, tampering, reuse of a name."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest
from psycopg import errors

from applier.refresh.check import check_stream_table
from deploy.local.stack import Stack
from shared_schema.table_schema import TableId
from tests import oracle

Connection = psycopg.Connection[tuple[object, ...]]


def create(db: Connection, name: str, query: str) -> None:
    db.execute("SELECT pgtrickle.create_stream_table(%s, %s)", (name, query))


def wait(db: Connection, name: str) -> None:
    db.execute("SELECT pgtrickle.wait_for(%s)", (name,))


def assert_equal(db: Connection, name: str) -> None:
    checked = check_stream_table(db, TableId("public", name))
    assert checked.equal, checked


EVERY_TYPE = {
    "small": ("smallint", ["-32768", "7"]),
    "big": ("bigint", ["9223372036854775807", "-1"]),
    "money_like": ("numeric(12,4)", ["-0.0001", "12345678.9"]),
    "free": ("numeric", ["1e-20", "123456789012345678901234567890.5", "'NaN'", "'Infinity'"]),
    "real_one": ("real", ["1.5", "'-Infinity'"]),
    "double_one": ("double precision", ["1e300", "-0.1"]),
    "yes": ("boolean", ["true", "false"]),
    "letters": ("text", ["''", "E'tab\\t \\\\ newline\\n'", "'žluťoučký 🐎'"]),
    "short": ("varchar(5)", ["'abcde'"]),
    "padded": ("char(4)", ["'ab'", "'  '"]),
    "day": ("date", ["'0001-01-01'", "'2024-02-29'", "'9999-12-31'"]),
    "local": ("timestamp", ["'2024-03-31 02:30:00.123456'", "'0001-01-01 00:00'"]),
    "instant": ("timestamptz", ["'2024-03-31 02:30:00.123456+05:30'"]),
    "clock": ("time", ["'24:00'", "'01:02:03.000001'"]),
    "span": ("interval", ["'1 mon -2 days 03:00:00.5'"]),
    "raw": ("bytea", ["'\\x00ff5c'", "''"]),
    "id_like": ("uuid", ["'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'"]),
    "document": ("jsonb", ['\'{"b": [1, 2.50], "a": null}\'']),
    "plain_json": ("json", ["'{\"a\" : 1}'"]),
    "numbers": ("int[]", ["'{1,NULL,3}'", "'{}'", "'[2:3]={7,8}'"]),
    "address": ("inet", ["'192.168.0.1/24'"]),
    "period": ("int4range", ["'[1,5)'", "'empty'"]),
    "bits": ("bit(5)", ["B'10101'"]),
}


def test_every_type_passes_through_exactly(db: Connection) -> None:
    columns = ", ".join(f"{name} {kind}" for name, (kind, _) in EVERY_TYPE.items())
    db.execute(f"CREATE TABLE things (id int PRIMARY KEY, {columns})".encode())
    longest = max(len(values) for _, values in EVERY_TYPE.values())

    def rows(first: int) -> str:
        lines = []
        for n in range(longest):
            cells = [values[n] if n < len(values) else "NULL" for _, values in EVERY_TYPE.values()]
            lines.append(f"({first + n}, {', '.join(cells)})")
        return ", ".join(lines)

    db.execute(f"INSERT INTO things VALUES {rows(1)}".encode())
    create(db, "all_things", "SELECT * FROM things WHERE id > 0")
    create(db, "bare_things", f"SELECT {', '.join(EVERY_TYPE)} FROM things WHERE id > 0")
    assert_equal(db, "all_things")
    db.execute(f"INSERT INTO things VALUES {rows(100)}".encode())
    db.execute("UPDATE things SET letters = letters || 'x', small = NULL WHERE id >= 100")
    db.execute("DELETE FROM things WHERE id = 1")
    assert_equal(db, "all_things")
    # Without the key the same rows, including json, are maintained by counting duplicates.
    assert_equal(db, "bare_things")


def test_empty_sources_have_a_result_at_once(db: Connection) -> None:
    db.execute("CREATE TABLE nothing_yet (id int PRIMARY KEY, v int)")
    create(db, "listed_yet", "SELECT id, v FROM nothing_yet")
    create(db, "counted_yet", "SELECT count(*) AS n, sum(v) AS total FROM nothing_yet")
    for name, rows in (("listed_yet", 0), ("counted_yet", 1)):
        wait(db, name)
        checked = check_stream_table(db, TableId("public", name))
        assert checked.equal and checked.rows == rows
    db.execute("INSERT INTO nothing_yet VALUES (1, NULL)")
    assert_equal(db, "counted_yet")


def test_a_refused_query_says_why_and_the_others_continue(db: Connection) -> None:
    db.execute("CREATE TABLE plain (id int PRIMARY KEY, at date)")
    create(db, "good", "SELECT id FROM plain")
    create(db, "drawn", "SELECT id, random() AS r FROM plain")
    create(db, "dated", "SELECT id FROM plain WHERE at >= 'today'")
    for name, reason in (("drawn", "random"), ("dated", "'today'")):
        with pytest.raises(errors.ObjectNotInPrerequisiteState, match=reason):
            wait(db, name)
    db.execute("INSERT INTO plain VALUES (1, now())")
    wait(db, "good")
    assert_equal(db, "good")


def test_data_the_query_fails_on_suspends_only_that_stream_table(db: Connection) -> None:
    db.execute("CREATE TABLE ratios (id int PRIMARY KEY, a int, b int)")
    create(db, "divided", "SELECT id, a / b AS q FROM ratios")
    create(db, "listed", "SELECT id, a, b FROM ratios")
    db.execute("INSERT INTO ratios VALUES (1, 7, 2)")
    wait(db, "divided")
    assert_equal(db, "divided")
    db.execute("INSERT INTO ratios VALUES (2, 1, 0)")
    wait(db, "listed")
    assert_equal(db, "listed")
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match="fails on the data"):
        wait(db, "divided")


def test_a_stream_table_somebody_wrote_to_is_noticed(db: Connection) -> None:
    db.execute("CREATE TABLE base (id int PRIMARY KEY, v int); INSERT INTO base VALUES (1, 1), (2, 2)")
    create(db, "kept", "SELECT id, v FROM base")
    wait(db, "kept")
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match=r"DELETE of stream table public.kept is refused"):
        db.execute("DELETE FROM kept WHERE id = 1")
    db.execute("SELECT pgtrickle.allow_direct_dml('kept'); DELETE FROM kept WHERE id = 1")
    db.execute("UPDATE base SET v = 5 WHERE id = 1")
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match="did not hold the rows"):
        wait(db, "kept")


def test_a_reused_name_starts_empty_everywhere(db: Connection, stack: Stack) -> None:
    db.execute("CREATE TABLE reused (id int PRIMARY KEY, v int); INSERT INTO reused VALUES (1, 1), (2, 2)")
    create(db, "again", "SELECT id, v FROM reused")
    wait(db, "again")
    replay = oracle.TopicReplay(stack.addresses.kafka_bootstrap, "trickle_out.public.again", "trickle_out.schemas")
    oracle.eventually(lambda: oracle.assert_same(oracle.query_result(db, "again"), replay.catch_up(), "topic"))
    db.execute("SELECT pgtrickle.drop_stream_table('again')")
    db.execute("UPDATE reused SET v = 9 WHERE id = 1")
    create(db, "again", "SELECT v, count(*) AS n FROM reused GROUP BY v")
    wait(db, "again")
    assert_equal(db, "again")
    expected = oracle.query_result(db, "again")
    oracle.eventually(lambda: oracle.assert_same(expected, replay.catch_up(), "topic"))
    oracle.eventually(
        lambda: oracle.assert_same(expected, oracle.in_delta(stack.addresses.delta_root, "again"), "Delta")
    )
    # Its folder is cleaned up from time to time: first the log of its commits.
    db.execute("SELECT pgtrickle.set_setting('delta_tidy_interval_s', '1')")
    checkpoint = Path(stack.addresses.delta_root) / "public" / "again" / "_delta_log" / "_last_checkpoint"

    def tidied() -> None:
        assert checkpoint.exists()

    oracle.eventually(tidied)
    db.execute("SELECT pgtrickle.reset_setting('delta_tidy_interval_s')")
    oracle.assert_same(expected, oracle.in_delta(stack.addresses.delta_root, "again"), "Delta")


def test_hostile_names_all_the_way(db: Connection, stack: Stack) -> None:
    db.execute('CREATE SCHEMA "We ird"; CREATE TABLE "We ird"."ta.b""le" ("co l" int PRIMARY KEY, "Ünï" text)')
    db.execute("""INSERT INTO "We ird"."ta.b""le" VALUES (1, 'x')""")
    create(db, '"We ird"."st ""1"""', 'SELECT "co l", "Ünï" FROM "We ird"."ta.b""le"')
    db.execute("""INSERT INTO "We ird"."ta.b""le" VALUES (2, 'y')""")
    checked = check_stream_table(db, TableId("We ird", 'st "1"'))
    assert checked.equal and checked.rows == 2
    expected = oracle.Bag({(1, "x"): 1, (2, "y"): 1})
    root = stack.addresses.delta_root
    oracle.eventually(lambda: oracle.assert_same(expected, oracle.in_delta(root, "st-20-221-22", "We-20ird"), "Delta"))
