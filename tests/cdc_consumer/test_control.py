"""Control records between the rows: log messages and new schema versions, in order with the rows and once each."""

from __future__ import annotations

import itertools
import json
import random
from typing import Any

import psycopg

from tests.cdc_consumer.conftest import LOG_AND_TABLES, MakeConsumer
from tests.cdc_consumer.harness import Connection, Consumer, by_stamp, connect, until
from tests.cdc_consumer.topic_reader import Content, position
from tests.cdc_consumer.writers import writing


def stamp(record: dict[str, Any]) -> tuple[int, int]:
    return position(record["lsn"]), record["seq"]


def messages(content: Content) -> list[dict[str, Any]]:
    return [r for r in content.control if r["kind"] == "message" and r["prefix"] == "app"]


def schema_changes(content: Content) -> list[dict[str, Any]]:
    return [r for r in content.control if r["kind"] == "schema"]


@LOG_AND_TABLES
def test_messages_in_order_with_the_rows(consumer: Consumer, db: Connection) -> None:
    db.execute("CREATE TABLE t (id int PRIMARY KEY); ALTER PUBLICATION pg_trickle ADD TABLE t")
    consumer.start()
    db.execute(
        "BEGIN; INSERT INTO t VALUES (1); SELECT pg_logical_emit_message(true, 'app', 'é between'); "
        "INSERT INTO t VALUES (2); SELECT pg_logical_emit_message(true, 'app', '\\xff00'::bytea); COMMIT"
    )
    db.execute("BEGIN; INSERT INTO t VALUES (9); SELECT pg_logical_emit_message(true, 'app', 'never'); ROLLBACK")
    db.execute("SELECT pg_logical_emit_message(true, 'app', 'alone')")
    db.execute("BEGIN; SELECT pg_logical_emit_message(false, 'app', 'outside'); ROLLBACK")
    content = consumer.caught_up()
    # Nothing is repeated after a restart, neither by the slot nor by the consumer.
    consumer.kill()
    db.execute("SELECT pg_logical_emit_message(false, 'app', 'while down'); INSERT INTO t VALUES (3)")
    consumer.start()
    content = consumer.caught_up()
    rows, found = by_stamp(content.rows["public.t"]), messages(content)
    assert [r.get("content", r.get("content_base64")) for r in found] == [
        "é between",
        "/wA=",
        "alone",
        "outside",
        "while down",
    ]
    assert [r["transactional"] for r in found] == [True, True, True, False, False]
    assert found[0]["xid"] == found[1]["xid"] != 0 and found[3]["xid"] == 0
    (first, second, third) = [(row.lsn, row.seq) for row in rows]
    assert first < stamp(found[0]) < second < stamp(found[1]) < stamp(found[2]) < stamp(found[3]) < third
    assert len({stamp(r) for r in content.control}) == len(content.control)


@LOG_AND_TABLES
def test_every_kind_of_change_is_announced_before_its_first_row(consumer: Consumer, db: Connection) -> None:
    db.execute("CREATE TABLE t (id int PRIMARY KEY, a int, b text); ALTER PUBLICATION pg_trickle ADD TABLE t")
    consumer.start()
    steps = [
        ("SELECT 1", None),
        ("ALTER TABLE t ADD c numeric(5,2)", (True, ["added c numeric(5,2)"])),
        ("ALTER TABLE t ALTER c SET DEFAULT 1", None),
        ("ALTER TABLE t DROP b", (False, ["dropped b text"])),
        ("ALTER TABLE t ALTER a TYPE bigint", (False, ["retyped a from integer to bigint"])),
        ("ALTER TABLE t RENAME a TO z", (False, ["added z bigint", "dropped a bigint"])),
        ("ALTER TABLE t DROP CONSTRAINT t_pkey", (False, ["key is now (), was (id)"])),
        ("ALTER TABLE t REPLICA IDENTITY FULL", (False, ["replica identity is now full, was default"])),
    ]
    for number, (statement, _) in enumerate(steps):
        db.execute(statement.encode())
        if number == 4:
            # This one happens while the consumer is stopped.
            consumer.caught_up()
            consumer.kill()
        db.execute(f"INSERT INTO t (id) VALUES ({number})".encode())
        if number == 4:
            consumer.start()
    content = consumer.caught_up()
    found, rows = schema_changes(content), by_stamp(content.rows["public.t"])
    expected = [(number, change) for number, (_, change) in enumerate(steps) if change is not None]
    assert [(r["compatible"], sorted(r["changes"])) for r in found] == [(c, sorted(t)) for _, (c, t) in expected]
    for (number, _), record in zip(expected, found, strict=True):
        row = rows[number]
        assert row.values[0] == str(number)
        assert stamp(record) == (row.lsn, row.seq - 1), "directly before the first row of its version"
    assert all(r["table"] == "t" and r["old"] != r["new"] for r in found)
    assert [r["old"] for r in found[1:]] == [r["new"] for r in found[:-1]]


STORM = """
CREATE TABLE storm (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, tag text);
CREATE TABLE journal (id bigint PRIMARY KEY, image jsonb);
CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS
    $$BEGIN INSERT INTO journal VALUES (NEW.id, to_jsonb(NEW)); RETURN NULL; END$$;
CREATE TRIGGER note AFTER INSERT ON storm FOR EACH ROW EXECUTE FUNCTION note();
ALTER PUBLICATION pg_trickle ADD TABLE storm;
"""

KINDS = {
    "int": "42",
    "text": "'tea'",
    "boolean": "true",
    "bigint": "-7",
    "uuid": "'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'",
}


def insert(connection: Connection, pick: random.Random) -> None:
    for _ in range(pick.randrange(1, 4)):
        connection.execute("INSERT INTO storm (tag) SELECT 'n' || generate_series(1, 3)")


def redefine(connection: Connection, pick: random.Random) -> None:
    """Add, drop or change a column; also in transactions that insert before and after it."""
    columns = [
        str(name)
        for (name,) in connection.execute(
            "SELECT attname FROM pg_attribute WHERE attrelid = 'storm'::regclass AND attnum > 2 AND NOT attisdropped"
        )
    ]
    kind = pick.choice(list(KINDS))
    choices = [f"ALTER TABLE storm ADD x{pick.randrange(10**6)} {kind} DEFAULT {KINDS[kind]}"]
    if columns:
        name = pick.choice(columns)
        choices += [
            f"ALTER TABLE storm DROP {name}",
            f"ALTER TABLE storm RENAME {name} TO y{pick.randrange(10**6)}",
            f"ALTER TABLE storm ALTER {name} DROP DEFAULT, ALTER {name} TYPE text USING 'was ' || {name}",
        ]
    around = "INSERT INTO storm (tag) VALUES ('around')"
    connection.execute(f"BEGIN; {around}; {pick.choice(choices)}; {around}; COMMIT".encode())


def test_nothing_is_read_with_the_wrong_schema_in_a_storm_of_changes(
    make_consumer: MakeConsumer, db: Connection
) -> None:
    consumer = make_consumer()
    db.execute(STORM)
    consumer.start()
    pick = random.Random(11)
    with writing(consumer.url, insert, sessions=2, pause_s=0.005), connect(consumer.url) as ddl:
        for number in range(40):
            try:
                redefine(ddl, pick)
            except psycopg.errors.DeadlockDetected:
                ddl.execute("ROLLBACK")
            if number == 20:
                consumer.kill()
                consumer.start(wait=False)
    content = consumer.caught_up()
    rows = by_stamp(content.rows["public.storm"])
    journal = {str(number): image for number, image in db.execute("SELECT id, image FROM journal")}
    assert len(rows) == len(journal) and {row.op for row in rows} == {"I"}
    for row in rows:
        image = journal[str(row.values[0])]
        assert dict(zip(row.columns, row.values, strict=True)) == {k: printed(v) for k, v in image.items()}
    # Each version begins exactly where it was announced.
    announced = {stamp(record) for record in schema_changes(content)}
    starts = {(b.lsn, b.seq - 1) for a, b in itertools.pairwise(rows) if a.columns != b.columns}
    assert announced >= starts and len(starts) > 10


def printed(value: object) -> str | None:
    match value:
        case None:
            return None
        case bool():
            return "t" if value else "f"
        case str():
            return value
        case _:
            return json.dumps(value)


@LOG_AND_TABLES
def test_the_last_message_before_a_crash_comes_once(consumer: Consumer, db: Connection) -> None:
    """The frontier is exactly at its LSN, so the server would send it again if only the frontier were reported."""
    consumer.start()
    consumer.caught_up()
    published = consumer.metric("pg_trickle_cdc_transactions_total")
    db.execute("SELECT pg_logical_emit_message(false, 'app', 'last')")
    until(lambda: consumer.metric("pg_trickle_cdc_transactions_total") > published, "published")
    consumer.kill()
    consumer.start()
    assert len(messages(consumer.caught_up())) == 1
