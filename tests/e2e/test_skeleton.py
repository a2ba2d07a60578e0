"""The whole pipeline: random changes in PostgreSQL, equal results in all three sinks, also after parts were killed.

The sources belong to another role: the programs may only read them.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import psycopg
import pytest
from psycopg import errors

from deploy.local.stack import Stack
from shared_schema.connections import parse_conninfo
from tests import oracle
from tests.e2e.shop import STREAM_TABLES, TABLE_NAMES, Shop, create_stream_tables

SEED = 20240229

Connection = psycopg.Connection[tuple[object, ...]]


class Run:
    """One shop on one stack, with a replay of every publication topic."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.connection = self.connect()
        self.connection.execute("SET ROLE postgres; CREATE ROLE keeper; GRANT CREATE ON SCHEMA public TO keeper")
        self.shop = Shop(self.connect("keeper"), random.Random(SEED))
        bootstrap = stack.addresses.kafka_bootstrap
        self.replays = {
            name: oracle.TopicReplay(bootstrap, f"trickle_out.public.{name}", "trickle_out.schemas")
            for name in STREAM_TABLES
        }

    def connect(self, role: str = "trickle_owner") -> Connection:
        connection = psycopg.connect(self.stack.addresses.database_url, autocommit=True)
        connection.execute(f"SET ROLE {role}".encode())
        return connection

    def create(self) -> None:
        self.shop.create()
        for table in TABLE_NAMES:
            self.shop.connection.execute(f"ALTER TABLE {table} REPLICA IDENTITY FULL".encode())
            self.shop.connection.execute(f"GRANT SELECT ON {table} TO trickle_owner, trickle_cdc".encode())
            self.connection.execute(f"ALTER PUBLICATION pg_trickle ADD TABLE {table}".encode())
        self.connection.execute("SET ROLE trickle_owner")
        create_stream_tables(self.connection)

    def close(self) -> None:
        self.connection.close()
        self.shop.connection.close()

    def check_all(self) -> None:
        connection = self.connection
        for name in STREAM_TABLES:
            # A killed applier starts a new Spark, while the tests of the other lane use the other core.
            connection.execute("SELECT pgtrickle.wait_for(%s, timeout => '180 s')", (name,))
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
    run.create()
    yield run
    run.close()
    # Tests after this one use some of its names.
    with run.connect("postgres") as admin:
        for name in STREAM_TABLES:
            if admin.execute("SELECT to_regclass(%s) IS NOT NULL", (name,)).fetchone() == (True,):
                admin.execute("SELECT pgtrickle.drop_stream_table(%s, cascade => true)", (name,))
        admin.execute("DROP OWNED BY keeper CASCADE; DROP ROLE keeper")


def test_stream_tables_are_filled_with_existing_rows(run: Run) -> None:
    run.check_all()


def test_random_changes_arrive_exactly(run: Run) -> None:
    for _ in range(6):
        for _ in range(8):
            run.shop.transaction()
        run.connection.execute("SELECT pgtrickle.wait_for('per_segment')")
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
        run.close()
    run.stack.restart(part)
    if part == "postgres":
        run.connection, run.shop.connection = run.connect(), run.connect("keeper")
    for _ in range(3):
        run.shop.transaction()
    run.check_all()


def test_history_and_status_show_what_happened(run: Run) -> None:
    status = run.connection.execute(
        "SELECT name, status, is_populated FROM pgtrickle.pgt_status() WHERE name = ANY(%s)",
        ([f"public.{name}" for name in STREAM_TABLES],),
    ).fetchall()
    assert status == [(f"public.{name}", "ACTIVE", True) for name in sorted(STREAM_TABLES)]
    first = run.connection.execute(
        "SELECT action, refresh_reason FROM pgtrickle.get_refresh_history('per_segment', 1000) ORDER BY refresh_id"
    ).fetchall()[0]
    assert first == ("FULL", "INITIAL")


def test_the_programs_may_write_no_more_than_they_must(run: Run) -> None:
    """The consumer may write nothing, the applier only its own tables; all tests above ran with these rights."""
    forbidden = {
        "cdc": ["CREATE TABLE mine (id int)", "DELETE FROM big_orders", "DELETE FROM pgtrickle.pgt_frontiers"],
        "applier": ["TRUNCATE customers", "ALTER TABLE visits ADD COLUMN x int"],
    }
    for part, statements in forbidden.items():
        url = run.stack.binaries[part].settings["PG_TRICKLE_DATABASE_URL"]
        assert parse_conninfo(url)["user"] == f"trickle_{part}"
        with psycopg.connect(url, autocommit=True) as connection:
            assert connection.execute("SELECT rolsuper FROM pg_roles WHERE rolname = session_user").fetchone() == (
                False,
            )
            for statement in [*statements, "INSERT INTO orders (id) VALUES (1)", "UPDATE visits SET seconds = 1"]:
                with pytest.raises(errors.InsufficientPrivilege):
                    connection.execute(statement.encode())
