"""Many stream tables that read each other: under load, idle, and while others are created and dropped.

The default run has a small graph; `STREAM_TABLES=50` is the documented size.
"""

from __future__ import annotations

import os
import random
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

from deploy.local.stack import Stack
from tests.benchmarks.busy import BusyMeter
from tests.e2e.test_schedules import assert_equal, value, wait

Connection = psycopg.Connection[tuple[object, ...]]

COUNT = int(os.environ.get("STREAM_TABLES", "10"))
UNDER_LOAD_S = 0.5 * COUNT
IDLE_S = 8.0
SETTLE_S, IDLE_SHARE = (240.0, 0.05) if COUNT >= 50 else (64.0, 0.15)
"""The fraction of a core that both binaries and their child processes may use when idle, and for how long after the
load it may be more. The documented limit is 0.05 once Java has compiled its code. On a machine with other work it was
0.22 in the first seconds of an applier that had run for two minutes, and 0.12 forty seconds later; an applier that
polls 50 times a second stays at 0.20.
"""


def graph(count: int) -> dict[str, str]:
    """Return queries on three levels; each of the third reads two of the second, which read one of the first."""
    first, second = count * 2 // 5, count * 2 // 5
    queries = {
        f"dag_a{i}": "SELECT account, count(*) AS n, sum(amount) AS total FROM dag_moves"
        f" WHERE kind <> {i} GROUP BY account"
        for i in range(first)
    }
    queries |= {
        f"dag_b{i}": f"SELECT account, n, total FROM dag_a{i // 2} WHERE {'n > 1' if i % 2 else 'total > 0'}"
        for i in range(second)
    }
    queries |= {
        f"dag_c{i}": f"SELECT x.account, x.total, y.n FROM dag_b{2 * i} x"
        f" JOIN dag_b{2 * i + 1} y ON y.account = x.account"
        for i in range(count - first - second)
    }
    return queries


@contextmanager
def writing(url: str) -> Iterator[list[int]]:
    """Commit transactions until the block ends; yield how many there were so far."""
    done, stop = [0], threading.Event()

    def write() -> None:
        rng = random.Random(3)
        with psycopg.connect(url, autocommit=True) as connection:
            while not stop.wait(0.02):
                connection.execute(
                    "UPDATE dag_moves SET amount = %s, kind = %s WHERE id = %s",
                    (rng.randint(-50, 50), rng.randint(0, 9), rng.randint(1, 200)),
                )
                done[0] += 1

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield done
    finally:
        stop.set()
        thread.join()


@pytest.fixture
def dag(db: Connection) -> list[str]:
    db.execute("CREATE TABLE dag_moves (id int PRIMARY KEY, account int, kind int, amount numeric(8,2))")
    db.execute("INSERT INTO dag_moves SELECT i, i % 12, i % 10, i % 40 - 15 FROM generate_series(1, 200) i")
    queries = graph(COUNT)
    for name, query in queries.items():
        db.execute("SELECT pgtrickle.create_stream_table(%s, %s)", (name, query))
    for name in queries:
        db.execute("SELECT pgtrickle.wait_for(%s, timeout => '5 min')", (name,))
    return list(queries)


def used(stack: Stack, wall_s: float) -> dict[str, float]:
    """Measure for `wall_s` seconds; return each binary's CPU seconds per second, including its child processes.

    The kernel's account of these processes is used, so other work on the machine is not included.
    """
    meters = {name: BusyMeter([stack.binaries[name].pid]) for name in ("cdc", "applier")}
    before = {name: meter.read() for name, meter in meters.items()}
    time.sleep(wall_s)
    after = {name: meter.read() for name, meter in meters.items()}
    return {n: m.ours_s(before[n], after[n]) / (after[n].at - before[n].at) for n, m in meters.items()}


def refreshes(stack: Stack) -> str:
    """Return how often Spark computed a refresh."""
    with urllib.request.urlopen(stack.addresses.applier_metrics) as page:
        text = str(page.read().decode())
    return next(line for line in text.splitlines() if line.startswith("pg_trickle_compute_seconds_count"))


def test_siblings_show_one_frontier_at_every_tick_and_rest_when_nothing_happens(
    db: Connection, stack: Stack, dag: list[str]
) -> None:
    frontiers = "SELECT count(DISTINCT frontier) FROM pgtrickle.pg_stat_stream_tables WHERE pgt_name = ANY (%s)"
    db.execute("SELECT pgtrickle.wait_for(%s)", (dag[0],))
    wait(db, *dag)
    seen: set[object] = set()
    with writing(stack.addresses.database_url) as commits:
        ends = time.monotonic() + UNDER_LOAD_S
        while time.monotonic() < ends:
            # A tick's rows and frontiers are one transaction.
            seen.add(value(db, frontiers, dag))
            time.sleep(0.01)
    assert seen == {1}, f"{seen} frontiers at once after {commits[0]} commits"
    assert commits[0] > 10
    assert_equal(db, *dag)
    settled = time.monotonic() + SETTLE_S
    while True:
        before, shares = refreshes(stack), used(stack, IDLE_S)
        if sum(shares.values()) < IDLE_SHARE or time.monotonic() > settled:
            break
    print(f"idle with {COUNT} stream tables:", *(f"{name} {share:.1%}" for name, share in shares.items()))
    assert sum(shares.values()) < IDLE_SHARE, shares
    assert refreshes(stack) == before


def test_others_come_and_go_while_it_ticks(db: Connection, stack: Stack) -> None:
    db.execute("CREATE TABLE dag_moves2 (id int PRIMARY KEY, v int); INSERT INTO dag_moves2 VALUES (1, 1)")
    db.execute(
        "SELECT pgtrickle.create_stream_table('steadfast', 'SELECT v, count(*) AS n FROM dag_moves2 GROUP BY v')"
    )
    wait(db, "steadfast")
    failures: list[BaseException] = []

    def come_and_go(number: int) -> None:
        try:
            with psycopg.connect(stack.addresses.database_url, autocommit=True) as connection:
                for i in range(4):
                    name = f"guest_{number}"
                    connection.execute(
                        "SELECT pgtrickle.create_stream_table(%s, 'SELECT id, v FROM dag_moves2')", (name,)
                    )
                    connection.execute("UPDATE dag_moves2 SET v = v + 1")
                    if i % 2:
                        connection.execute("SELECT pgtrickle.wait_for(%s)", (name,))
                        connection.execute("SELECT pgtrickle.alter_stream_table(%s, refresh_mode => 'FULL')", (name,))
                    else:
                        with connection.transaction(force_rollback=True):
                            connection.execute("SELECT pgtrickle.alter_stream_table(%s, schedule => '1h')", (name,))
                    connection.execute("SELECT pgtrickle.drop_stream_table(%s)", (name,))
        except BaseException as error:
            failures.append(error)

    guests = [threading.Thread(target=come_and_go, args=(number,)) for number in range(2)]
    for guest in guests:
        guest.start()
    for guest in guests:
        guest.join()
    assert not failures, failures
    assert_equal(db, "steadfast")
    assert value(db, "SELECT count(*) FROM pgtrickle.pgt_stream_tables WHERE pgt_name LIKE 'guest%%'") == 0
