"""Hostile table and column names arrive unchanged, and similar names are not mixed up."""

from __future__ import annotations

import json

import psycopg
from psycopg import sql

from shared_schema.table_schema import TableId
from shared_schema.topics import table_topic
from tests.cdc_consumer.conftest import MakeConsumer
from tests.cdc_consumer.harness import Connection, by_stamp
from tests.cdc_consumer.topic_reader import check_order, replay

PUBLICATION = "p'u\"b, ü%_\\"

TABLES = [
    TableId("a", "b_c"),
    TableId("a_b", "c"),  # without escaping, Kafka mistakes this topic for the previous one
    TableId("public", "T"),
    TableId("public", "t"),
    TableId("public", "t%"),
    TableId("public", "t_"),
    TableId("public", "quo\"te's; DROP TABLE t --"),
    TableId("public", "a.b"),
    TableId("a.b", "c"),
    TableId("public", "x" * 63),
    TableId("public", "é" * 31),
    TableId("Schéma 'x'", "行\n\t\\"),
    TableId("public", "{0} %s $1 \u202e"),
]

COLUMNS = [
    "id",
    "ID",
    'quo"te',
    "sp ace",
    "%s",
    "é" * 31,
    "x" * 63,
    "{}",
    "op",
    "row",
    "lsn",
    "1st",
    "a-b",
    "a_b",
    "a.b",
]


def create(db: Connection, table: TableId) -> None:
    db.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(table.schema)))
    name = sql.Identifier(table.schema, table.name)
    columns = sql.SQL(", ").join(sql.SQL("{} text").format(sql.Identifier(c)) for c in COLUMNS)
    db.execute(sql.SQL("CREATE TABLE {} ({}, PRIMARY KEY (id, {}))").format(name, columns, sql.Identifier('quo"te')))
    db.execute(sql.SQL("ALTER TABLE {} REPLICA IDENTITY FULL").format(name))
    db.execute(sql.SQL("ALTER PUBLICATION {} ADD TABLE {}").format(sql.Identifier(PUBLICATION), name))


def write(db: Connection, table: TableId, key: str) -> None:
    """Write a row whose values name its table and columns."""
    name = sql.Identifier(table.schema, table.name)
    values = [key, *(f"{table} {column} {key}" for column in COLUMNS[1:])]
    values[COLUMNS.index('quo"te')] = "k"
    db.execute(
        sql.SQL("INSERT INTO {} VALUES ({})").format(name, sql.SQL(", ").join(map(sql.Literal, values))),
    )


def test_hostile_names(make_consumer: MakeConsumer, database: str) -> None:
    consumer = make_consumer(publications=json.dumps([PUBLICATION]))
    with psycopg.connect(database, autocommit=True) as db:
        db.execute(sql.SQL("CREATE PUBLICATION {}").format(sql.Identifier(PUBLICATION)))
        for table in TABLES:
            create(db, table)
            write(db, table, "copied")
        consumer.start()
        for table in TABLES:
            write(db, table, "streamed")
            name = sql.Identifier(table.schema, table.name)
            db.execute(sql.SQL("UPDATE {} SET {} = 'new'").format(name, sql.Identifier("%s")))
            db.execute(sql.SQL("UPDATE {} SET id = 'moved' WHERE id = 'copied'").format(name))
        content = consumer.caught_up()
        topics = {table_topic(consumer.prefix, table).removeprefix(f"{consumer.prefix}."): table for table in TABLES}
        assert set(content.rows) == set(topics)
        for topic, table in topics.items():
            rows = content.rows[topic]
            check_order(rows)
            assert all(row.columns == tuple(COLUMNS) for row in rows)
            held = db.execute(sql.SQL("SELECT * FROM {}").format(sql.Identifier(table.schema, table.name))).fetchall()
            assert sorted(replay(by_stamp(rows)).elements()) == sorted(held), table
    assert {record["table"] for record in content.captures} == {table.name for table in TABLES}
    assert consumer.command("status").returncode == 0
    # One log line per event, whatever characters the names have.
    assert all(line.startswith("20") for line in consumer.log.read_text().splitlines())
