"""A table that Kafka cannot take concerns its own readers: the others go on, and one clear reason is given."""

from __future__ import annotations

import time
from urllib.parse import urlsplit, urlunsplit

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.cimpl import NewTopic

from tests.cdc_consumer.conftest import MakeConsumer
from tests.cdc_consumer.harness import Connection, Consumer, by_stamp, check, connect, refused, until
from tests.cdc_consumer.test_capture import add
from tests.cdc_consumer.topic_reader import position
from tests.fixtures.postgres import PostgresServer

TABLES = """
CREATE TABLE big (id int PRIMARY KEY, v text); ALTER TABLE big REPLICA IDENTITY FULL;
CREATE TABLE other (id int PRIMARY KEY); INSERT INTO other VALUES (1);
INSERT INTO big VALUES (1, 'small');
"""

LARGE = "INSERT INTO big SELECT {0}, string_agg(md5({0} || '-' || g), '') FROM generate_series(1, {1}) g"


def stopped(consumer: Consumer, table: str, within_s: float = 30) -> str:
    """Return why the table is not captured, once readers are told."""
    reason = ""

    def is_told() -> bool:
        nonlocal reason
        records = [c for c in consumer.caught_up().captures if c["table"] == table]
        reason = records[-1].get("stopped", "") if records else ""
        return bool(reason)

    until(is_told, f"{table} is stopped", within_s)
    return reason


@pytest.mark.parametrize("at", ["client", "broker", "copy"])
def test_a_row_that_is_too_large_stops_its_table_alone(make_consumer: MakeConsumer, db: Connection, at: str) -> None:
    consumer = make_consumer()
    db.execute(TABLES)
    if at == "broker":
        topic = NewTopic(f"{consumer.prefix}.public.big", 1, 1, config={"max.message.bytes": "300000"})
        admin = AdminClient({"bootstrap.servers": consumer.bootstrap})
        admin.create_topics([topic])[topic.topic].result(20)
    if at == "copy":
        db.execute(LARGE.format(2, 60_000).encode())
    add(db, "big", "other")
    consumer.start()
    if at != "copy":
        consumer.caught_up()
        db.execute(
            f"BEGIN; INSERT INTO other VALUES (2); {LARGE.format(2, 12_000 if at == 'broker' else 60_000)}; COMMIT"
        )
    assert "large" in stopped(consumer, "big").lower()
    db.execute("INSERT INTO other VALUES (3); UPDATE big SET v = 'more' WHERE id = 1")
    content = check(consumer, ["public.other"])
    assert consumer.process.poll() is None
    # A frontier that includes the large row comes with the record that its table is stopped, not before it.
    (record,) = [c for c in content.captures if c["table"] == "big" and c.get("stopped")]
    assert all(row.lsn < position(record["snapshot_lsn"]) for row in content.rows["public.big"])
    assert "public.big" in consumer.command("status").stdout
    # When the cause is gone, the next start copies the table again.
    db.execute("DELETE FROM big WHERE id = 2")
    assert consumer.stop() == 0
    consumer.start()
    until(lambda: not consumer.caught_up().captures[-1].get("stopped"), "captured again")
    db.execute("INSERT INTO big VALUES (5, 'new')")
    check(consumer, ["public.big", "public.other"])


def test_a_compacted_topic_stops_its_table_alone(make_consumer: MakeConsumer, db: Connection) -> None:
    consumer = make_consumer()
    db.execute(TABLES)
    name = f"{consumer.prefix}.public.big"
    admin = AdminClient({"bootstrap.servers": consumer.bootstrap})
    admin.create_topics([NewTopic(name, 1, 1, config={"cleanup.policy": "compact"})])[name].result(20)
    add(db, "big", "other")
    consumer.start()
    assert f"topic {name} is compacted" in stopped(consumer, "big")
    db.execute("INSERT INTO other VALUES (3); INSERT INTO big VALUES (2, 'x')")
    assert "public.big" not in check(consumer, ["public.other"]).rows
    assert consumer.stop() == 0
    entry = ConfigEntry("cleanup.policy", "delete", incremental_operation=AlterConfigOpType.SET)
    altered = ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=[entry])
    admin.incremental_alter_configs([altered])[altered].result(20)
    consumer.start()
    until(lambda: not consumer.caught_up().captures[-1].get("stopped"), "captured again")
    check(consumer, ["public.big", "public.other"])


@pytest.mark.parametrize("copied", [False, True])
def test_a_value_that_is_no_text_stops_its_table_alone(
    make_consumer: MakeConsumer, postgres: PostgresServer, copied: bool
) -> None:
    """A database without an encoding holds any bytes as text."""
    consumer = make_consumer()
    name = f"ascii_{consumer.prefix}"
    with connect(postgres.url) as admin:
        admin.execute(f"CREATE DATABASE {name} ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")
    url = urlunsplit(urlsplit(postgres.url)._replace(path=f"/{name}", query="client_encoding=UTF8"))
    consumer.url = consumer.environment["PG_TRICKLE_DATABASE_URL"] = url
    wrong = r"SET client_encoding = 'SQL_ASCII'; INSERT INTO big VALUES (2, E'caf\xe9'); RESET client_encoding"
    try:
        with connect(url) as db:
            db.execute(f"CREATE PUBLICATION pg_trickle; {TABLES} INSERT INTO big VALUES (3, 'café'); ".encode())
            if copied:
                db.execute(wrong)
            add(db, "big", "other")
            consumer.start()
            if not copied:
                check(consumer, ["public.big"])
                db.execute(wrong)
            db.execute("INSERT INTO other VALUES (2)")
            reason = stopped(consumer, "big")
            assert ("22021" if copied else "big column v is not valid text") in reason and "caf" not in reason
            check(consumer, ["public.other"])
            db.execute("DELETE FROM big WHERE id = 2")
            assert consumer.stop() == 0
            consumer.start()
            until(lambda: not consumer.caught_up().captures[-1].get("stopped"), "captured again")
            check(consumer, ["public.big", "public.other"])
            consumer.stop()
            db.execute("SELECT pg_drop_replication_slot(%s)", (consumer.prefix,))
    finally:
        consumer.end()
        with connect(postgres.url) as admin:
            admin.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


def test_a_name_that_is_too_long_for_a_topic(make_consumer: MakeConsumer, db: Connection) -> None:
    consumer, name = make_consumer(), "é" * 31
    db.execute(TABLES)
    db.execute(f'CREATE SCHEMA "{name}"; CREATE TABLE "{name}"."{name}" (id int PRIMARY KEY)'.encode())
    add(db, "other", f'"{name}"."{name}"')
    consumer.start()
    assert "characters long" in stopped(consumer, name)
    db.execute(f'INSERT INTO "{name}"."{name}" VALUES (1)'.encode())
    db.execute("INSERT INTO other VALUES (2)")
    check(consumer, ["public.other"])


def test_a_log_message_that_is_too_large_is_left_out(make_consumer: MakeConsumer, db: Connection) -> None:
    consumer = make_consumer()
    db.execute(TABLES)
    add(db, "other")
    consumer.start()
    db.execute("SELECT pg_logical_emit_message(t, 'app', repeat('x', 3000000)) FROM (VALUES (true), (false)) v (t)")
    db.execute("INSERT INTO other VALUES (2)")
    content = check(consumer, ["public.other"])
    sizes = [record["omitted_bytes"] for record in content.control if record.get("prefix") == "app"]
    assert sizes == [3_000_000, 3_000_000]


def test_another_slot_may_not_write_to_the_same_topics(make_consumer: MakeConsumer, db: Connection) -> None:
    first = make_consumer()
    db.execute(TABLES)
    add(db, "other")
    first.start()
    first.caught_up()
    second = make_consumer(slot=f"{first.prefix}_2")
    text = refused(second)
    assert f"are written by slot {first.prefix}" in text and "PG_TRICKLE_TOPIC_PREFIX" in text
    assert db.execute(
        "SELECT count(*) FROM pg_replication_slots WHERE slot_name = %s", (f"{first.prefix}_2",)
    ).fetchone() == (0,)
    db.execute("INSERT INTO other VALUES (2)")
    check(first, ["public.other"])
    # A slot that is retired gives its topics free.
    assert first.stop() == 0
    until(lambda: first.command("drop-slot").returncode == 0, "dropped")
    time.sleep(0.2)
    second.log.unlink()
    second.start()
    db.execute("INSERT INTO other VALUES (3)")
    rows = by_stamp(second.caught_up().rows["public.other"])
    assert [row.op for row in rows].count("T") == 1
