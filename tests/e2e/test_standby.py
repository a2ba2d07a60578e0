"""A second applier stands by and takes over: nothing is lost or doubled in any of the three places."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from deploy.local.binary import Binary
from deploy.local.process import free_port
from deploy.local.stack import Stack
from tests import oracle
from tests.e2e import stopped_in
from tests.fixtures.alerts import next_alert

Connection = psycopg.Connection[tuple[object, ...]]

KILLED_WITHIN_S = 20.0
SILENT_WITHIN_S = 30.0
"""Bounds on a machine that other tests use too; one that hangs is noticed after eight seconds."""

LONG = pytest.mark.skipif(not os.environ.get("PG_TRICKLE_LONG_TESTS"), reason="long: PG_TRICKLE_LONG_TESTS")

HEALTH = "SELECT detail FROM pgtrickle.health_check() WHERE check_name = 'standby'"


@pytest.fixture
def sums(db: Connection) -> Connection:
    db.execute(
        "CREATE TABLE handed_over (id int PRIMARY KEY, v int NOT NULL);"
        " INSERT INTO handed_over SELECT g, g FROM generate_series(1, 100) g"
    )
    db.execute(
        "SELECT pgtrickle.create_stream_table('sums',"
        " 'SELECT id % 7 AS k, count(*) AS n, sum(v) AS v FROM handed_over GROUP BY 1')"
    )
    db.execute("SELECT pgtrickle.wait_for('sums', timeout => '120 s')")
    return db


@pytest.fixture
def standby(stack: Stack) -> Iterator[Binary]:
    """Yield a second applier that stands by; afterwards the stack's own applier is the owner again."""
    first = stack.binaries["applier"]
    second = Binary(first.program, stack.folder / "standby.log", metrics_port=free_port())
    second.settings = first.settings
    second.start()
    oracle.eventually(lambda: is_ready_to_take_over(second))
    yield second
    second.stop()
    if not first.running:
        stack.restart("applier")
    first.wait_ready()


@pytest.fixture
def listener(stack: Stack) -> Iterator[Connection]:
    with psycopg.connect(stack.addresses.database_url, autocommit=True) as connection:
        connection.execute("LISTEN pg_trickle_alert")
        yield connection


def is_ready_to_take_over(standby: Binary) -> None:
    assert "ready to take over" in standby.last_words() and not standby.ready


def change(db: Connection, limit_s: float) -> None:
    """Change some rows; the stream table must show them in time."""
    began = time.monotonic()
    db.execute("UPDATE handed_over SET v = v + 1 WHERE id % 3 = 0")
    db.execute("INSERT INTO handed_over SELECT max(id) + 1, 5 FROM handed_over")
    db.execute("SELECT pgtrickle.wait_for('sums', timeout => '180 s')")
    took = time.monotonic() - began
    print(f"fresh after {took:.1f} s")
    assert took < limit_s


def is_writing(db: Connection) -> None:
    found = db.execute(
        "SELECT count(*) FROM pg_locks l WHERE NOT l.granted AND l.relation = 'pgtrickle.pgt_frontiers'::regclass"
    )
    assert found.fetchone() != (0,)


def test_a_standby_takes_over_from_an_applier_that_was_killed_and_from_one_that_hangs(
    sums: Connection, stack: Stack, standby: Binary, listener: Connection
) -> None:
    """The one that hangs is in the middle of a write; when it goes on, it finds that it was replaced, and ends."""
    first = stack.binaries["applier"]
    assert "1 applier stands by" in str(sums.execute(HEALTH).fetchone())
    stack.kill("applier")
    change(sums, KILLED_WITHIN_S)
    next_alert(listener, "applier_taken_over", "ended")

    stack.restart("applier", wait=False)
    oracle.eventually(lambda: is_ready_to_take_over(first))
    with psycopg.connect(stack.addresses.database_url) as holder:
        holder.execute("LOCK TABLE pgtrickle.pgt_frontiers IN SHARE MODE")
        sums.execute("DELETE FROM handed_over WHERE id % 5 = 0")
        oracle.eventually(lambda: is_writing(sums))
        os.killpg(os.getpgid(standby.pid), signal.SIGSTOP)
    change(sums, SILENT_WITHIN_S)
    assert "was silent" in str(sums.execute(HEALTH).fetchone())
    os.killpg(os.getpgid(standby.pid), signal.SIGCONT)
    oracle.eventually(lambda: has_ended(standby))
    change(sums, KILLED_WITHIN_S)
    check(sums, stack)


def check(db: Connection, stack: Stack) -> None:
    """All three places hold what the query returns."""
    expected = oracle.query_result(db, "sums")
    replay = oracle.TopicReplay(stack.addresses.kafka_bootstrap, "trickle_out.public.sums", "trickle_out.schemas")
    oracle.assert_same(expected, oracle.in_postgres(db, "sums"), "in PostgreSQL")
    oracle.eventually(lambda: oracle.assert_same(expected, replay.catch_up(), "on its topic"))
    oracle.eventually(
        lambda: oracle.assert_same(expected, oracle.in_delta(stack.addresses.delta_root, "sums"), "in Delta")
    )
    assert replay.stamps == sorted(set(replay.stamps)), "a stamp is repeated or out of order"


def has_ended(standby: Binary) -> None:
    assert not standby.running
    words = standby.last_words()
    assert standby.exit_code == 1 and words.count("error: another applier has taken over") == 1, words
    assert "Traceback" not in words, words


@LONG
def test_an_owner_that_is_stopped_leaves_at_once(sums: Connection, stack: Stack, standby: Binary) -> None:
    """As in a rolling upgrade. Without a standby it ends as ever."""
    stack.binaries["applier"].stop()
    change(sums, KILLED_WITHIN_S)
    words = stack.binaries["applier"].last_words()
    assert "the standby takes over" in words and "Traceback" not in words, words
    assert stack.binaries["applier"].exit_code == 0 and standby.running
    check(sums, stack)
    standby.stop()
    assert "applier stopped" in standby.last_words() and standby.exit_code == 0


@LONG
@pytest.mark.parametrize("place", stopped_in.PLACES)
def test_an_owner_that_is_stopped_inside_a_write_doubles_nothing(sums: Connection, stack: Stack, place: str) -> None:
    """For half a minute, in the write into each sink; meanwhile the other one goes on."""
    own, flag = stack.binaries["applier"], stack.folder / f"stop_in_{place}"
    launcher = (sys.executable, stopped_in.__file__, place, str(flag))
    hangs = Binary(replace(own.program, launcher=launcher), stack.folder / f"{place}.log", metrics_port=free_port())
    hangs.settings = own.settings
    stack.stop("applier")
    hangs.start()
    hangs.wait_ready()
    stack.restart("applier", wait=False)
    oracle.eventually(lambda: is_ready_to_take_over(own))
    flag.touch()
    sums.execute("UPDATE handed_over SET v = v + 1 WHERE id % 3 = 0")
    oracle.eventually(lambda: is_stopped(hangs, flag))
    began = time.monotonic()
    for _ in range(3):
        change(sums, SILENT_WITHIN_S)
    time.sleep(max(0.0, 30.0 - (time.monotonic() - began)))
    os.kill(hangs.pid, signal.SIGCONT)
    oracle.eventually(lambda: has_ended(hangs))
    change(sums, KILLED_WITHIN_S)
    check(sums, stack)


def is_stopped(binary: Binary, flag: Path) -> None:
    assert not flag.exists()
    assert Path(f"/proc/{binary.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
