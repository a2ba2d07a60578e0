"""Two instances of one slot: one works, one waits; whatever happens to the first, no row is lost or duplicated."""

from __future__ import annotations

import json
import signal
import time

from tests.cdc_consumer.conftest import LOG_AND_TABLES, MODES, MakeConsumer
from tests.cdc_consumer.harness import Connection, Consumer, check, refused, until
from tests.cdc_consumer.history import SCHEMA, TABLES, run_transaction
from tests.cdc_consumer.writers import writing
from tests.fixtures.postgres import PostgresServer

TAKEOVER_S = 10.0


def stand_by(standby: Consumer) -> None:
    """Start an instance whose slot is in use, and check that it reports that everywhere."""
    standby.start(wait=False)
    until(lambda: "standing by" in standby.get("/readyz")[1], "standing by")
    assert standby.get("/readyz")[0] == 503 and standby.get("/healthz")[0] == 200
    assert standby.metric("pg_trickle_cdc_standby") == 1
    assert "standing by" in standby.log.read_text()


def takeover_s(standby: Consumer, began: float) -> float:
    standby.wait_ready()
    return time.monotonic() - began


@MODES
def test_a_standby_takes_over_from_a_killed_instance(make_consumer: MakeConsumer, db: Connection) -> None:
    first, second = make_consumer(), make_consumer()
    db.execute(SCHEMA)
    first.start()
    stand_by(second)
    report = json.loads(first.command("status", "--json").stdout)
    assert len(report["standbys"]) == 1 and report["active"]
    assert "1 waiting" in first.command("status").stdout
    with writing(first.url, run_transaction, sessions=1, pause_s=0.01):
        # A long transaction in PostgreSQL and in Kafka is open when it is killed.
        db.execute("INSERT INTO full_key SELECT g, 'bulk', 1 FROM generate_series(1000, 15000) g")
        time.sleep(0.2)
        first.kill()
        taken_s = takeover_s(second, time.monotonic())
    assert taken_s < TAKEOVER_S
    check(second, TABLES)
    assert json.loads(second.command("status", "--json").stdout)["standbys"] == []


@LOG_AND_TABLES
def test_a_stopped_instance_loses_the_slot_and_comes_back_as_standby(
    make_consumer: MakeConsumer, db: Connection
) -> None:
    """The zombie's connections stay open: only its silence reveals it, and only fencing rejects its rows."""
    first, second = make_consumer(wal_sender_timeout_s=4), make_consumer(wal_sender_timeout_s=4)
    db.execute(SCHEMA)
    first.start()
    stand_by(second)
    with writing(first.url, run_transaction, sessions=1, pause_s=0.01):
        for active, waiting in ((first, second), (second, first)):
            db.execute("INSERT INTO keyless SELECT g, 'bulk' FROM generate_series(1, 6000) g; DELETE FROM keyless")
            active.process.send_signal(signal.SIGSTOP)
            assert takeover_s(waiting, time.monotonic()) < TAKEOVER_S
            active.process.send_signal(signal.SIGCONT)
            until(lambda active=active: "standing by" in active.get("/readyz")[1], "the zombie stands by", 20)
    check(first, TABLES)


def test_a_standby_outlives_the_server(make_consumer: MakeConsumer, db: Connection, postgres: PostgresServer) -> None:
    first, second = make_consumer(), make_consumer()
    db.execute(SCHEMA)
    first.start()
    stand_by(second)
    db.close()
    postgres.restart(immediate=True)
    until(lambda: {first.get("/readyz")[0], second.get("/readyz")[0]} == {200, 503}, "one works, one waits")
    working = first if first.get("/readyz")[0] == 200 else second
    check(working, TABLES)


def test_a_standby_gives_up_after_its_limit(make_consumer: MakeConsumer, db: Connection) -> None:
    first, second = make_consumer(), make_consumer(slot_wait_s=1)
    first.start()
    assert "is active" in refused(second)
    db.execute("CREATE TABLE t (a int PRIMARY KEY); ALTER PUBLICATION pg_trickle ADD TABLE t")
    first.caught_up()
