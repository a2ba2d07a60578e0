"""Many large values concern nobody's memory: neither the driver's nor, in one commit, the applier's."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from confluent_kafka import Consumer, TopicPartition

from deploy.local.stack import Stack
from shared_schema.table_schema import TableId
from shared_schema.topics import DEFAULT_PREFIX, table_topic
from tests import oracle
from tests.fixtures import choice
from tests.fixtures.roles import StackOfRoles
from tests.life.test_containment import LONG, Connection, assert_equal, create

VALUE_BYTES = 800_000


@contextmanager
def halted(pid: int) -> Iterator[None]:
    """Let the JVM of the applier rest, so that all messages wait for it when it goes on."""
    children = [
        int(child) for tid in Path(f"/proc/{pid}/task").iterdir() for child in (tid / "children").read_text().split()
    ]
    java = next(child for child in children if "java" in Path(f"/proc/{child}/comm").read_text())
    os.kill(java, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(java, signal.SIGCONT)


def insert_values(db: Connection, first: int, rows: int) -> None:
    db.execute(
        "INSERT INTO documents SELECT i, repeat(md5(i::text), %s) FROM generate_series(%s::int, %s::int) i",
        (VALUE_BYTES // 32, first, first + rows - 1),
    )


def wait_until_published(stack: Stack, rows: int, within_s: float) -> None:
    consumer = Consumer({"bootstrap.servers": stack.addresses.kafka_bootstrap, "group.id": "test"})
    place = TopicPartition(table_topic(DEFAULT_PREFIX, TableId("public", "documents")), 0)

    def assert_published() -> None:
        assert consumer.get_watermark_offsets(place, timeout=10)[1] >= rows

    oracle.eventually(assert_published, within_s=within_s)
    consumer.close()


def create_readers(db: Connection) -> None:
    db.execute("CREATE TABLE documents (id int PRIMARY KEY, body text)")
    create(
        db,
        sizes="SELECT id, length(body) AS n FROM documents",
        total_size="SELECT count(*) AS n, sum(length(body)) AS bytes FROM documents",
        some_documents="SELECT id, body FROM documents WHERE id % 50 = 0",
    )


READERS = ("sizes", "total_size", "some_documents")


def test_a_commit_larger_than_what_the_driver_takes_at_once(stack: Stack, db: Connection) -> None:
    """Its rows arrive in pieces and wait on disk; then rows of one table are counted by their size everywhere."""
    create_readers(db)
    insert_values(db, 0, 2)
    assert_equal(db, *READERS)
    pid = stack.binaries["applier"].pid
    with halted(pid):
        insert_values(db, 1_000, 100)
        wait_until_published(stack, 100, 30)
    assert_equal(db, *READERS)
    db.execute("UPDATE documents SET body = body || 'x' WHERE id % 20 = 0")
    db.execute("DELETE FROM documents WHERE id % 30 = 0")
    assert_equal(db, *READERS)
    assert stack.binaries["applier"].pid == pid


@pytest.mark.skipif(not LONG, reason="sixteen gigabytes: PG_TRICKLE_LONG_TESTS")
@pytest.mark.timeout(3600)
def test_twenty_thousand_values_through_a_small_driver() -> None:
    """They killed the driver, and again after every restart: micro-batches were counted in messages only."""
    rows = int(os.environ.get("PG_TRICKLE_LARGE_VALUES", "20000"))
    with (
        choice.server_folder("large") as folder,
        StackOfRoles(
            folder,
            major=choice.postgres_major(),
            durable=False,
            settings={"PG_TRICKLE_SPARK_DRIVER_MEMORY": "1g"},
        ) as stack,
        psycopg.connect(stack.addresses.database_url, autocommit=True) as db,
    ):
        create_readers(db)
        insert_values(db, 0, 2)
        assert_equal(db, *READERS)
        pid = stack.binaries["applier"].pid
        with halted(pid):
            # Half of them in one commit.
            insert_values(db, 1_000, rows // 2)
            for i in range(20):
                insert_values(db, 1_000_000 * (i + 1), rows // 40)
            wait_until_published(stack, rows, 1800)
        for name in READERS:
            db.execute("SELECT pgtrickle.wait_for(%s, timeout => '50 min')", (name,))
        assert_equal(db, *READERS)
        assert stack.binaries["applier"].pid == pid and stack.binaries["applier"].running
        stack.restart("applier")
        insert_values(db, 100_000_000, 2)
        assert_equal(db, *READERS)
