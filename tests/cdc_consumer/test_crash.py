"""kill -9 at random moments, a broker that dies, a server that crashes: equality and no change row twice."""

from __future__ import annotations

import random
import time

from tests.cdc_consumer.conftest import MODES
from tests.cdc_consumer.harness import Connection, Consumer, check
from tests.cdc_consumer.history import SCHEMA, TABLES, run_transaction
from tests.cdc_consumer.writers import writing
from tests.fixtures.kafka import KafkaBroker
from tests.fixtures.postgres import PostgresServer

KILLS = 5


@MODES
def test_killed_again_and_again_under_load(consumer: Consumer, db: Connection, mode: str) -> None:
    pick = random.Random(time.time_ns())
    db.execute(SCHEMA)
    db.execute("CREATE TABLE bulk (id int PRIMARY KEY, v int); ALTER TABLE bulk REPLICA IDENTITY FULL")
    db.execute("ALTER PUBLICATION pg_trickle ADD TABLE bulk")
    with writing(consumer.url, run_transaction, sessions=1, pause_s=0.01):
        for round_number in range(KILLS if mode == "log" else 3):
            consumer.start(wait=round_number == 0)
            # One large commit per round, so that some kills fall into the middle of a long Kafka transaction.
            first = round_number * 10_000
            db.execute(f"INSERT INTO bulk SELECT g, 0 FROM generate_series({first}, {first + 4000}) g".encode())
            time.sleep(pick.uniform(0.3, 2.0))
            consumer.kill()
    consumer.start(wait=False)
    check(consumer, [*TABLES, "public.bulk"])


def test_the_server_crashes(consumer: Consumer, postgres: PostgresServer, db: Connection) -> None:
    """The slot on disk is older than what was acknowledged: the server sends again what is on the topics already."""
    pick = random.Random(3)
    db.execute(SCHEMA)
    consumer.start()
    for _ in range(20):
        run_transaction(db, pick)
    check(consumer, TABLES)
    # Without a checkpoint in between the crash throws the slot back to where it was created.
    db.close()
    postgres.restart(immediate=True)
    with writing(consumer.url, run_transaction, sessions=1, pause_s=0.01):
        time.sleep(1)
    check(consumer, TABLES)
    assert consumer.metric("pg_trickle_cdc_reconnects_total") >= 1


def test_the_broker_dies(consumer: Consumer, kafka: KafkaBroker, db: Connection) -> None:
    db.execute(SCHEMA)
    consumer.start()
    with writing(consumer.url, run_transaction, sessions=1, pause_s=0.02):
        time.sleep(0.5)
        kafka.restart(immediate=True)
        time.sleep(1)
    check(consumer, TABLES)
