"""Readiness follows the session, the probes and the lag; metrics only show it."""

from __future__ import annotations

import time

import pytest

from cdc_consumer import health as module
from cdc_consumer.health import (
    BROKER_SILENT_AFTER_S,
    Connecting,
    Health,
    LoadingTables,
    Restarting,
    SessionState,
    StandingBy,
    Streaming,
    health_report,
)
from cdc_consumer.metrics import Metrics
from shared_schema.beats import SILENT_AFTER_S


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (Connecting(), "connecting"),
        (StandingBy(7), "standing by: server process 7 streams from the slot"),
        (LoadingTables(), "loading tables"),
        (Streaming(), ""),
        (Restarting("gone"), "restarting the session: gone"),
    ],
)
def test_only_a_session_that_streams_is_ready(state: SessionState, reason: str) -> None:
    health = Health()
    health.enter(state)
    assert health.reason == reason and health.ready is (reason == "")


def test_what_keeps_a_streaming_session_from_being_ready() -> None:
    health = Health()
    health.enter(Streaming())
    health.record_lag(behind=True)
    assert health.reason == "the consumer falls behind the server"
    health.record_probe(None, "no broker")
    assert health.reason == "no broker"
    health.record_probe("no server", "no broker")
    assert health.reason == "no server"
    health.record_probe(None, None)
    health.record_lag(behind=False)
    assert health.ready


def test_a_restart_is_counted_and_remembered() -> None:
    health = Health()
    health.enter(Streaming())
    health.record_lag(behind=True)
    health.enter(Restarting("gone"))
    health.enter(Streaming())
    report = health_report(health)
    assert report["ready"] and report["reconnects"] == 1 and report["last_error"] == "gone"
    assert not report["standby"] and report["blocked"] is None


def test_a_loop_that_does_not_run_is_not_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    health = Health()
    assert health.alive
    monkeypatch.setattr(module, "ALIVE_WITHIN_S", 0.0)
    assert not health.alive


def test_gauges_show_the_health() -> None:
    health = Health()
    shown = Metrics(health).registry.get_sample_value
    for state, gauges in (
        (StandingBy(7), {"standby": 1, "ready": 0}),
        (Streaming(), {"standby": 0, "ready": 1, "behind": 0}),
    ):
        health.enter(state)
        assert {name: shown(f"pg_trickle_cdc_{name}") for name in gauges} == gauges
    health.record_lag(behind=True)
    health.record_probe("gone", None)
    expected = {"ready": 0, "behind": 1, "source_reachable": 0, "sink_reachable": 1}
    assert {name: shown(f"pg_trickle_cdc_{name}") for name in expected} == expected


def test_silence_is_decided_when_somebody_asks() -> None:
    health, now = Health(), time.monotonic()
    health.enter(Streaming())
    assert health.ready and health.age_of("source") == health.age_of("broker") == health.age_of("applier") == -1
    health.hear_source(now - 5, 0)
    assert health.reason == "PostgreSQL has not answered for 5 s"
    health.hear_source(now, 0)
    health.hear_broker(now - BROKER_SILENT_AFTER_S)
    assert health.reason == "no Kafka broker has confirmed a beat for 3 s"
    health.hear_broker(now)
    assert health.ready and not health.problem


def test_only_an_applier_that_was_heard_is_missed() -> None:
    health, now = Health(), time.monotonic()
    health.enter(Streaming())
    health.hear_applier(now - 100, now)
    assert health.ready, "it was silent before this process started, and may not be wanted any more"
    health.hear_applier(now - 1, now)
    assert health.ready
    health.hear_applier(now - SILENT_AFTER_S - 1, now)
    assert health.reason == "pg-trickle-applier has not been heard of for 5 s" and not health.problem
    health.hear_applier(now, now)
    assert health.ready


def test_the_sources_clock_is_not_this_machines() -> None:
    health = Health()
    assert abs(health.source_now_s - time.time()) < 1
    health.hear_source(time.monotonic(), 5_000_000)
    assert 5 <= health.source_now_s < 6
