"""Every value arrives as PostgreSQL prints it, copied and streamed alike."""

from __future__ import annotations

import random
from typing import Any

from cdc_consumer.change_rows.conversions import SLOW_PATH
from cdc_consumer.change_rows.encode import TransactionEncoder
from cdc_consumer.change_rows.split import TableReader, Transaction
from cdc_consumer.pgoutput.decoder import decode
from cdc_consumer.pgoutput.messages import Begin, Delete, Insert, Relation, Update
from cdc_consumer.pipeline import relations
from cdc_consumer.wal import catalog
from cdc_consumer.wal.frames import PAYLOAD_AT, has_kind
from cdc_consumer.wal.session import ReplicationSession
from shared_schema.avro import codec
from shared_schema.lsn import Lsn
from shared_schema.table_schema import quote_identifier
from tests.cdc_consumer.conftest import LOG_AND_TABLES, MODES
from tests.cdc_consumer.harness import Connection, Consumer, by_stamp, check, table_now, until
from tests.cdc_consumer.topic_reader import replay

SCHEMA = """
CREATE TYPE mood AS ENUM ('sad', 'it''s ok', 'happy');
CREATE SCHEMA other;
CREATE TYPE other.mood AS ENUM ('x');
CREATE DOMAIN price AS numeric(10,2) CHECK (VALUE > -1000000);
CREATE DOMAIN special_price AS price NOT NULL DEFAULT 0;
CREATE DOMAIN tags AS text[];
CREATE TYPE pair AS (a int, b text);
CREATE TABLE everything (
    id int PRIMARY KEY, i2 int2, i4 int4, i8 int8, o oid, b bool, f4 float4, f8 float8,
    n_bounded numeric(12,3), n_free numeric, n_wide numeric(60,20), n_negative numeric(5,-2),
    t text, vc varchar(20), c char(6), by bytea, d date, ts timestamp, tz timestamptz, ts0 timestamp(0),
    tm time, tmz timetz, iv interval, j json, jb jsonb, u uuid, ints int[], texts text[], m mood, m2 other.mood,
    dom price, dom2 special_price, dom_array tags, comp pair, comps pair[], r int4range, ip inet, bits bit(5),
    vb varbit, mo money, pt point, ts_v tsvector, reg regclass, multi int4multirange
);
ALTER TABLE everything REPLICA IDENTITY FULL;
"""

VALUES: dict[str, list[str]] = {
    "i2": ["-32768", "32767"],
    "i4": ["-2147483648", "2147483647"],
    "i8": ["-9223372036854775808", "9223372036854775807"],
    "o": ["0", "4294967295"],
    "b": ["true", "false"],
    "f4": ["'NaN'", "'-Infinity'", "'Infinity'", "1.1", "-0", "1e-45", "3.4028235e38", "16777217", "0.1"],
    "f8": ["'NaN'", "'-Infinity'", "'Infinity'", "0.1", "'-0'", "5e-324", "1.7976931348623157e308", "1e15", "1e16"],
    "n_bounded": ["'NaN'", "0", "-999999999.999", "999999999.999", "0.001", "100"],
    "n_free": ["'NaN'", "'Infinity'", "'-Infinity'", "1e130", "-0.00000000000000000000000001", "1.10", "0"],
    "n_wide": ["'NaN'", "1234567890123456789012345678901234567890.12345678901234567890", "0"],
    "n_negative": ["12300", "-4567"],
    "t": ["''", "'a\tb\nc\\d\r'", "'\\N'", "'🐘 é 漢字'", "repeat('long', 5000)", "'\x01'"],
    "vc": ["'  padded  '"],
    "c": ["'ab'", "''", "'abcdef'"],
    "by": ["'\\x'", "'\\x00ff5c780a'", "decode(repeat('ab', 9000), 'hex')"],
    "d": [
        "'2024-02-29'",
        "'infinity'",
        "'-infinity'",
        "'0044-03-15 BC'",
        "'0001-01-01'",
        "'9999-12-31'",
        "'12345-06-07'",
    ],
    "ts": [
        "'2024-02-29 12:34:56.123456'",
        "'2024-02-29 12:34:56.1'",
        "'infinity'",
        "'-infinity'",
        "'4713-01-01 00:00:00 BC'",
        "'0001-01-01 00:00:00'",
        "'9999-12-31 23:59:59.999999'",
        "'294276-12-31 23:59:59'",
        "'1969-12-31 23:59:59.999999'",
    ],
    "tz": [
        "'2024-02-29 12:34:56.5+05:30'",
        "'infinity'",
        "'-infinity'",
        "'0044-03-15 12:00:00+00 BC'",
        "'9999-12-31 23:59:59.999999+00'",
        "'0001-01-01 00:00:00+00'",
        "'1900-01-01 00:00:00+00'",
    ],
    "ts0": ["'2024-02-29 12:34:56.7'"],
    "tm": ["'24:00:00'", "'00:00:00.000001'"],
    "tmz": ["'24:00:00-13:59'", "'12:00:00+05:30'"],
    "iv": ["'1 year 2 mons -3 days 04:05:06.7'", "'-178000000 years'", "'0'", "'25:00:00'"],
    "j": ["""'{"a":1, "a": 2 }'"""],
    "jb": ["""'{"a": 1e400, "b": [null, "\\u00e9", 12345678901234567890]}'""", "'null'", "'\"\"'"],
    "u": ["'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'"],
    "ints": ["'{}'", "'{1,NULL,3}'", "'[0:1]={7,8}'", "'{{1,2},{3,4}}'"],
    "texts": ["""'{"a,b","c\\"d",NULL,"NULL",""}'"""],
    "m": ["'sad'", "'it''s ok'"],
    "m2": ["'x'"],
    "dom": ["12.5", "'NaN'"],
    "dom_array": ["'{a,b}'"],
    "comp": ["ROW(1, 'a\"b,c')::pair", "ROW(NULL, '')::pair"],
    "comps": ["ARRAY[ROW(1, 'x')::pair, NULL]"],
    "r": ["'[1,5)'", "'empty'", "'(,)'"],
    "ip": ["'::1/64'", "'10.0.0.1'"],
    "bits": ["B'01010'"],
    "vb": ["B''", "B'0001'"],
    "mo": ["'-1234.56'"],
    "pt": ["'(1.5,-2)'"],
    "ts_v": ["'a:1 b:2'"],
    "reg": ["'pg_class'", "'everything'"],
    "multi": ["'{[1,3),[5,8)}'"],
}


def insert(db: Connection, first: int) -> int:
    """Insert one row per value, with NULL in all other columns, and a row of NULLs."""
    number = first
    db.execute("INSERT INTO everything (id, dom2) VALUES (%s, 0)", (number,))
    for column, values in VALUES.items():
        for value in values:
            number += 1
            db.execute(f"INSERT INTO everything (id, dom2, {column}) VALUES ({number}, {number}, {value})".encode())
    return number + 1


@MODES
def test_every_value_copied_and_streamed(consumer: Consumer, db: Connection) -> None:
    create(db)
    streamed = insert(db, 0)
    db.execute("ALTER PUBLICATION pg_trickle ADD TABLE everything")
    consumer.start()
    insert(db, streamed)
    db.execute("UPDATE everything SET i4 = 1 WHERE id % 2 = 0")
    db.execute("DELETE FROM everything WHERE id % 5 = 0")
    content = consumer.caught_up()
    rows = by_stamp(content.rows["public.everything"])
    db.execute("SET search_path = pg_catalog")
    assert replay(rows) == table_now(db, "public.everything")
    assert sum(row.snapshot for row in rows) == streamed
    assert len({row.columns for row in rows}) == 1


@LOG_AND_TABLES
def test_random_rows_of_every_type(consumer: Consumer, db: Connection) -> None:
    """Rows with a value in most columns, changed in some: copied, streamed, updated under a full identity."""
    pick = random.Random(20)
    create(db)

    def row(number: int) -> str:
        values = {"id": str(number), "dom2": str(number)}
        values |= {column: pick.choice([*found, "NULL"]) for column, found in VALUES.items()}
        return f"INSERT INTO everything ({', '.join(values)}) VALUES ({', '.join(values.values())})"

    for number in range(40):
        db.execute(row(number).encode())
    db.execute("ALTER PUBLICATION pg_trickle ADD TABLE everything")
    consumer.start()
    for number in range(40, 100):
        db.execute(row(number).encode())
        changed = pick.sample(list(VALUES), 3)
        sets = ", ".join(f"{column} = {pick.choice([*VALUES[column], 'NULL'])}" for column in changed)
        db.execute(f"UPDATE everything SET {sets} WHERE id % 7 = {pick.randrange(7)}".encode())
    db.execute("DELETE FROM everything WHERE id % 9 = 0")
    rows = by_stamp(consumer.caught_up().rows["public.everything"])
    db.execute("SET search_path = pg_catalog")
    assert replay(rows) == table_now(db, "public.everything")
    assert len(rows) > 700


def create(db: Connection) -> None:
    if db.info.server_version < 150000:
        db.execute(SCHEMA.replace("numeric(5,-2)", "numeric(5,0)"))
    else:
        db.execute(SCHEMA)
    # PostgreSQL prints object names by the reader's search path; the topics always qualify them.
    db.execute("SET search_path = pg_catalog, public")


def changes(url: str, slot: str) -> list[bytes]:
    """Return the frames of everything committed so far, up to the last commit."""
    frames: list[bytes] = []

    def complete() -> bool:
        frames.extend(f for f in session.receive(10_000, 1.0) if has_kind(f, b"BCRIUD"))
        return bool(frames) and has_kind(frames[-1], b"C")

    with ReplicationSession(url) as session:
        session.start(slot, Lsn(0), ("pg_trickle",))
        until(complete, "the changes")
    return frames


def test_generated_encoders_give_the_references_bytes(database: str, db: Connection) -> None:
    create(db)
    db.execute("ALTER PUBLICATION pg_trickle ADD TABLE everything")
    db.execute("SELECT pg_create_logical_replication_slot('generated_check', 'pgoutput')")
    try:
        with db.transaction():
            insert(db, 0)
            db.execute("UPDATE everything SET i4 = 1, tz = now() WHERE id % 2 = 0")
            db.execute("DELETE FROM everything WHERE id % 5 = 0")
            db.execute("ALTER TABLE everything REPLICA IDENTITY DEFAULT")
            db.execute("UPDATE everything SET f8 = 1 WHERE id % 2 = 1")
            db.execute("DELETE FROM everything")
        frames = changes(database, "generated_check")
    finally:
        query = "SELECT active FROM pg_replication_slots WHERE slot_name = 'generated_check'"
        until(lambda: db.execute(query).fetchone() == (False,), "the slot to be free")
        db.execute("SELECT pg_drop_replication_slot('generated_check')")
    accepted = odd = 0
    with catalog.connect(database) as connection:
        described, transaction, reader = relations(connection), None, None
        for frame in frames:
            match message := decode(frame[PAYLOAD_AT:]):
                case Begin():
                    transaction = Transaction(message)
                case Relation():
                    described.describe(message)
                    reader = TableReader(message, described.schema(message.relid))
                case Insert() | Update() | Delete():
                    assert transaction is not None and reader is not None
                    encoder, ordinal = codec(reader.schema), transaction.ordinal
                    rows = transaction.split(message, reader)
                    expected = [(encoder.encode_key(row.values or ()), encoder.encode(row)) for row in rows]
                    try:
                        found = TransactionEncoder(reader, encoder.header, transaction.begin).encode(
                            frame, PAYLOAD_AT, ordinal
                        )
                    except SLOW_PATH:
                        odd += 1
                        continue
                    assert list(found) == [part for pair in expected for part in pair]
                    accepted += 1
    assert accepted > 3 * odd > 0


@LOG_AND_TABLES
def test_hostile_names(consumer: Consumer, db: Connection) -> None:
    names = [
        'quo"te',
        "sp ace",
        "uni–ço∂é🐘",
        "per%cent_",
        "Case",
        "case",
        "x" * 63,
        "a.b",
        "a-b",
        "back\\slash",
        "row",
        "op",
    ]
    columns = ", ".join(f"{quote_identifier(n)} text" for n in names)
    db.execute(f"CREATE SCHEMA {quote_identifier(names[0])}".encode())
    tables = [f"{quote_identifier(names[0])}.{quote_identifier(n)}" for n in names]
    for table in tables:
        db.execute(f"CREATE TABLE {table} (id int PRIMARY KEY, {columns})".encode())
        db.execute(f"ALTER TABLE {table} REPLICA IDENTITY FULL".encode())
        db.execute(f"INSERT INTO {table} VALUES (1, 'copied')".encode())
        db.execute(f"ALTER PUBLICATION pg_trickle ADD TABLE {table}".encode())
    consumer.start()
    for number, table in enumerate(tables):
        db.execute(f"INSERT INTO {table} VALUES (2, 'streamed {number}')".encode())
        db.execute(f"UPDATE {table} SET {quote_identifier(names[1])} = '{number}' WHERE id = 1".encode())
    content = consumer.caught_up()
    assert len(content.rows) == len(tables)
    found: dict[str, Any] = {}
    for rows in content.rows.values():
        state = replay(by_stamp(rows))
        assert rows[0].columns == ("id", *names)
        (marker,) = [image[1] for image in state if image[0] == "2"]
        assert marker is not None
        found[marker] = state
    for number, table in enumerate(tables):
        assert found[f"streamed {number}"] == table_now(db, table)


def test_generated_columns_are_copied_as_they_are_streamed(consumer: Consumer, db: Connection) -> None:
    db.execute("CREATE TABLE g (id int PRIMARY KEY, twice int GENERATED ALWAYS AS (id * 2) STORED, v text)")
    db.execute("INSERT INTO g (id, v) VALUES (1, 'copied'); ALTER PUBLICATION pg_trickle ADD TABLE g")
    consumer.start()
    db.execute("INSERT INTO g (id, v) VALUES (2, 'streamed')")
    db.execute("UPDATE g SET v = 'changed' WHERE id = 1; DELETE FROM g WHERE id = 2")
    rows = by_stamp(consumer.caught_up().rows["public.g"])
    assert {row.columns for row in rows} == {("id", "v")}
    assert list(replay(rows)) == [("1", "changed")]


def test_a_wide_and_an_empty_table(consumer: Consumer, db: Connection) -> None:
    columns = ", ".join(f"c{i} int" for i in range(300))
    db.execute(f"CREATE TABLE wide ({columns})".encode())
    db.execute("CREATE TABLE nothing ()")
    db.execute("ALTER TABLE wide REPLICA IDENTITY FULL; ALTER TABLE nothing REPLICA IDENTITY FULL")
    db.execute("INSERT INTO nothing DEFAULT VALUES; ALTER PUBLICATION pg_trickle ADD TABLE wide, nothing")
    consumer.start()
    db.execute("INSERT INTO wide (c0, c299) VALUES (1, 2); INSERT INTO nothing DEFAULT VALUES")
    db.execute("UPDATE wide SET c299 = 3")
    content = check(consumer, ["public.wide"])
    assert [row.changed for row in content.rows["public.wide"][1:]] == [frozenset({299})] * 2
    assert replay(by_stamp(content.rows["public.nothing"])).total() == 2
