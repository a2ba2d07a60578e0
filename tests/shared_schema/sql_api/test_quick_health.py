"""One row of health, the thresholds of the slot's lag, and sources with the consumer's errors and their leaves."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import promql_parser
import psycopg
import pytest
import yaml

from applier.catalog.beats import BeatStore
from applier.catalog.database import Database
from applier.catalog.install import install_catalog
from applier.ingest.source_clock import SourceClock
from applier.metrics import STALENESS
from applier.runtime.beats import Beats
from applier.runtime.condition import ApplierCondition

Connection = psycopg.Connection[tuple[object, ...]]


@pytest.fixture
def db(database: str) -> Iterator[Connection]:
    with psycopg.connect(database, autocommit=True) as connection:
        install_catalog(connection)
        connection.execute("CREATE TABLE quick_source (id int PRIMARY KEY)")
        connection.execute("SELECT pgtrickle.create_stream_table('quick', 'SELECT id FROM quick_source')")
        yield connection


def health(db: Connection, columns: str) -> tuple[object, ...] | None:
    return db.execute(f"SELECT {columns} FROM pgtrickle.quick_health".encode()).fetchone()


def test_the_row_counts_states_and_staleness(db: Connection, database: str) -> None:
    counts = "total, active, initializing, suspended, stale, paused"
    assert health(db, counts) == (1, 0, 1, 0, 0, 0)
    assert health(db, "status, applier_alive, consumer_alive, slot_lag_bytes") == ("ERROR", False, False, None)
    db.execute("UPDATE pgtrickle.pgt_stream_tables SET status = 'ACTIVE'")
    db.execute(
        "INSERT INTO pgtrickle.pgt_frontiers (pgt_id, frontier, complete_until, refreshed_at)"
        " SELECT pgt_id, '0/1', clock_timestamp() - interval '90 s', now() FROM pgtrickle.pgt_stream_tables"
    )
    assert health(db, counts) == (1, 1, 0, 0, 1, 0)
    assert health(db, "stalest, worst_staleness > interval '89 s'") == ("public.quick", True)
    # The applier's alert and the view agree.
    own = Database(database)
    (read,) = BeatStore(own, "pg_trickle").watched()
    assert read.is_stale and read.status == "ACTIVE" and read.staleness_s is not None and read.staleness_s > 89
    assert BeatStore(own, "pg_trickle").slot_lag_bytes() is None
    own.close()
    db.execute("UPDATE pgtrickle.pgt_stream_tables SET status = 'PAUSED'")
    assert health(db, counts) == (1, 0, 0, 0, 0, 1)


def test_the_status_is_the_worst_line_of_the_health_check(db: Connection) -> None:
    def status() -> object:
        found = {str(row[0]) for row in db.execute("SELECT severity FROM pgtrickle.health_check()")}
        worst = next(severity for severity in ("ERROR", "WARNING", "OK") if severity in found)
        assert health(db, "status") == (worst,)
        return worst

    assert status() == "ERROR"
    db.execute("SELECT pg_advisory_lock(1885828208, 0)")  # as an applier that runs
    for beats in ("pgt_applier_beats", "pgt_consumer_beats"):
        db.execute(f"INSERT INTO pgtrickle.{beats} (slot, beat_at) VALUES ('pg_trickle', clock_timestamp())".encode())
    alive = "applier_alive, consumer_alive, suspended, stale, slot_lag_bytes"
    assert (status(), health(db, alive)) == ("ERROR", (True, True, 0, 0, None)), "nobody reads the slot"
    db.execute(
        "INSERT INTO pgtrickle.pgt_settings_in_use VALUES"
        " ('pg-trickle-applier', 'sources_elsewhere', 'true', 'environment')"
    )
    db.execute("UPDATE pgtrickle.pgt_applier_beats SET heard_at = clock_timestamp(), clock_offset = '0 s'")
    assert status() == "OK"
    db.execute("UPDATE pgtrickle.pgt_stream_tables SET status = 'SUSPENDED'")
    assert status() == "ERROR"
    db.execute("UPDATE pgtrickle.pgt_stream_tables SET status = 'ACTIVE', fuse_skipped_at = now()")
    assert status() == "WARNING"


def test_what_is_held_or_frozen_is_not_stale_and_a_blown_fuse_is_seen(db: Connection, database: str) -> None:
    own = Database(database)
    store = BeatStore(own, "pg_trickle")
    db.execute("UPDATE pgtrickle.pgt_stream_tables SET status = 'ACTIVE'")
    db.execute(
        "INSERT INTO pgtrickle.pgt_frontiers (pgt_id, frontier, complete_until, refreshed_at)"
        " SELECT pgt_id, '0/1', clock_timestamp() - interval '90 s', now() FROM pgtrickle.pgt_stream_tables"
    )

    def seen() -> tuple[object, ...]:
        (read,) = store.watched()
        lines = "SELECT severity FROM pgtrickle.health_check() WHERE check_name = 'stale_tables'"
        return (*(health(db, "stale") or ()), *(db.execute(lines).fetchone() or ()), read.is_stale, read.is_frozen)

    stale, calm = (1, "WARNING", True, False), (0, "OK", False, False)
    assert seen() == stale
    db.execute("SELECT pgtrickle.gate_source('quick_source')")
    assert seen() == calm
    db.execute("SELECT pgtrickle.ungate_source('quick_source')")
    assert seen() == stale
    db.execute("SELECT pgtrickle.alter_stream_table('quick', tier => 'frozen')")
    assert seen() == (0, "OK", False, True)
    assert [read.fuse_blown_s for read in store.watched()] == [None]
    db.execute(
        "UPDATE pgtrickle.pgt_stream_tables SET status = 'SUSPENDED', last_error_code = 'FuseBlown',"
        " fuse_blown_at = clock_timestamp() - interval '400 s'"
    )
    assert [400 <= (read.fuse_blown_s or 0) < 460 for read in store.watched()] == [True]
    own.close()


RULES = Path(__file__).resolve().parents[3] / "deploy" / "prometheus" / "alerts.yml"


def rule_of_staleness() -> set[str]:
    """Return the stream tables for which the rule PgTrickleStale is true, by the metrics of this process."""
    groups = yaml.safe_load(RULES.read_text())["groups"]
    (rule,) = [rule["expr"] for group in groups for rule in group["rules"] if rule["alert"] == "PgTrickleStale"]
    comparison = promql_parser.parse(rule)
    assert isinstance(comparison, promql_parser.BinaryExpr) and str(comparison.op) == ">"

    def values(side: promql_parser.Expr) -> dict[str, float] | float:
        if isinstance(side, promql_parser.NumberLiteral):
            return side.val
        selector = side.expr if isinstance(side, promql_parser.AggregateExpr) else side
        assert isinstance(selector, promql_parser.VectorSelector)
        series = [s for family in STALENESS.collect() for s in family.samples if s.name == selector.name]
        return {sample.labels["stream_table"]: sample.value for sample in series}

    left, right = values(comparison.lhs), values(comparison.rhs)
    assert isinstance(left, dict)
    limits = right if isinstance(right, dict) else dict.fromkeys(left, right)
    return {table for table, value in left.items() if table in limits and value > limits[table]}


def test_the_rule_of_staleness_fires_for_what_is_later_than_it_may_be(db: Connection, database: str) -> None:
    own = Database(database)

    def fires() -> bool:
        """Let an applier look once, as it does every second."""
        beats = Beats(BeatStore(own, "pg_trickle"), lambda: NotImplemented, ApplierCondition(), SourceClock())
        STALENESS.set({}, {}, 0.0)
        stopping = threading.Event()
        thread = threading.Thread(target=beats.run, args=(stopping,))
        thread.start()
        while not any(family.samples for family in STALENESS.collect()):
            time.sleep(0.01)
        stopping.set()
        thread.join()
        return rule_of_staleness() == {"public.quick"}

    def is_due(after: str) -> None:
        db.execute("UPDATE pgtrickle.pgt_runtime SET next_refresh_at = clock_timestamp() + %s::interval", (after,))

    db.execute("UPDATE pgtrickle.pgt_stream_tables SET status = 'ACTIVE'")
    db.execute(
        "INSERT INTO pgtrickle.pgt_frontiers (pgt_id, frontier, complete_until, refreshed_at)"
        " SELECT pgt_id, '0/1', clock_timestamp() - interval '400 s', now() FROM pgtrickle.pgt_stream_tables"
    )
    assert fires(), "every tick refreshes it"
    db.execute(
        "INSERT INTO pgtrickle.pgt_runtime (pgt_id, effective_refresh_mode, effective_reason)"
        " SELECT pgt_id, 'DIFFERENTIAL', 'MODE' FROM pgtrickle.pgt_stream_tables"
    )
    is_due("50 min")
    assert not fires(), "it is refreshed every hour"
    is_due("-31 s")
    assert fires()
    db.execute("UPDATE pgtrickle.pgt_stream_tables SET freshness_deadline_ms = 500000")
    assert not fires(), "its SLA allows more"
    db.execute("UPDATE pgtrickle.pgt_stream_tables SET freshness_deadline_ms = 399000")
    assert fires()
    is_due("50 min")
    assert fires(), "its schedule is not what was promised"
    db.execute("UPDATE pgtrickle.pgt_stream_tables SET freshness_deadline_ms = NULL")
    is_due("-31 s")
    db.execute("SELECT pgtrickle.gate_source('quick_source')")
    assert not fires(), "it is held"
    db.execute("SELECT pgtrickle.ungate_source('quick_source')")
    db.execute("SELECT pgtrickle.pause_stream_table('quick')")
    assert not fires(), "it is paused"
    db.execute("UPDATE pgtrickle.pgt_stream_tables SET status = 'SUSPENDED'")
    assert fires(), "nobody wanted that"
    db.execute("UPDATE pgtrickle.pgt_stream_tables SET status = 'ACTIVE'")
    db.execute("SELECT pgtrickle.alter_stream_table('quick', tier => 'frozen')")
    assert not fires(), "no schedule refreshes it"
    own.close()


def test_the_thresholds_of_the_lag_are_settings(db: Connection) -> None:
    severity = "SELECT pgtrickle._slot_lag_severity(%s * 1048576::numeric)"
    found = [db.execute(severity, (size,)).fetchone() for size in (100, 101, 1025)]
    assert found == [("OK",), ("WARNING",), ("ERROR",)]
    db.execute("SELECT pgtrickle.set_setting('slot_lag_warning_threshold_mb', '5')")
    assert db.execute(severity, (6,)).fetchone() == ("WARNING",)
    with pytest.raises(psycopg.Error):
        db.execute("SELECT pgtrickle.set_setting('slot_lag_warning_threshold_mb', '0')")


def test_a_source_shows_the_consumers_errors_and_its_leaves(db: Connection) -> None:
    db.execute("CREATE TABLE quick_root (id int, PRIMARY KEY (id)) PARTITION BY RANGE (id)")
    for number in range(2):
        bounds = f"FOR VALUES FROM ({number * 10}) TO ({number * 10 + 10})"
        db.execute(f"CREATE TABLE quick_leaf_{number} PARTITION OF quick_root {bounds}".encode())
    db.execute("SELECT pgtrickle.create_stream_table('quick_parts', 'SELECT id FROM quick_root')")
    db.execute(
        "INSERT INTO pgtrickle.pgt_consumer_beats (slot, beat_at, last_error, last_error_at, attempts, attempted_at)"
        " VALUES ('pg_trickle', clock_timestamp(), 'gone', now(), 2, ARRAY[now(), now() - interval '1 s'])"
    )
    status = (
        "SELECT source, cdc_mode, replica_identity, last_error, last_error_at = attempted_at[1], attempts, leaves,"
        " leaves_incomplete, leaves_unpublished FROM pgtrickle.wal_source_status() ORDER BY 1"
    )
    assert db.execute(status).fetchall() == [
        ("public.quick_root", "log", "full", "gone", True, 2, 2, 0, 0),
        ("public.quick_source", "log", "full", "gone", True, 2, None, None, None),
    ]
    # Without the event triggers, which would mend it at once.
    db.execute("SET session_replication_role = replica")
    db.execute("ALTER TABLE quick_leaf_1 REPLICA IDENTITY NOTHING")
    changed = "SELECT replica_identity, leaves_incomplete FROM pgtrickle.wal_source_status() WHERE leaves > 0"
    assert db.execute(changed).fetchall() == [("mixed", 1)]
