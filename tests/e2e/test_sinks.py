"""The three sinks when the applier is killed, after each durable effect and at random; a second applier that reads
the topic."""

from __future__ import annotations

import os
import random
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import errors, sql

from deploy.local.binary import APPLIER, Binary
from deploy.local.process import free_port
from deploy.local.stack import Stack
from shared_schema.lsn import Lsn
from tests import oracle
from tests.fixtures import choice
from tests.fixtures.alerts import next_alert

Connection = psycopg.Connection[tuple[object, ...]]

LONG = bool(os.environ.get("PG_TRICKLE_LONG_TESTS"))

BATCHES = "between two batches"
"""The effect of a progressive write, seen in the catalog. The others are seen in the applier's log, right after they
happened."""

AT_RANDOM = "at random"

KILLS = [BATCHES]
if LONG:
    KILLS += ["stream table refreshed", "published", "delta written", "traces checkpointed"]
    KILLS += [AT_RANDOM] * int(os.environ.get("PG_TRICKLE_KILLS", "50"))

STREAM_TABLES = {
    "fire_rows": "SELECT id, grp, note FROM fire WHERE v > 10",
    "fire_bag": "SELECT grp, note FROM fire",
    "fire_sums": "SELECT grp, count(*) AS n, sum(v) AS total FROM fire GROUP BY grp",
}


@contextmanager
def load(url: str) -> Iterator[None]:
    """Commit small and a few large transactions until the block ends."""
    rng = random.Random(7)
    stop = threading.Event()

    def write() -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            while not stop.wait(0.1):
                low = rng.randint(1, 300)
                wide = rng.choice([1, 3, 40])
                with connection.transaction():
                    connection.execute(
                        "INSERT INTO fire SELECT i, i %% 7, i %% 30, %s FROM generate_series(%s::int, %s::int) i"
                        " ON CONFLICT (id) DO UPDATE SET v = fire.v + 1, note = excluded.note",
                        (rng.choice(["a", "b", None]), low, low + wide),
                    )
                    connection.execute("DELETE FROM fire WHERE id = %s", (rng.randint(1, 300),))

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield
    finally:
        stop.set()
        writer.join()


def wait_for_effect(db: Connection, log: Path, effect: str, limit_s: float) -> None:
    """Return as soon as the effect happened, or when the time is up: then the moment is random."""
    seen = log.stat().st_size
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        if effect == BATCHES:
            partial = db.execute("SELECT FROM pgtrickle.pgt_stream_tables WHERE partial_until IS NOT NULL")
            if partial.rowcount:
                return
        elif effect in log.read_bytes()[seen:].decode(errors="replace"):
            return
        time.sleep(0.002)
    assert effect == AT_RANDOM, f"{effect!r} was not seen"


def assert_all_sinks_equal(db: Connection, stack: Stack) -> None:
    """Compare each sink with the query, when nothing is written; the topic must have no gap and no repetition."""
    for name in STREAM_TABLES:
        db.execute("SELECT pgtrickle.wait_for(%s, timeout => '4 min')", (name,))
        expected = oracle.query_result(db, name)
        oracle.assert_same(expected, oracle.in_postgres(db, name), f"{name} in PostgreSQL")
        replay = oracle.TopicReplay(
            stack.addresses.kafka_bootstrap, f"trickle_out.public.{name}", "trickle_out.schemas"
        )
        oracle.eventually(lambda r=replay, e=expected: oracle.assert_same(e, r.catch_up(), "topic"))  # type: ignore[misc]
        assert replay.stamps == sorted(set(replay.stamps)), f"{name}: a stamp is repeated or out of order"
        oracle.eventually(
            lambda n=name, e=expected: oracle.assert_same(  # type: ignore[misc]
                e, oracle.in_delta(stack.addresses.delta_root, n), f"{n} in Delta"
            ),
            within_s=90,
        )


@pytest.mark.timeout(7200 if LONG else 600)
def test_a_kill_after_any_effect_loses_and_repeats_nothing(db: Connection, stack: Stack) -> None:
    db.execute("CREATE TABLE fire (id int PRIMARY KEY, grp int, v numeric(10,2), note text)")
    db.execute("INSERT INTO fire SELECT i, i % 7, i, 'x' FROM generate_series(1, 200) i")
    applier = stack.binaries["applier"]
    settings, to_start = dict(applier.settings), 0.0
    if LONG:
        applier.settings |= {"PG_TRICKLE_LOG_LEVEL": "debug", "PG_TRICKLE_STAGING_ROWS": "150"}
        applier.settings |= {"PG_TRICKLE_CHECKPOINT_ROWS": "100"}
        began = time.monotonic()
        stack.restart("applier")
        to_start = time.monotonic() - began
    for name, query in STREAM_TABLES.items():
        # Not AUTO: with this many changes it would write the full result, which has no batches to kill between.
        db.execute("SELECT pgtrickle.create_stream_table(%s, %s, refresh_mode => 'DIFFERENTIAL')", (name, query))
    for name in STREAM_TABLES:
        db.execute("SELECT pgtrickle.wait_for(%s, timeout => '3 min')", (name,))
    db.execute("SELECT pgtrickle.set_visibility('fire_bag', 'progressive')")
    db.execute("SELECT pgtrickle.set_setting('pipeline_batch_size', '2')")
    log, rng = Path(stack.addresses.applier_log), random.Random(11)
    for number, effect in enumerate(KILLS, start=1):
        with load(stack.addresses.database_url):
            # At random: while it starts, catches up or has been running for a while.
            wait_for_effect(db, log, effect, rng.uniform(0.1, to_start + 6) if effect == AT_RANDOM else 600)
            stack.kill("applier")
        if number == len(KILLS):
            applier.settings = settings
        stack.restart("applier", wait=False)
        if number % 18 == 0 or number == len(KILLS):
            began = time.monotonic()
            applier.wait_ready()
            to_start = time.monotonic() - began
            assert_all_sinks_equal(db, stack)
            print(f"{number} kills, the last {effect}: all sinks are equal", flush=True)
    db.execute("SELECT pgtrickle.reset_setting('pipeline_batch_size')")


@pytest.mark.skipif(not LONG, reason="long: PG_TRICKLE_LONG_TESTS")
@pytest.mark.timeout(900)
def test_a_long_progressive_fill_is_seen_while_it_is_computed(db: Connection) -> None:
    rows = 400_000
    db.execute("CREATE TABLE lengthy (id int PRIMARY KEY, t text)")
    db.execute(f"INSERT INTO lengthy SELECT i, repeat('x', 40) FROM generate_series(1, {rows}) i".encode())
    # The source is captured already when the fill begins, so that only the fill is timed.
    db.execute("SELECT pgtrickle.create_stream_table('first_reader', 'SELECT count(*) FROM lengthy')")
    db.execute("SELECT pgtrickle.wait_for('first_reader', timeout => '5 min')")
    with db.transaction():
        db.execute("SELECT pgtrickle.create_stream_table('seen_early', 'SELECT id, t FROM lengthy')")
        db.execute("SELECT pgtrickle.set_visibility('seen_early', 'progressive')")
    began, first, filled = time.monotonic(), 0.0, False
    while not filled:
        found = db.execute("SELECT EXISTS (SELECT FROM seen_early), status = 'ACTIVE' FROM pgtrickle.pgt_stream_tables"
                           " WHERE pgt_name = 'seen_early'").fetchall()[0]  # fmt: skip
        first = first or (time.monotonic() - began if found[0] else 0.0)
        filled = found[1] is True
        time.sleep(0.01)
    took = time.monotonic() - began
    print(f"{rows} rows in {took:.1f} s, the first seen after {first / took:.0%}")
    assert first < took / 3
    oracle.assert_same(oracle.query_result(db, "seen_early"), oracle.in_postgres(db, "seen_early"), "seen_early")


def test_a_refused_row_suspends_one_stream_table_and_sends_an_alert(db: Connection, stack: Stack) -> None:
    db.execute("CREATE TABLE strict_base (id int PRIMARY KEY, v int); INSERT INTO strict_base VALUES (1, 1)")
    for name in ("strict_one", "strict_two"):
        db.execute("SELECT pgtrickle.create_stream_table(%s, 'SELECT id, v FROM strict_base')", (name,))
    db.execute("SELECT pgtrickle.wait_for('strict_two')")
    db.execute("ALTER TABLE strict_one ADD CONSTRAINT few CHECK (v < 10)")
    with psycopg.connect(stack.addresses.database_url, autocommit=True) as listener:
        listener.execute("LISTEN pg_trickle_alert")
        db.execute("INSERT INTO strict_base VALUES (2, 11)")
        failed = next_alert(listener, "refresh_failed", "strict_one")
        assert failed["errors"] == 1 and failed["stream_table"] == "public.strict_one"
        alert = next_alert(listener, "auto_suspended", "strict_one")
    assert "the row with id = 2 of public.strict_one: check violation, constraint few" in alert["error"]
    db.execute("SELECT pgtrickle.wait_for('strict_two')")
    assert db.execute("SELECT count(*) FROM strict_two").fetchone() == (2,)
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match="id = 2"):
        db.execute("SELECT pgtrickle.wait_for('strict_one')")
    with psycopg.connect(stack.addresses.database_url, autocommit=True) as listener:
        listener.execute("LISTEN pg_trickle_alert")
        db.execute("ALTER TABLE strict_one DROP CONSTRAINT few; SELECT pgtrickle.resume_stream_table('strict_one')")
        assert next_alert(listener, "resumed", "strict_one")["was"] == "SUSPENDED"
    db.execute("SELECT pgtrickle.wait_for('strict_one')")
    assert db.execute("SELECT count(*) FROM strict_one").fetchone() == (2,)


@contextmanager
def small_disk(stack: Stack) -> Iterator[Path]:
    """Yield a folder of the server on a file system of one megabyte; remove it afterwards in any case."""
    owner = stack.postgres.user
    if owner is None:
        pytest.skip("file systems are mounted by root")
    with choice.server_folder("small") as folder:
        options = f"size=1m,uid={owner.uid},gid={owner.gid},mode=0700"
        if subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], check=False).returncode:
            pytest.skip("file systems cannot be mounted here")
        try:
            yield folder
        finally:
            subprocess.run(["umount", "-l", folder], check=True)


def test_a_full_disk_is_waited_for_and_stops_no_other_table(db: Connection, stack: Stack) -> None:
    """The tablespace has one megabyte; space is freed while the applier retries."""
    with small_disk(stack) as folder:
        try:
            db.execute("SET ROLE postgres")
            db.execute(f"CREATE TABLESPACE small LOCATION '{folder}'".encode())
            db.execute("GRANT CREATE ON TABLESPACE small TO trickle_owner; RESET ROLE")
            db.execute("CREATE TABLE bulky (id int PRIMARY KEY, t text); INSERT INTO bulky VALUES (1, 'x')")
            for name in ("cramped", "roomy"):
                db.execute("SELECT pgtrickle.create_stream_table(%s, 'SELECT id, t FROM bulky')", (name,))
                db.execute("SELECT pgtrickle.wait_for(%s)", (name,))
            db.execute("ALTER TABLE cramped SET TABLESPACE small; LISTEN pg_trickle_alert")
            db.execute("INSERT INTO bulky SELECT i, repeat(i::text, 300) FROM generate_series(2, 2000) i")
            assert next_alert(db, "disk_full", "cramped")["errors"] >= 1
            db.execute("UNLISTEN *")
            db.execute("SELECT pgtrickle.wait_for('roomy')")
            failures = "SELECT count(*) FROM pgtrickle.get_refresh_history('cramped') WHERE error_message LIKE '%full%'"
            # As many errors as would otherwise suspend a stream table.
            oracle.eventually(lambda: _at_least(db, failures, 3))
            assert db.execute("SELECT status FROM pgtrickle.pgt_status() WHERE name LIKE '%cramped'").fetchone() == (
                "ACTIVE",
            )
            subprocess.run(["mount", "-o", "remount,size=64m", folder], check=True)
            db.execute("SELECT pgtrickle.wait_for('cramped')")
            oracle.assert_same(oracle.query_result(db, "cramped"), oracle.in_postgres(db, "cramped"), "cramped")
        finally:
            db.execute("SELECT pgtrickle.drop_stream_table('cramped') WHERE to_regclass('cramped') IS NOT NULL")
            db.execute("SET ROLE postgres")
            db.execute("DROP TABLESPACE IF EXISTS small")
            db.execute("RESET ROLE")


def _at_least(db: Connection, query: str, count: int) -> None:
    found = db.execute(query.encode()).fetchall()[0][0]
    assert isinstance(found, int) and found >= count, found


@dataclass
class Resumed(oracle.TopicReplay):
    """A consumer that begins with the rows of a snapshot and skips what the snapshot holds."""

    since: int = 0

    def _apply(self, record: dict[str, Any], schema: dict[str, Any]) -> None:
        if record["lsn"] >= self.since:
            super()._apply(record, schema)


def resumed(db: Connection, stack: Stack, name: str) -> Resumed:
    """Begin as documented for consumers behind the topic's retention: rows and frontier from one statement."""
    found = db.execute(
        f"SELECT f.frontier::text, t.* FROM {name} t, pgtrickle.pgt_frontiers f"
        " JOIN pgtrickle.pgt_stream_tables s USING (pgt_id) WHERE s.pgt_name = %s AND s.partial_until IS NULL".encode(),
        (name,),
    ).fetchall()
    topic = f"trickle_out.public.{name}"
    rows = oracle.Bag([row[1:] for row in found])
    since = Lsn.parse(str(found[0][0])).value
    return Resumed(stack.addresses.kafka_bootstrap, topic, "trickle_out.schemas", rows, since=since)


def applier_of(stack: Stack, url: str, folder: Path, **more: str) -> Binary:
    """Return a second applier next to the stack's own, not started, without Delta."""
    second = Binary(APPLIER, folder / "applier.log", metrics_port=free_port())
    second.settings = {
        "PG_TRICKLE_DATABASE_URL": url,
        "PG_TRICKLE_KAFKA_BOOTSTRAP": stack.addresses.kafka_bootstrap,
        "PG_TRICKLE_PUBLICATION_PREFIX": "trickle_down",
        "PG_TRICKLE_DELTA_SINK": "false",
        "PG_TRICKLE_STATE_DIR": str(folder / "state"),
        "PG_TRICKLE_SCRATCH_DIR": str(folder),
        **more,
    }
    return second


def test_a_second_applier_behind_the_topic_builds_the_same_table(db: Connection, stack: Stack, tmp_path: Path) -> None:
    db.execute("CREATE TABLE upstream (id int PRIMARY KEY, grp int, v numeric(8,2), note text)")
    db.execute("INSERT INTO upstream SELECT i, i % 3, i, 'n' || i FROM generate_series(1, 20) i")
    query = "SELECT grp, note, v FROM upstream WHERE v > 4"
    db.execute("SELECT pgtrickle.create_stream_table('handed_on', %s)", (query,))
    db.execute("SELECT pgtrickle.wait_for('handed_on')")
    late = resumed(db, stack, "handed_on")
    with psycopg.connect(stack.postgres.url, autocommit=True) as admin:
        admin.execute("DROP DATABASE IF EXISTS downstream WITH (FORCE)")
        admin.execute("CREATE DATABASE downstream")
    url = stack.postgres.url_of("downstream")
    second = applier_of(stack, url, tmp_path, PG_TRICKLE_TOPIC_PREFIX="trickle_out", PG_TRICKLE_SLOT="downstream")
    second.run_once("install")
    with psycopg.connect(url, autocommit=True) as below:
        # The same columns under the same name: the topic's rows are read with them.
        below.execute("CREATE TABLE handed_on (grp int, note text, v numeric(8,2))")
        below.execute("SELECT pgtrickle.create_stream_table('copied', 'SELECT grp, note, v FROM handed_on')")
        below.execute(
            "SELECT pgtrickle.create_stream_table('counted', 'SELECT grp, count(*) FROM handed_on GROUP BY 1')"
        )
        second.start()
        try:
            db.execute("UPDATE upstream SET v = v - 3 WHERE id % 2 = 0; DELETE FROM upstream WHERE id > 17")
            db.execute("INSERT INTO upstream VALUES (50, 1, 99.5, NULL), (51, 1, 99.5, NULL)")

            def check() -> None:
                expected = oracle.query_result(db, "handed_on")
                got = below.execute("TABLE copied").fetchall()
                oracle.assert_same(expected, oracle.Bag(got), f"downstream, {second.last_words()[-500:]}")
                counted = db.execute("SELECT grp, count(*) FROM handed_on GROUP BY 1").fetchall()
                assert sorted(below.execute("TABLE counted").fetchall()) == sorted(counted)

            oracle.eventually(check, within_s=150)
            oracle.assert_same(oracle.query_result(db, "handed_on"), late.catch_up(), "resumed from a snapshot")
        finally:
            second.kill()
    with psycopg.connect(stack.postgres.url, autocommit=True) as admin:
        admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier("downstream")))


def test_stream_tables_may_be_in_another_database_than_their_sources(
    db: Connection, stack: Stack, database: str, tmp_path: Path
) -> None:
    """The other database is on another server, whose LSNs mean nothing here."""
    tables = (
        "CREATE TABLE ships (id int PRIMARY KEY, name text, tons numeric(9,2)); CREATE TABLE ports (ship int, at text)"
    )
    db.execute(tables.encode())
    db.execute("ALTER TABLE ships REPLICA IDENTITY FULL; ALTER TABLE ports REPLICA IDENTITY FULL")
    db.execute("ALTER PUBLICATION pg_trickle ADD TABLE ships, ports")
    db.execute("INSERT INTO ships SELECT i, 's' || i, i * 1.5 FROM generate_series(1, 30) i")
    db.execute("INSERT INTO ports SELECT i % 30 + 1, 'p' || i % 4 FROM generate_series(1, 90) i")
    far = applier_of(stack, database, tmp_path, PG_TRICKLE_PUBLICATION_PREFIX="trickle_far")
    far.run_once("install")
    queries = {
        "by_port": "SELECT p.at, count(*), sum(s.tons) FROM ships s JOIN ports p ON p.ship = s.id GROUP BY 1",
        "heavy": "SELECT id, name FROM ships WHERE tons > 20",
        "names": "SELECT name FROM ships",
    }
    with psycopg.connect(database, autocommit=True) as there:
        there.execute(tables.encode())
        there.execute("SELECT pgtrickle.set_setting('sources_elsewhere', 'true')")
        for name, query in queries.items():
            there.execute("SELECT pgtrickle.create_stream_table(%s, %s)", (name, query))
        unfollowed = "SELECT id, xmin IS NOT NULL AS stored FROM ships"
        there.execute("SELECT pgtrickle.create_stream_table('unfollowed', %s)", (unfollowed,))
        # The tables here are not queried and stay empty.
        assert there.execute("SELECT count(*) FROM pg_publication").fetchone() == (0,)

        def reach() -> None:
            """Wait until all of them have reached the current LSN of the source."""
            at = db.execute("SELECT pg_current_wal_insert_lsn()::text").fetchall()[0][0]
            for name, query in queries.items():
                there.execute("SELECT pgtrickle.wait_for(%s, lsn => %s::pg_lsn, timeout => '2 min')", (name, at))
                expected = oracle.Bag(db.execute(query.encode()).fetchall())
                oracle.assert_same(expected, oracle.in_postgres(there, name), name)

        far.start()
        try:
            reach()
            db.execute("UPDATE ships SET tons = tons + 7 WHERE id % 3 = 0; DELETE FROM ports WHERE at = 'p2'")
            db.execute("INSERT INTO ships VALUES (99, 's1', NULL); UPDATE ships SET id = id + 200 WHERE id = 5")
            reach()
            with pytest.raises(errors.FeatureNotSupported, match="another database"):
                there.execute("SELECT pgtrickle.wait_for('heavy')")
            with pytest.raises(errors.FeatureNotSupported, match="another database"):
                there.execute("SELECT * FROM pgtrickle.validate_query('SELECT 1')")
            queries["heavy"] = "SELECT id, name FROM ships WHERE tons > 30"
            queries["names"] = "SELECT name, tons FROM ships"
            for name in ("heavy", "names"):
                there.execute("SELECT pgtrickle.alter_stream_table(%s, query => %s)", (name, queries[name]))
            reach()
            # PostgreSQL would read the empty tables.
            status = "SELECT status, last_error_code FROM pgtrickle.pgt_stream_tables WHERE pgt_name = 'unfollowed'"
            assert there.execute(status).fetchone() == ("SUSPENDED", "SourcesElsewhere")
            assert there.execute("SELECT count(*) FROM ships").fetchone() == (0,)
            sick = there.execute("SELECT check_name FROM pgtrickle.health_check() WHERE severity = 'ERROR'").fetchall()
            assert sick == [("error_tables",)]
            # By the source's clock, which the beats bring.
            fresh = there.execute("SELECT pgtrickle.get_staleness('heavy'), data_timestamp FROM pgtrickle.pgt_status()")
            assert all(0 <= float(str(seconds)) < 10 and at is not None for seconds, at in fresh.fetchall()[:1])
            if LONG:
                far.kill()
                db.execute("DELETE FROM ships WHERE id < 10")
                far.start()
                reach()
        except BaseException:
            print(far.last_words())
            raise
        finally:
            far.kill()
