"""Fills whose topic takes long: nobody waits for it, and a kill in the middle loses and repeats nothing."""

from __future__ import annotations

import os
import time
from pathlib import Path

import psycopg
import pytest

from deploy.local.stack import Stack
from tests import oracle

Connection = psycopg.Connection[tuple[object, ...]]

pytestmark = [
    pytest.mark.skipif(not os.environ.get("PG_TRICKLE_LONG_TESTS"), reason="long: PG_TRICKLE_LONG_TESTS"),
    pytest.mark.timeout(1200),
]

ROWS = 900_000


def test_a_large_fill_is_published_beside_the_ticks(db: Connection, stack: Stack) -> None:
    db.execute("CREATE TABLE lengthy_rows (id int PRIMARY KEY, t text); CREATE TABLE beside (id int PRIMARY KEY)")
    db.execute(f"INSERT INTO lengthy_rows SELECT i, 'row ' || i FROM generate_series(1, {ROWS}) i".encode())
    db.execute("SELECT pgtrickle.create_stream_table('beside_count', 'SELECT count(*) AS n FROM beside')")
    applier, log = stack.binaries["applier"], Path(stack.addresses.applier_log)
    applier.settings |= {"PG_TRICKLE_LOG_LEVEL": "debug"}
    stack.restart("applier")
    seen = log.stat().st_size
    db.execute("SELECT pgtrickle.create_stream_table('lengthy_all', 'SELECT id, t FROM lengthy_rows')")
    db.execute("SELECT pgtrickle.wait_for('lengthy_all', timeout => '10 min')")
    oracle.eventually(lambda: assert_logged(log, seen, "published in part"), within_s=120)
    slowest = 0.0
    for number in range(5):
        began = time.monotonic()
        db.execute("INSERT INTO beside VALUES (%s)", (number,))
        db.execute("SELECT pgtrickle.wait_for('beside_count', timeout => '60 s')")
        slowest = max(slowest, time.monotonic() - began)
    print(f"slowest of five refreshes while {ROWS} rows are published: {slowest:.2f} s")
    assert "published in part" in read_since(log, seen) and slowest < 20
    stack.kill("applier")
    db.execute("UPDATE lengthy_rows SET t = 'changed' WHERE id % 1000 = 0")
    stack.restart("applier")
    db.execute("SELECT pgtrickle.wait_for('lengthy_all', timeout => '10 min')")
    expected = oracle.query_result(db, "lengthy_all")
    replay = oracle.TopicReplay(
        stack.addresses.kafka_bootstrap, "trickle_out.public.lengthy_all", "trickle_out.schemas"
    )
    oracle.eventually(lambda: oracle.assert_same(expected, replay.catch_up(), "topic"), within_s=600)
    assert replay.stamps == sorted(set(replay.stamps))


def read_since(log: Path, position: int) -> str:
    return log.read_bytes()[position:].decode(errors="replace")


def assert_logged(log: Path, position: int, text: str) -> None:
    assert text in read_since(log, position), f"{text!r} was not seen"
