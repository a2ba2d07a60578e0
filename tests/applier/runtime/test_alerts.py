"""Alerts as a running applier sends them: from what really happens, through NOTIFY, and over a restart."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import psycopg

from applier import metrics
from applier.catalog.beats import BeatStore
from applier.catalog.database import Database
from applier.catalog.service import open_alert_sender
from applier.ingest.source_clock import SourceClock
from applier.runtime.beats import Beats
from applier.runtime.condition import ApplierCondition
from applier.runtime.stream_table_watch import AlertThresholds
from applier.trace.store import TraceStore
from shared_schema.alert_sender import AlertSender
from shared_schema.alerts import START_GRACE_S
from shared_schema.slot_lag import SlotLagThresholds
from tests.applier.runtime.conftest import FEW, Ticks, change, create
from tests.fixtures.alerts import alerts, next_alert

Connection = psycopg.Connection[tuple[object, ...]]

SLOT = "alerting"


@contextmanager
def beating(
    ticks: Ticks,
    alerts: AlertSender,
    since_start_s: float = 0.0,
    consumer_problem: str | None = None,
    reader_waits_s: float = 0.0,
) -> Iterator[None]:
    """Let an applier beat that was started some time ago; what it alerted before is in the cooldown of its sender."""
    database = Database(ticks.lab.url)
    condition = ApplierCondition()
    condition.hear_beat(time.monotonic() + 600, consumer_problem)
    began = time.monotonic()
    beats = Beats(
        BeatStore(database, SLOT, alerts=alerts),
        lambda: NotImplemented,
        condition,
        SourceClock(),
        thresholds=lambda: AlertThresholds(1, SlotLagThresholds(0, 0)),
        buffered_rows=lambda: sum(trace.overlay_volume for trace in ticks.lab.traces),
        reader_waits_s=lambda: reader_waits_s,
        monotonic=lambda: time.monotonic() + (since_start_s if time.monotonic() - began > 0.5 else 0.0),
    )
    stopping = threading.Event()
    thread = threading.Thread(target=beats.run, args=(stopping,))
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join()
        database.close()


@contextmanager
def listening(ticks: Ticks) -> Iterator[Connection]:
    with psycopg.connect(ticks.lab.url, autocommit=True) as listener:
        listener.execute("LISTEN pg_trickle_alert")
        yield listener


def heard(listener: Connection, timeout_s: float, expected: int = 100) -> list[tuple[str, str]]:
    """Return event and stream table of the alerts that arrive, in order of their names; not more than expected."""
    found = []
    for alert in alerts(listener, timeout_s):
        found.append((str(alert["event"]), str(alert.get("stream_table", "")).removeprefix("public.")))
        if len(found) == expected:
            break
    return sorted(found)


def test_what_the_applier_sees_every_second(make_ticks: Callable[..., Ticks]) -> None:
    ticks, sender = make_ticks(), open_alert_sender(lambda: 300.0)
    db = ticks.lab.connection
    names = ("frozen", "asked", "late", "blown", "gone")
    create(ticks, **dict.fromkeys(names, FEW))
    ticks.run()
    db.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (SLOT,))
    db.execute("SELECT pg_logical_emit_message(false, 'x', 'y')")
    counted = metrics.ALERTS.labels("stale_data")._value.get()
    with listening(ticks) as listener:
        with beating(ticks, sender):
            assert heard(listener, 1.5) == [], "nothing happened yet"
        # While no applier runs.
        db.execute("SELECT pgtrickle.alter_stream_table('frozen', tier => 'frozen')")
        db.execute("SELECT pgtrickle.reinitialize_stream_table('asked')")
        db.execute("SELECT pgtrickle.pause_stream_table('gone')")
        db.execute(
            "UPDATE pgtrickle.pgt_frontiers SET complete_until = clock_timestamp() - interval '90 s'"
            " FROM pgtrickle.pgt_stream_tables s WHERE s.pgt_id = pgt_frontiers.pgt_id AND s.pgt_name = 'late'"
        )
        db.execute(
            "UPDATE pgtrickle.pgt_stream_tables SET status = 'SUSPENDED', last_error_code = 'FuseBlown',"
            " fuse_blown_at = clock_timestamp() - interval '400 s' WHERE pgt_name = 'blown'"
        )
        change(ticks)
        with beating(ticks, sender, consumer_problem="it is away", reader_waits_s=31):
            # The silence, and what is late, may be the start itself.
            assert heard(listener, 2.5) == [
                ("buffer_growth_warning", ""),
                ("change_buffer_backpressure", ""),
                ("frozen_tier_skip", "frozen"),
                ("reinitialize_needed", "asked"),
                ("slot_lag_warning", ""),
            ]
        # The next start repeats no change, and a lost session costs nothing.
        lasting = [("fuse_blown_reminder", "blown"), ("stale_data", "late"), ("stream_silent", "")]
        with beating(ticks, sender, START_GRACE_S, "it is away"):
            assert heard(listener, 20, 3) == lasting
            db.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE application_name = 'pg-trickle-applier' AND query ~ 'pgt_applier_beats|pgt_stream_tables'"
            )
            db.execute("SELECT pgtrickle.resume_stream_table('gone')")
            assert next_alert(listener, "resumed", "public.gone", 20)["was"] == "PAUSED"
            assert heard(listener, 1.5) == []
        with beating(ticks, sender):
            assert heard(listener, 20, 1) == [("stream_back", "")], "it was back while no applier ran"
    assert metrics.ALERTS.labels("stale_data")._value.get() == counted + 1


def test_a_checkpoint_that_fails_is_reported(make_ticks: Callable[..., Ticks], tmp_path: Path) -> None:
    ticks = make_ticks()
    create(ticks, few=FEW)
    change(ticks)
    ticks.run()
    maintenance = ticks.maintenance()
    (tmp_path / "no_folder").write_text("")
    broken = replace(
        maintenance.checkpointer, delta_sink=None, store=TraceStore(ticks.lab.spark, str(tmp_path / "no_folder"))
    )
    stopping = threading.Event()
    with listening(ticks) as listener:
        thread = threading.Thread(target=replace(maintenance, checkpointer=broken).run, args=(stopping,))
        thread.start()
        try:
            next_alert(listener, "cleanup_failure", "the checkpoint of the traces failed", 60)
        finally:
            stopping.set()
            thread.join()


def test_refreshes_that_take_most_of_their_interval_are_reported(make_ticks: Callable[..., Ticks]) -> None:
    ticks = make_ticks()
    db = ticks.lab.connection
    create(ticks, few=FEW)
    db.execute("SELECT pgtrickle.alter_stream_table('few', schedule => '2s')")
    ticks.run()
    db.execute(
        "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(1.7); RETURN NULL; END';"
        "CREATE TRIGGER slow AFTER INSERT OR UPDATE ON few FOR EACH ROW EXECUTE FUNCTION slow()"
    )
    with listening(ticks) as listener:
        for _ in range(3):
            change(ticks)
            db.execute("UPDATE pgtrickle.pgt_frontiers SET refreshed_at = refreshed_at - interval '1 min'")
            ticks.run(ignore_schedules=False)
        behind = next_alert(listener, "scheduler_falling_behind", timeout_s=5)
    assert behind["interval_ms"] == 2_000 and behind["took_ms"] > 1_600
