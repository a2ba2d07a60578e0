"""Readers in another database show no frontier at which DDL had altered rows behind the log."""

from __future__ import annotations

import json
import time

import pytest

from applier.ingest.inbox import Inbox
from shared_schema.progress import decode_progress
from tests.cdc_consumer.conftest import MakeConsumer
from tests.cdc_consumer.harness import Connection, Consumer, check, scalar, until
from tests.cdc_consumer.test_outdated import SCHEMA, captures, copies
from tests.cdc_consumer.topic_reader import Content, position
from tests.fixtures.standby import committing

REWRITE = "ALTER TABLE t ALTER v TYPE int USING v + 100"

OF_APPLIER = """
CREATE SCHEMA pgtrickle;
CREATE TABLE pgtrickle.pgt_source_facts AS SELECT 't'::regclass::oid AS source_relid;
CREATE TABLE pgtrickle.pgt_dependencies AS SELECT source_relid, 'TABLE' AS source_type FROM pgtrickle.pgt_source_facts;
CREATE TABLE pgtrickle.pgt_recaptures (source_relid oid, epoch bigint)
"""
"""What an applier of the same database stores of `t`."""


def shown(content: Content) -> list[int]:
    """Return the frontiers that readers elsewhere show, if each record comes alone and with all its rows."""
    inbox, frontiers = Inbox(sources_elsewhere=True), []
    for offset, record in enumerate(content.progress):
        alone = {**record, "end_offsets": {}, "checkpoint": None}
        inbox.add_record(("progress", 0), offset, decode_progress(json.dumps(alone).encode()))
        frontiers.append(inbox.advance().value)
    return sorted(set(frontiers))


def end_of_log(db: Connection) -> int:
    return position(str(scalar(db, "SELECT pg_current_wal_insert_lsn()::text")))


def insert(db: Connection) -> int:
    """Add a row that is in the log -> the end of the log after it."""
    db.execute("INSERT INTO other SELECT max(id) + 1 FROM other")
    return end_of_log(db)


def until_shown(consumer: Consumer, at: int) -> None:
    until(lambda: shown(consumer.caught_up())[-1] >= at, "readers elsewhere show it", limit_s=20)


def assert_nothing_shown_between(consumer: Consumer, altered: int) -> None:
    """Nothing from the DDL on until the copy of its table is complete; other readers were not held back."""
    content = check(consumer, ["public.t", "public.other"])
    copied_at = max(position(record["snapshot_lsn"]) for record in content.captures if record["table"] == "t")
    assert altered < copied_at
    assert [at for at in shown(content) if altered <= at <= copied_at] == []


@pytest.mark.parametrize("is_local", [False, True], ids=["far", "local and far"])
def test_between_ddl_and_copy(make_consumer: MakeConsumer, db: Connection, is_local: bool) -> None:
    """Whether an applier of the same database compares the table too, and requests the copy, or not."""
    consumer = make_consumer(heartbeat_ms=300)
    db.execute(SCHEMA.encode())
    if is_local:
        db.execute(OF_APPLIER.encode())
    consumer.start()
    until_shown(consumer, insert(db))
    db.execute(REWRITE.encode())
    altered = end_of_log(db)
    for _ in range(5):
        insert(db)
        time.sleep(0.02)
    if is_local:
        time.sleep(2.0)
        content = consumer.caught_up()
        assert copies(consumer, "t") == 1, "the applier requests it"
        assert shown(content)[-1] <= altered < content.frontier, "only readers elsewhere wait"
        db.execute("INSERT INTO pgtrickle.pgt_recaptures SELECT 't'::regclass, 1")
    until(lambda: copies(consumer, "t") == 2, "copied again")
    until_shown(consumer, insert(db))
    assert_nothing_shown_between(consumer, altered)
    assert copies(consumer, "t") == 2 and copies(consumer, "other") == 1


def test_a_copy_that_no_applier_requests(make_consumer: MakeConsumer, db: Connection) -> None:
    """It is down, or the stream tables that read the table are suspended."""
    consumer = make_consumer(heartbeat_ms=300)
    db.execute(SCHEMA.encode())
    db.execute(OF_APPLIER.encode())
    consumer.start()
    until_shown(consumer, insert(db))
    db.execute(REWRITE.encode())
    altered = end_of_log(db)
    until(lambda: copies(consumer, "t") == 2, "copied again", limit_s=30)
    until_shown(consumer, insert(db))
    assert_nothing_shown_between(consumer, altered)
    assert not any(record.get("left_out") or record.get("stopped") for record in captures(consumer, "t"))


def test_a_commit_that_waits_for_a_standby(make_consumer: MakeConsumer, db: Connection, database: str) -> None:
    """It is on the topics, and nobody can see what it did: the frontier is published, and is not shown elsewhere."""
    consumer = make_consumer(heartbeat_ms=300)
    db.execute(SCHEMA.encode())
    consumer.start()
    until_shown(consumer, insert(db))
    with committing(database, f"{REWRITE}; INSERT INTO other VALUES (1000)"):
        altered = end_of_log(db)
        for _ in range(10):
            insert(db)
            time.sleep(0.1)
        content = consumer.caught_up()
        assert content.frontier > altered, "everything goes on for those who see the catalog"
        assert shown(content)[-1] <= altered and copies(consumer, "t") == 1
    until(lambda: copies(consumer, "t") == 2, "copied again")
    until_shown(consumer, insert(db))
    assert_nothing_shown_between(consumer, altered)


def test_ddl_while_the_consumer_is_down_or_dies(make_consumer: MakeConsumer, db: Connection) -> None:
    consumer = make_consumer(heartbeat_ms=300)
    db.execute(SCHEMA.encode())
    consumer.start()
    for number in range(3):
        until_shown(consumer, insert(db))
        if number != 1:
            consumer.kill()
        db.execute(REWRITE.encode())
        altered = end_of_log(db)
        insert(db)
        if number == 1:
            time.sleep(0.15)
            consumer.kill()
        consumer.start()
        until(lambda n=number: copies(consumer, "t") == n + 2, "copied again")
        until_shown(consumer, insert(db))
        assert_nothing_shown_between(consumer, altered)


def test_an_idle_consumer_writes_nothing(make_consumer: MakeConsumer, db: Connection) -> None:
    """It goes on looking, but what was confirmed once is not published again."""
    consumer = make_consumer(heartbeat_ms=60_000)
    db.execute(SCHEMA.encode())
    consumer.start()
    until_shown(consumer, insert(db))
    time.sleep(1.5)
    published = consumer.metric("pg_trickle_cdc_publishes_total")
    time.sleep(3.0)
    assert consumer.metric("pg_trickle_cdc_publishes_total") == published > 0
