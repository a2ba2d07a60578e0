"""The whole pipeline: random changes in PostgreSQL, equality in all three sinks, also after parts were killed."""

from __future__ import annotations

import random
from collections.abc import Iterator

import psycopg
import pytest

from deploy.local.stack import Stack
from tests import oracle
from tests.e2e.shop import STREAM_TABLES, Shop

SEED = 20240229


class Run:
    """One shop on one stack, with a replay of every publication topic."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.shop = Shop(psycopg.connect(stack.addresses.database_url, autocommit=True), random.Random(SEED))
        bootstrap = stack.addresses.kafka_bootstrap
        self.replays = {
            name: oracle.TopicReplay(bootstrap, f"trickle_out.public.{name}", "trickle_out.schemas")
            for name in STREAM_TABLES
        }

    def check_all(self) -> None:
        connection = self.shop.connection
        for name in STREAM_TABLES:
            connection.execute("SELECT pgtrickle.wait_for(%s)", (name,))
            expected = oracle.query_result(connection, name)
            oracle.assert_same(expected, oracle.in_postgres(connection, name), f"{name} in PostgreSQL")
            oracle.eventually(
                lambda n=name, e=expected: oracle.assert_same(  # type: ignore[misc]
                    e, self.replays[n].catch_up(), f"{n} on its topic"
                )
            )
            oracle.eventually(
                lambda n=name, e=expected: oracle.assert_same(  # type: ignore[misc]
                    e, oracle.in_delta(self.stack.addresses.delta_root, n), f"{n} in Delta"
                ),
                within_s=90,
            )
            stamps = self.replays[name].stamps
            assert stamps == sorted(set(stamps)), f"{name}: a stamp is repeated or out of order"


@pytest.fixture(scope="module")
def run(stack: Stack) -> Iterator[Run]:
    run = Run(stack)
    run.shop.create()
    run.shop.create_stream_tables()
    yield run
    run.shop.connection.close()


def test_stream_tables_are_filled_with_what_was_there(run: Run) -> None:
    run.check_all()


def test_random_changes_arrive_exactly(run: Run) -> None:
    for _ in range(6):
        for _ in range(8):
            run.shop.transaction()
        run.shop.connection.execute("SELECT pgtrickle.wait_for('per_segment')")
    run.check_all()


def test_truncate_empties_what_reads_the_table(run: Run) -> None:
    run.shop.truncate()
    run.shop.transaction()
    run.check_all()


@pytest.mark.parametrize("part", ["applier", "cdc", "postgres", "kafka"])
def test_a_killed_part_resumes_without_loss_or_repetition(run: Run, part: str) -> None:
    for _ in range(3):
        run.shop.transaction()
    run.stack.kill(part)
    if part != "postgres":
        for _ in range(3):
            run.shop.transaction()
    else:
        run.shop.connection.close()
    run.stack.restart(part)
    if part == "postgres":
        run.shop.connection = psycopg.connect(run.stack.addresses.database_url, autocommit=True)
    for _ in range(3):
        run.shop.transaction()
    run.check_all()


def test_history_and_status_tell_what_happened(run: Run) -> None:
    status = run.shop.connection.execute(
        "SELECT name, status, is_populated FROM pgtrickle.pgt_status() WHERE name = ANY(%s)",
        ([f"public.{name}" for name in STREAM_TABLES],),
    ).fetchall()
    assert status == [(f"public.{name}", "ACTIVE", True) for name in sorted(STREAM_TABLES)]
    first = run.shop.connection.execute(
        "SELECT action, refresh_reason FROM pgtrickle.get_refresh_history('per_segment', 1000) ORDER BY refresh_id"
    ).fetchall()[0]
    assert first == ("FULL", "INITIAL")
