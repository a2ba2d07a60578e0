"""kill -9 at random moments, a killed broker, a crashed server: topics equal tables, and no change row comes twice."""

from __future__ import annotations

import os
import random
import time

from tests.cdc_consumer.conftest import MODES
from tests.cdc_consumer.harness import Connection, Consumer, check, until
from tests.cdc_consumer.history import SCHEMA, TABLES, run_transaction
from tests.cdc_consumer.writers import writing
from tests.fixtures.kafka import KafkaBroker
from tests.fixtures.postgres import PostgresServer

KILLS = int(os.environ.get("KILLS", "8"))
"""`KILLS=50` for the long form."""


@MODES
def test_killed_again_and_again_under_load(consumer: Consumer, db: Connection, mode: str) -> None:
    seed = int(os.environ.get("KILL_SEED", time.time_ns()))
    kills = KILLS if mode == "log" or KILLS > 8 else 3
    print(f"KILLS={kills} KILL_SEED={seed}")
    pick = random.Random(seed)
    db.execute(SCHEMA)
    db.execute("CREATE TABLE bulk (id int PRIMARY KEY, v int); ALTER TABLE bulk REPLICA IDENTITY FULL")
    db.execute("ALTER PUBLICATION pg_trickle ADD TABLE bulk")
    hit = 0
    with writing(consumer.url, run_transaction, sessions=1, pause_s=0.02):
        for round_number in range(kills):
            streamed = streams(consumer)
            consumer.start(wait=False)
            # One large commit per round, so that some kills happen in the middle of a long Kafka transaction.
            first = round_number * 10_000
            db.execute(f"INSERT INTO bulk SELECT g, 0 FROM generate_series({first}, {first + 3000}) g".encode())
            # Most kills happen while it streams or captures, the others while it starts.
            if pick.random() < 0.8:
                until(lambda streamed=streamed: streams(consumer) > streamed, "streaming")
            time.sleep(pick.uniform(0, 0.7))
            hit += streams(consumer) > streamed
            consumer.kill()
    consumer.start()
    check(consumer, [*TABLES, "public.bulk"])
    print(f"{hit} of {kills} kills while it streamed")


def streams(consumer: Consumer) -> int:
    """Return how many of its runs reached streaming."""
    return consumer.log.read_text().count(" streaming slot=") if consumer.log.exists() else 0


def test_the_server_crashes(consumer: Consumer, postgres: PostgresServer, db: Connection) -> None:
    """The slot on disk is older than the acknowledged LSN: the server sends again what is already on the topics."""
    pick = random.Random(3)
    db.execute(SCHEMA)
    consumer.start()
    for _ in range(20):
        run_transaction(db, pick)
    check(consumer, TABLES)
    # Without a checkpoint in between, the crash resets the slot to the LSN of its creation.
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
