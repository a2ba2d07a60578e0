"""A server that lacks a requirement: one message, a hint, nothing acknowledged. Uses a server of its own."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
from psycopg.conninfo import make_conninfo

from deploy.local.postgres import Postgres
from tests.cdc_consumer.harness import Consumer, connect, refused, until
from tests.cdc_consumer.test_refused_tables import stopped
from tests.fixtures import choice
from tests.fixtures.kafka import KafkaBroker


@pytest.fixture
def server() -> Iterator[Postgres]:
    if choice.stack_choice() != choice.EMBEDDED:
        pytest.skip("only an embedded server's settings are ours")
    with choice.server_folder("refusals") as folder:
        server = Postgres(folder, major=choice.postgres_major(), durable=False)
        server.start()
        yield server
        server.stop()


def again(server: Postgres, **settings: str) -> None:
    """Restart with other settings."""
    server.stop()
    server._settings = server._settings | settings
    server.start()


def execute(url: str, *statements: str) -> None:
    with connect(url) as db:
        for statement in statements:
            db.execute(statement.encode())


def refusal(consumer: Consumer, url: str) -> str:
    """Return the message of a start with this URL."""
    consumer.log.unlink(missing_ok=True)
    consumer.environment["PG_TRICKLE_DATABASE_URL"] = url
    return refused(consumer)


@pytest.fixture
def consumer(server: Postgres, kafka: KafkaBroker, tmp_path: Path) -> Iterator[Consumer]:
    consumer = Consumer(server.url, kafka.bootstrap, f"t{secrets.token_hex(6)}", tmp_path, heartbeat_ms=300)
    yield consumer
    consumer.end()


def test_what_is_missing_is_named(server: Postgres, consumer: Consumer) -> None:
    again(server, wal_level="replica")
    text = refusal(consumer, server.url)
    assert "wal_level is replica" in text and "ALTER SYSTEM SET wal_level = logical" in text
    again(server, wal_level="logical", max_replication_slots="2")
    execute(server.url, "SELECT pg_create_physical_replication_slot('taken' || g) FROM generate_series(1, 2) g")
    text = refusal(consumer, server.url)
    assert "all replication slots are in use" in text and "max_replication_slots" in text
    execute(server.url, "SELECT pg_drop_replication_slot('taken' || g) FROM generate_series(1, 2) g")
    # Rights, one after the other: replication, publication, table.
    execute(server.url, "CREATE ROLE weak LOGIN PASSWORD 'weak'", "CREATE TABLE hidden (id int PRIMARY KEY)")
    weak = make_conninfo(server.url, user="weak", password="weak")
    assert "REPLICATION" in refusal(consumer, weak)
    execute(server.url, "ALTER ROLE weak REPLICATION", "DROP PUBLICATION pg_trickle")
    assert "permission denied for database" in refusal(consumer, weak)
    execute(server.url, "CREATE PUBLICATION pg_trickle FOR TABLE hidden")
    # A table concerns its own readers alone.
    consumer.start()
    reason = stopped(consumer, "hidden")
    assert "permission denied for table" in reason and "GRANT SELECT ON" in reason
    execute(server.url, "GRANT SELECT ON hidden TO weak", "INSERT INTO hidden VALUES (1)")
    until(lambda: not consumer.caught_up().captures[-1].get("stopped"), "captured")
    assert [row.values for row in consumer.caught_up().rows["public.hidden"] if row.op == "I"] == [("1",)]
