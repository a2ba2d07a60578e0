"""Starting, stopping, and every refusal that requires a real server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import psycopg
import pytest

from tests.cdc_consumer.conftest import MakeConsumer
from tests.cdc_consumer.harness import Connection, Consumer, check, connect, refused, until
from tests.cdc_consumer.history import SCHEMA, TABLES
from tests.cdc_consumer.test_refused_tables import stopped
from tests.cdc_consumer.topic_reader import position
from tests.fixtures.postgres import PostgresServer


def test_sigterm_ends_in_seconds_and_loses_nothing(consumer: Consumer, db: Connection) -> None:
    db.execute(SCHEMA)
    consumer.start()
    db.execute("INSERT INTO full_key SELECT g, 'x', g FROM generate_series(1, 10000) g")
    time.sleep(0.3)  # inside the transaction, most likely
    began = time.monotonic()
    assert consumer.stop() == 0
    assert time.monotonic() - began < 6
    assert consumer.get("/healthz")[0] == 0
    consumer.start()
    db.execute("DELETE FROM full_key WHERE id % 2 = 0")
    check(consumer, TABLES)
    assert consumer.stop() == 0
    row = db.execute("SELECT active FROM pg_replication_slots WHERE slot_name = %s", (consumer.prefix,)).fetchone()
    assert row == (False,)


def test_idle_positions_are_acknowledged(make_consumer: MakeConsumer, db: Connection) -> None:
    """Writes to tables that are not captured must not make the server retain its log."""
    consumer = make_consumer(heartbeat_ms=200)
    db.execute("CREATE TABLE elsewhere (a int)")
    consumer.start()
    db.execute("INSERT INTO elsewhere SELECT g FROM generate_series(1, 1000) g")
    row = db.execute("SELECT pg_current_wal_lsn()").fetchone()
    assert row is not None

    def acknowledged() -> bool:
        query = "SELECT confirmed_flush_lsn >= %s::pg_lsn FROM pg_replication_slots WHERE slot_name = %s"
        return db.execute(query, (row[0], consumer.prefix)).fetchone() == (True,)

    until(acknowledged, "the slot follows", 10)
    # Persisted before it was acknowledged.
    assert consumer.caught_up().progress


def test_the_server_can_shut_down_while_we_are_idle(make_consumer: MakeConsumer, postgres: PostgresServer) -> None:
    consumer = make_consumer(heartbeat_ms=600_000)
    consumer.start()
    with psycopg.connect(consumer.url, autocommit=True) as other:
        other.execute("CREATE TABLE unpublished AS SELECT generate_series(1, 1000)")
    began = time.monotonic()
    postgres.restart()
    assert time.monotonic() - began < 15
    until(lambda: consumer.metric("pg_trickle_cdc_reconnects_total") >= 1, "noticed")
    until(lambda: consumer.get("/readyz")[0] == 200, "ready again")


@pytest.mark.parametrize("again", [False, True])
def test_a_slot_dropped_behind_our_back(consumer: Consumer, db: Connection, again: bool) -> None:
    db.execute(SCHEMA)
    db.execute("INSERT INTO full_key VALUES (1, 'a', 1)")
    consumer.start()
    consumer.caught_up()
    assert consumer.stop() == 0
    db.execute("SELECT pg_drop_replication_slot(%s)", (consumer.prefix,))
    db.execute("UPDATE full_key SET v = 'missed'")
    if again:
        db.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (consumer.prefix,))
    text = refused(consumer)
    assert consumer.prefix in text and "resync" in text
    # The documented repair works, and the missed rows are correct again.
    done = consumer.command("resync", "--yes")
    assert done.returncode == 0 and "tables are copied again" in done.stdout and "public.full_key" in done.stdout
    consumer.start()
    db.execute("INSERT INTO full_key VALUES (2, 'b', 2)")
    check(consumer, TABLES)


@pytest.mark.parametrize("stopped", [False, True])
def test_a_new_slot_has_no_frontier_before_its_copies(consumer: Consumer, db: Connection, stopped: bool) -> None:
    """Readers know the tables: any frontier would claim that no row is missing, but rows are missing."""
    db.execute(SCHEMA)
    db.execute("INSERT INTO full_key VALUES (1, 'a', 1)")
    consumer.start()
    consumer.caught_up()
    assert consumer.stop() == 0
    assert consumer.command("drop-slot").returncode == 0
    db.execute("UPDATE full_key SET v = 'missed'")
    db.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (consumer.prefix,))
    with connect(consumer.url) as holder:
        # An open transaction delays the copies, and a message comes before them.
        holder.execute("BEGIN; SELECT txid_current()")
        consumer.start(wait=False)
        row = db.execute("SELECT pg_logical_emit_message(false, 'pg_trickle', 'wake') - '0/0'").fetchone()
        assert row is not None
        until(lambda: consumer.metric("pg_trickle_cdc_received_lsn") >= int(row[0]), "the message is received")
        if stopped:
            assert consumer.stop() == 0
            consumer.start(wait=False)
    consumer.wait_ready()
    content = check(consumer, TABLES)
    copied = max(position(capture["snapshot_lsn"]) for capture in content.captures)
    begun = [record for record in content.progress if record["slot_lsn"] == content.progress[-1]["slot_lsn"]]
    assert begun and all(position(record["frontier"]) > copied for record in begun)


def test_progress_that_cannot_be_read_yet_is_waited_for(consumer: Consumer, db: Connection) -> None:
    """The broker confirmed a commit before its marker is in the partition: the slot is ahead of what readers see."""
    from confluent_kafka import Producer

    db.execute(SCHEMA)
    consumer.start()
    content = consumer.caught_up()
    assert consumer.stop() == 0
    db.execute("CREATE TABLE unpublished AS SELECT generate_series(1, 100)")
    row = db.execute("SELECT pg_current_wal_flush_lsn()::text").fetchone()
    assert row is not None
    ahead = content.progress[-1] | {"frontier": str(row[0])}
    topic, producers = f"{consumer.prefix}.progress", []
    for name, record in (("open", ahead | {"slot": "another"}), ("ended", ahead)):
        producer = Producer({"bootstrap.servers": consumer.bootstrap, "transactional.id": f"{consumer.prefix}-{name}"})
        producer.init_transactions(20)
        producer.begin_transaction()
        producer.produce(topic, json.dumps(record).encode(), record["slot"].encode())
        producer.flush(10)
        producers.append(producer)
    producers[1].commit_transaction(20)
    db.execute("SELECT pg_replication_slot_advance(%s, %s::pg_lsn)", (consumer.prefix, row[0]))
    consumer.start(wait=False)
    until(lambda: "progress is not readable yet" in consumer.log.read_text(), "it waits")
    assert consumer.process.poll() is None
    assert consumer.stop() == 0
    consumer.start(wait=False)
    producers[0].abort_transaction(20)
    consumer.wait_ready()
    db.execute("INSERT INTO full_key VALUES (3, 'c', 3)")
    check(consumer, TABLES)


def test_a_slot_of_somebody_else(consumer: Consumer, db: Connection, postgres: PostgresServer) -> None:
    db.execute("SELECT pg_create_physical_replication_slot(%s)", (consumer.prefix,))
    try:
        assert "belongs to" in refused(consumer)
    finally:
        db.execute("SELECT pg_drop_replication_slot(%s)", (consumer.prefix,))
    with psycopg.connect(postgres.url, autocommit=True) as elsewhere:
        elsewhere.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (consumer.prefix,))
        try:
            assert "in database postgres" in refused(consumer)
        finally:
            elsewhere.execute("SELECT pg_drop_replication_slot(%s)", (consumer.prefix,))


def test_progress_of_another_server(consumer: Consumer) -> None:
    from confluent_kafka import Producer

    consumer.start()
    content = consumer.caught_up()
    assert consumer.stop() == 0
    foreign = content.progress[-1] | {"system_id": "1"}
    producer = Producer({"bootstrap.servers": consumer.bootstrap})
    producer.produce(f"{consumer.prefix}.progress", json.dumps(foreign).encode(), consumer.prefix.encode())
    producer.flush(10)
    assert "written from server 1," in refused(consumer)


def test_missing_rights(consumer: Consumer, db: Connection) -> None:
    db.execute("DROP ROLE IF EXISTS weak")
    db.execute("CREATE ROLE weak LOGIN PASSWORD 'weak'")
    try:
        consumer.environment["PG_TRICKLE_DATABASE_URL"] = psycopg.conninfo.make_conninfo(
            consumer.url, user="weak", password="weak"
        )
        assert "REPLICATION" in refused(consumer)
    finally:
        db.execute("DROP ROLE weak")


def test_settings_that_cannot_work(consumer: Consumer) -> None:
    good = dict(consumer.environment)
    consumer.environment["PG_TRICKLE_DATABASE_URL"] = "host=127.0.0.1 port=1 dbname=x"
    assert "connection" in refused(consumer)
    consumer.environment = good | {"PG_TRICKLE_DATABASE_URL": "postgresql//user:hidden@host"}
    assert "hidden" not in refused(consumer)
    consumer.environment = good | {"PG_TRICKLE_SLOT": "NO"}
    assert "setting slot" in refused(consumer)
    consumer.environment = good | {"PG_TRICKLE_KAFKA_OPTIONS": '{"no.such.option": "1"}'}
    assert "no.such.option" in refused(consumer)


LONG = bool(os.environ.get("PG_TRICKLE_LONG_TESTS"))
GIGABYTE = pytest.mark.skipif(not LONG, reason="long, and takes gigabytes of memory: PG_TRICKLE_LONG_TESTS")


@GIGABYTE
@pytest.mark.timeout(900)
def test_a_row_that_no_broker_takes(consumer: Consumer, db: Connection) -> None:
    db.execute(SCHEMA)
    consumer.start()
    db.execute("INSERT INTO keyless VALUES (1, repeat('x', 1000000000))")
    assert "message.max.bytes" in stopped(consumer, "keyless", 300)
    assert "Traceback" not in consumer.log.read_text()


@GIGABYTE
@pytest.mark.timeout(900)
@pytest.mark.parametrize("copied", [False, True])
def test_a_row_larger_than_the_server_sends(consumer: Consumer, db: Connection, copied: bool) -> None:
    """Each field is valid in PostgreSQL, but both together exceed the size of a protocol message."""
    db.execute("CREATE TABLE huge (id int PRIMARY KEY, a text, b text); ALTER PUBLICATION pg_trickle ADD TABLE huge")
    # Written in one statement they would be too large for the server itself; from another table they are copied as
    # they are stored there, compressed.
    db.execute("CREATE TABLE half (of text)")
    db.execute("INSERT INTO half VALUES (repeat('x', 600000000))")
    row = "INSERT INTO huge SELECT 1, of, of FROM half"
    if copied:
        db.execute(row)
        consumer.start(wait=False)
    else:
        consumer.start()
        db.execute(row)
    assert consumer.process.wait(300) == 1
    text = consumer.log.read_text()
    assert "larger than PostgreSQL can send" in text and "resync" in text and "Traceback" not in text


def test_a_publication_dropped_while_streaming(make_consumer: MakeConsumer, db: Connection) -> None:
    consumer = make_consumer(heartbeat_ms=200)
    db.execute(SCHEMA)
    consumer.start()
    db.execute("DROP PUBLICATION pg_trickle")
    assert consumer.process.wait(30) == 1
    assert "publication" in consumer.log.read_text()


def test_status(consumer: Consumer, db: Connection) -> None:
    answer = consumer.command("status", "--json")
    assert answer.returncode == 0, answer.stderr
    assert json.loads(answer.stdout)["slot_exists"] is False
    db.execute(SCHEMA)
    consumer.start()
    consumer.caught_up()
    report = json.loads(consumer.command("status", "--json").stdout)
    assert report["active"] and report["frontier"] and report["lag_bytes"] >= 0
    assert report["blocked"] is None and report["last_error"] is None and report["instance"]["ready"]
    for source in report["tables"]:
        expected = {"mode": "log", "slot": consumer.prefix, "publications": ["pg_trickle"], "blocked": None}
        assert source.items() >= expected.items() and source["lag_bytes"] >= 0
    assert [t["table"] for t in report["tables"]] == sorted(TABLES)
    assert "public.full_key" in consumer.command("status").stdout
    for command in ("drop-slot", "resync"):
        refused_drop = consumer.command(command)
        assert refused_drop.returncode == 1 and "hint:" in refused_drop.stderr
    # Without an instance it still shows what exists, and why nothing advances.
    db.execute("ALTER PUBLICATION pg_trickle DROP TABLE keyless")
    assert consumer.stop() == 0
    report = json.loads(consumer.command("status", "--json").stdout)
    assert report["instance"] is None and "no instance" in report["blocked"]
    db.execute("SELECT pg_drop_replication_slot(%s)", (consumer.prefix,))
    report = json.loads(consumer.command("status", "--json").stdout)
    assert "does not exist any more" in report["blocked"] and "resync" in report["blocked"]
    assert [t["publications"] for t in report["tables"] if t["table"] == "public.keyless"] == [[]]
    assert "does not exist any more" in consumer.command("status").stdout


def test_help_needs_nothing() -> None:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PG_TRICKLE_")}
    line = [sys.executable, "-c", "from cdc_consumer.cli import main; main()", "run", "--help"]
    answer = subprocess.run(line, env=environment, capture_output=True, text=True, check=True, timeout=20)
    assert "--database-url" in answer.stdout
