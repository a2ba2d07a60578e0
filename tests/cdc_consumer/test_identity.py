"""The server is not the one of the stored progress: it was promoted, or restored to an older state."""

from __future__ import annotations

import secrets
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local.postgres import Postgres
from tests.cdc_consumer.harness import Consumer, check, connect, refused, until
from tests.fixtures import choice
from tests.fixtures.kafka import KafkaBroker
from tests.fixtures.own_server import OwnServer

SCHEMA = """
CREATE PUBLICATION pg_trickle;
CREATE TABLE t (id int PRIMARY KEY, v text);
ALTER TABLE t REPLICA IDENTITY FULL;
ALTER PUBLICATION pg_trickle ADD TABLE t
"""


BOTH_MAJORS = pytest.mark.parametrize("own", [16, 18], indirect=True)


@pytest.fixture
def own(request: pytest.FixtureRequest) -> Iterator[OwnServer]:
    if choice.stack_choice() != choice.EMBEDDED:
        pytest.skip("only an embedded server's files are ours")
    with choice.server_folder("identity") as folder:
        major = getattr(request, "param", choice.postgres_major())
        own = OwnServer(Postgres(folder, major=major, durable=False))
        yield own
        own.server.stop()


def started(own: OwnServer, kafka: KafkaBroker, tmp_path: Path) -> Consumer:
    with connect(own.server.url) as db:
        db.execute(SCHEMA.encode())
        db.execute("INSERT INTO t SELECT g, 'old' FROM generate_series(1, 10) g")
    consumer = Consumer(own.server.url, kafka.bootstrap, f"t{secrets.token_hex(6)}", tmp_path)
    consumer.start()
    return consumer


def execute(own: OwnServer, *statements: str) -> None:
    with connect(own.server.url) as db:
        for statement in statements:
            db.execute(statement.encode())


def end(consumer: Consumer) -> None:
    consumer.caught_up()
    assert consumer.stop() == 0


@BOTH_MAJORS
def test_a_promoted_server_with_everything_published_continues(
    own: OwnServer, kafka: KafkaBroker, tmp_path: Path
) -> None:
    consumer = started(own, kafka, tmp_path)
    execute(own, "UPDATE t SET v = 'published' WHERE id < 5")
    end(consumer)
    own.promote()
    execute(own, "INSERT INTO t VALUES (11, 'on the new timeline')")
    consumer.start()
    content = check(consumer, ["public.t"])
    assert {record["timeline"] for record in content.progress} == {1, 2}
    consumer.end()


@BOTH_MAJORS
def test_a_server_put_back_to_an_older_state(own: OwnServer, kafka: KafkaBroker, tmp_path: Path) -> None:
    consumer = started(own, kafka, tmp_path)
    execute(own, "UPDATE t SET v = 'in the copy'")
    end(consumer)
    own.back_up()
    consumer.start()
    execute(own, "UPDATE t SET v = 'published, then gone'")
    end(consumer)
    # Restored with recovery: a new timeline that began before our frontier.
    own.put_back(new_timeline=True)
    text = refused(consumer)
    assert "left timeline 1 at" in text and "resync --restored" in text
    # Restored as files: its log is shorter than what was published …
    own.put_back(new_timeline=False)
    assert "the server's log ends at" in refused(consumer)
    # … until it has grown again, with other changes instead of ours.
    execute(own, "CREATE TABLE filler AS SELECT repeat('x', 1000) FROM generate_series(1, 3000)", "CHECKPOINT")
    execute(own, "UPDATE t SET v = 'of another history'")
    text = refused(consumer)
    assert "does not have the commit at" in text and "resync --restored" in text
    # It goes on with the same topics, beyond every published position.
    own.put_back(new_timeline=True)
    plan = consumer.command("resync")
    assert "Do that?" in plan.stdout and "left timeline 1" in plan.stdout and "public.t" in plan.stdout
    assert "moved past the published position" in plan.stdout and plan.returncode == 130
    assert "left timeline 1 at" in refused(consumer)
    assert consumer.command("resync", "--yes").returncode == 0
    execute(own, "UPDATE t SET v = 'after the resync' WHERE id < 3")
    consumer.start()
    check(consumer, ["public.t"])
    consumer.end()


def test_a_slot_moved_by_somebody(own: OwnServer, kafka: KafkaBroker, tmp_path: Path) -> None:
    consumer = started(own, kafka, tmp_path)
    end(consumer)
    execute(
        own,
        "INSERT INTO t VALUES (12, 'skipped by hand')",
        f"SELECT pg_replication_slot_advance('{consumer.prefix}', pg_current_wal_lsn())",
    )
    text = refused(consumer)
    assert "another program moved it" in text and "resync" in text


def test_a_slot_the_server_gave_up(own: OwnServer, kafka: KafkaBroker, tmp_path: Path) -> None:
    consumer = started(own, kafka, tmp_path)
    end(consumer)
    execute(
        own,
        "ALTER SYSTEM SET max_slot_wal_keep_size = '1MB'",
        "SELECT pg_reload_conf()",
        "CREATE TABLE filler AS SELECT g AS n FROM generate_series(1, 10) g",
        *["SELECT pg_switch_wal(); INSERT INTO filler VALUES (1)"] * 4,
        "CHECKPOINT",
    )
    text = refused(consumer)
    assert "was invalidated" in text and "resync" in text and "max_slot_wal_keep_size" in text
    assert "was invalidated" in consumer.command("status").stdout


def holder(own: OwnServer, slot: str) -> object:
    """Return the program whose session has the slot, or None."""
    with connect(own.server.url) as db:
        row = db.execute(
            "SELECT application_name FROM pg_replication_slots LEFT JOIN pg_stat_activity ON pid = active_pid"
            " WHERE slot_name = %s",
            (slot,),
        ).fetchone()
    assert row is not None
    return row[0]


def test_a_slot_stolen_while_streaming(own: OwnServer, kafka: KafkaBroker, tmp_path: Path) -> None:
    """The consumer waits for the session that has the slot, and notices that it moved the slot."""
    consumer = started(own, kafka, tmp_path)
    consumer.caught_up()
    options = ["-o", "proto_version=1", "-o", "publication_names=pg_trickle"]
    command = [str(own.server.bin("pg_recvlogical")), "-d", own.server.url, "-S", consumer.prefix, "--start", *options]
    # The consumer is stopped meanwhile, or it would have the slot again before the thief asks for it.
    consumer.process.send_signal(signal.SIGSTOP)
    execute(
        own, f"SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = '{consumer.prefix}'"
    )
    until(lambda: holder(own, consumer.prefix) is None, "the slot is free")
    thief = subprocess.Popen([*command, "-f", "/dev/null", "-s", "1", "-F", "1"])
    until(lambda: holder(own, consumer.prefix) == "pg_recvlogical", "stolen")
    consumer.process.send_signal(signal.SIGCONT)
    try:
        until(lambda: "standing by" in consumer.get("/readyz")[1], "standing by")
        execute(own, "INSERT INTO t VALUES (13, 'stolen')")

        def moved() -> bool:
            with connect(own.server.url) as db:
                query = (
                    "SELECT confirmed_flush_lsn >= pg_current_wal_lsn() FROM pg_replication_slots WHERE slot_name = %s"
                )
                return db.execute(query, (consumer.prefix,)).fetchone() == (True,)

        until(moved, "the thief has moved the slot")
    finally:
        thief.terminate()
        thief.wait(10)
    assert consumer.process.wait(20) == 1
    assert "another program moved it" in consumer.log.read_text()


def test_the_server_is_away_and_comes_back(own: OwnServer, kafka: KafkaBroker, tmp_path: Path) -> None:
    """The consumer waits for it, reports that everywhere, and loses nothing."""
    consumer = started(own, kafka, tmp_path)
    consumer.caught_up()
    own.server.stop()
    until(lambda: consumer.get("/readyz")[0] == 503, "not ready")
    until(lambda: consumer.metric("pg_trickle_cdc_source_reachable") == 0, "noticed by the gauge")
    assert consumer.get("/healthz")[0] == 200
    assert "PostgreSQL" in consumer.get("/readyz")[1]
    completed = consumer.command("status")
    assert completed.returncode == 1 and "Traceback" not in completed.stderr and "hint" in completed.stderr
    own.server.start()
    until(lambda: consumer.get("/readyz")[0] == 200, "ready again", 20)
    execute(own, "INSERT INTO t VALUES (14, 'after')")
    check(consumer, ["public.t"])
    assert consumer.stop() == 0
