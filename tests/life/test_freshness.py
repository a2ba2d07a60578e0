"""A program or a broker that hangs is seen within five seconds, and nothing that is stale looks fresh meanwhile."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime

import psycopg
import pytest

from deploy.local.stack import Stack
from tests.e2e.test_secrets import family

Connection = psycopg.Connection[tuple[object, ...]]

SEEN_WITHIN_S = 5.0
LONG = bool(os.environ.get("PG_TRICKLE_LONG_TESTS"))

BACK_WITHIN_S = 30.0
"""Only so that the test ends: Kafka clients wait longer and longer before they connect again."""


def one(db: Connection, query: str, *values: object) -> object:
    row = db.execute(query.encode(), values).fetchone()
    return row[0] if row else None


def seconds(db: Connection) -> float:
    found = one(db, "SELECT pgtrickle.get_staleness('fresh')")
    return float(str(found))


def check(db: Connection, name: str) -> tuple[str, str]:
    row = db.execute("SELECT severity, detail FROM pgtrickle.health_check() WHERE check_name = %s", (name,)).fetchone()
    assert row is not None
    return str(row[0]), str(row[1])


def page(stack: Stack, part: str, path: str) -> tuple[int, str]:
    url = f"http://127.0.0.1:{stack.binaries[part].metrics_port}{path}"
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except urllib.error.URLError as error:
        # It is only starting.
        return 0, str(error)


def metric(stack: Stack, part: str, name: str) -> float:
    found = re.search(rf"^{re.escape(name)} (\S+)$", page(stack, part, "/metrics")[1], re.MULTILINE)
    assert found is not None, name
    return float(found[1])


def until(is_true: Callable[[], bool], what: str, since: float, limit_s: float) -> None:
    while not is_true():
        assert time.monotonic() - since < limit_s, f"{what}: not within {limit_s} s"
        time.sleep(0.05)


@contextmanager
def stopped(*pids: int) -> Iterator[float]:
    """Stop processes with SIGSTOP, as if they or their machine hang; yield when."""
    try:
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        yield time.monotonic()
    finally:
        for pid in pids:
            # A process of the server may have been about to end.
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


class Alerts:
    """The events that listeners of the alert channel get."""

    def __init__(self, url: str) -> None:
        self._connection = psycopg.connect(url, autocommit=True)
        self._connection.execute("LISTEN pg_trickle_alert")
        self._events: list[str] = []

    def has(self, event: str) -> bool:
        self._events += [json.loads(n.payload)["event"] for n in self._connection.notifies(timeout=0.05)]
        return event in self._events

    def close(self) -> None:
        self._connection.close()


@pytest.fixture
def alerts(stack: Stack) -> Iterator[Alerts]:
    listener = Alerts(stack.addresses.database_url)
    yield listener
    listener.close()


@pytest.fixture
def fresh(db: Connection, stack: Stack) -> Iterator[Connection]:
    """Yield the connection; stream table `fresh` counts the rows of `fresh_rows` and everything is ready."""
    db.execute("CREATE TABLE fresh_rows (id int PRIMARY KEY)")
    db.execute("SELECT pgtrickle.create_stream_table('fresh', 'SELECT count(*) AS n FROM fresh_rows')")
    db.execute("SELECT pgtrickle.wait_for('fresh')")
    began = time.monotonic()
    until(lambda: is_good(db, stack), "ready before the test", began, BACK_WITHIN_S)
    yield db
    db.execute("SELECT pgtrickle.drop_stream_table('fresh')")
    db.execute("DROP TABLE fresh_rows")


def is_good(db: Connection, stack: Stack) -> bool:
    """Whether every speaker says that all is well."""
    return (
        all(page(stack, part, "/readyz")[0] == 200 for part in ("cdc", "applier"))
        and check(db, "consumer_running")[0] == check(db, "applier_running")[0] == "OK"
        and seconds(db) < 2
    )


def insert(db: Connection, number: int) -> tuple[datetime, datetime]:
    """Commit a row; return the server's clock before and after."""
    before = one(db, "SELECT clock_timestamp()")
    db.execute("INSERT INTO fresh_rows VALUES (%s)", (number,))
    after = one(db, "SELECT clock_timestamp()")
    assert isinstance(before, datetime) and isinstance(after, datetime)
    return before, after


def test_idle_sources_are_fresh_and_the_data_timestamp_is_the_commit_time(fresh: Connection, stack: Stack) -> None:
    """The age of the rows was the time since the applier's last tick, which says nothing about the sources."""
    before, after = insert(fresh, 1)
    fresh.execute("SELECT pgtrickle.wait_for('fresh')")
    assert one(fresh, "SELECT n FROM fresh") == 1
    stamp = "SELECT data_timestamp FROM pgtrickle.pgt_status() WHERE name = 'public.fresh'"
    committed = one(fresh, stamp)
    assert isinstance(committed, datetime) and before <= committed <= after
    watched = time.monotonic()
    while time.monotonic() - watched < 2.5:
        assert 0 <= seconds(fresh) < 2
        time.sleep(0.1)
    assert one(fresh, stamp) == committed, "nothing was committed since"
    assert 0 <= metric(stack, "applier", 'pg_trickle_staleness_seconds{stream_table="public.fresh"}') < 3
    name = 'pg_trickle_commit_to_visible_seconds_{}{{sink="{}",stream_table="public.fresh"}}'
    numbers = itertools.count(2)

    def is_measured(sink: str) -> bool:
        # Delta may write the fill and the first change in one commit, and a fill is not measured.
        insert(fresh, next(numbers))
        return f"{name.format('count', sink)} " in page(stack, "applier", "/metrics")[1]

    for sink in ("postgres", "topic", "delta"):
        until(lambda sink=sink: is_measured(sink), sink, watched, BACK_WITHIN_S)  # type: ignore[misc]
        assert 0 < metric(stack, "applier", name.format("sum", sink)) < 60


def test_a_hung_consumer(fresh: Connection, stack: Stack, alerts: Alerts) -> None:
    """Everything looked fresh while the consumer did not move, and /readyz never fell again after the first tick."""
    with stopped(stack.binaries["cdc"].pid) as began:
        insert(fresh, 1)
        until(lambda: check(fresh, "consumer_running")[0] == "ERROR", "health_check", began, SEEN_WITHIN_S)
        assert "pg-trickle-cdc has not been heard of" in check(fresh, "consumer_running")[1]
        blocked = "SELECT blocked_reason FROM pgtrickle.wal_source_status() WHERE source = 'public.fresh_rows'"
        assert "pg-trickle-cdc" in str(one(fresh, blocked))
        until(lambda: page(stack, "applier", "/readyz")[0] == 503, "/readyz", began, SEEN_WITHIN_S)
        assert "pg-trickle-cdc" in page(stack, "applier", "/readyz")[1]
        assert page(stack, "applier", "/healthz")[0] == 200
        until(lambda: alerts.has("stream_silent"), "NOTIFY", began, SEEN_WITHIN_S + 0.5)
        waited = time.monotonic() - began
        assert waited - 1 < seconds(fresh) < waited + 3, "it grows from the moment on"
        shown = metric(stack, "applier", 'pg_trickle_staleness_seconds{stream_table="public.fresh"}')
        assert shown > waited - 1 and metric(stack, "applier", "pg_trickle_consumer_beat_age_seconds") > 3
    until(lambda: is_good(fresh, stack), "all is well again", time.monotonic(), BACK_WITHIN_S)
    until(lambda: alerts.has("stream_back"), "NOTIFY", time.monotonic(), SEEN_WITHIN_S)
    assert one(fresh, "SELECT n FROM fresh") == 1


def test_a_hung_broker(fresh: Connection, stack: Stack, alerts: Alerts) -> None:
    """Both programs lived, so nothing said that no row moved."""
    with stopped(stack.kafka.pid) as began:
        insert(fresh, 1)
        until(lambda: check(fresh, "consumer_running")[0] == "ERROR", "health_check", began, SEEN_WITHIN_S)
        assert "broker" in check(fresh, "consumer_running")[1]
        for part in ("cdc", "applier"):
            until(lambda part=part: page(stack, part, "/readyz")[0] == 503, part, began, SEEN_WITHIN_S)  # type: ignore[misc]
            assert page(stack, part, "/healthz")[0] == 200
        until(lambda: alerts.has("stream_silent"), "NOTIFY", began, SEEN_WITHIN_S + 0.5)
        waited = time.monotonic() - began
        assert waited - 1 < seconds(fresh) < waited + 3
    until(lambda: is_good(fresh, stack), "all is well again", time.monotonic(), BACK_WITHIN_S)
    assert one(fresh, "SELECT n FROM fresh") == 1


def test_a_hung_applier(fresh: Connection, stack: Stack, alerts: Alerts) -> None:
    """It kept its lock, so the database said that it runs, and nobody else looked."""
    with stopped(stack.binaries["applier"].pid) as began:
        insert(fresh, 1)
        until(lambda: check(fresh, "applier_running")[0] == "ERROR", "health_check", began, SEEN_WITHIN_S)
        assert "pg-trickle-applier has not been heard of" in check(fresh, "applier_running")[1]
        until(lambda: page(stack, "cdc", "/readyz")[0] == 503, "/readyz", began, SEEN_WITHIN_S)
        assert "pg-trickle-applier" in page(stack, "cdc", "/readyz")[1]
        assert metric(stack, "cdc", "pg_trickle_cdc_applier_beat_age_seconds") > 3
        until(lambda: alerts.has("applier_silent"), "NOTIFY", began, SEEN_WITHIN_S + 0.5)
        waited = time.monotonic() - began
        assert waited - 1 < seconds(fresh) < waited + 3
    until(lambda: is_good(fresh, stack), "all is well again", time.monotonic(), BACK_WITHIN_S)
    until(lambda: alerts.has("applier_back"), "NOTIFY", time.monotonic(), SEEN_WITHIN_S)
    assert one(fresh, "SELECT n FROM fresh") == 1


def test_a_hung_database(fresh: Connection, stack: Stack) -> None:
    """Nobody can ask it anything, so only the pages speak."""
    processes = family(stack.postgres.pid)
    assert len(processes) > 5, "the server and its sessions"
    # The first one first: it would start others.
    with stopped(*sorted(processes)) as began:
        for part in ("cdc", "applier"):
            until(lambda part=part: page(stack, part, "/readyz")[0] == 503, part, began, SEEN_WITHIN_S)  # type: ignore[misc]
            assert page(stack, part, "/healthz")[0] == 200
    until(lambda: is_good(fresh, stack), "all is well again", time.monotonic(), BACK_WITHIN_S)
    insert(fresh, 1)
    fresh.execute("SELECT pgtrickle.wait_for('fresh')")
    assert one(fresh, "SELECT n FROM fresh") == 1


@pytest.mark.skipif(not LONG, reason="both programs start again: PG_TRICKLE_LONG_TESTS")
def test_both_programs_are_dead(fresh: Connection, stack: Stack) -> None:
    """SQL says so by itself: the age of a beat is measured when somebody asks."""
    began = time.monotonic()
    for part in ("cdc", "applier"):
        stack.kill(part)
    insert(fresh, 1)
    for name in ("consumer_running", "applier_running"):
        until(lambda name=name: check(fresh, name)[0] == "ERROR", name, began, SEEN_WITHIN_S)  # type: ignore[misc]
    waited = time.monotonic() - began
    assert waited - 1 < seconds(fresh) < waited + 3, "nothing that is stale looks fresh"
    for part in ("cdc", "applier"):
        stack.restart(part, wait=False)
    until(lambda: is_good(fresh, stack), "all is well again", time.monotonic(), 120)
    assert one(fresh, "SELECT n FROM fresh") == 1
