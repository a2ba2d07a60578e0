"""Ready and not ready: the condition falls with what it sees and rises again by itself."""

from __future__ import annotations

import time

import pytest

from applier.runtime.condition import TICK_LATE_S, ApplierCondition
from shared_schema.beats import SILENT_AFTER_S


@pytest.fixture
def condition() -> ApplierCondition:
    working = ApplierCondition()
    assert working.reason == "no tick has finished yet"
    working.note_ready()
    assert working.ready
    return working


def test_a_tick_that_fails(condition: ApplierCondition) -> None:
    condition.note_failure("PostgreSQL cannot be reached")
    assert "PostgreSQL cannot be reached" in condition.reason and condition.alive
    condition.note_ready()
    assert condition.ready


def test_a_database_that_does_not_answer(condition: ApplierCondition) -> None:
    condition.hear_database(time.monotonic() - SILENT_AFTER_S)
    assert "PostgreSQL has not answered for 4 s" in condition.reason
    condition.hear_database(time.monotonic())
    assert condition.ready


def test_a_consumer_that_was_never_heard_is_not_missed(condition: ApplierCondition) -> None:
    assert condition.consumer_age_s == -1


def test_a_silent_consumer_and_a_silent_broker_are_told_apart(condition: ApplierCondition) -> None:
    now = time.monotonic()
    condition.hear_beat(now - 60, None)
    assert "pg-trickle-cdc has not been heard of for 60 s" in condition.reason
    condition.hear_consumer(now, None)
    assert "through the broker for 60 s" in condition.reason
    condition.hear_consumer(now, "no Kafka broker has confirmed a beat for 5 s")
    assert "no Kafka broker has confirmed a beat" in condition.reason
    condition.hear_beat(now, None)
    assert condition.ready


def test_a_tick_that_does_not_end(condition: ApplierCondition, monkeypatch: pytest.MonkeyPatch) -> None:
    later = time.monotonic() + TICK_LATE_S
    monkeypatch.setattr(time, "monotonic", lambda: later)
    assert "no tick has finished for 10 s" in condition.reason and condition.alive
    condition.note_ready()
    assert condition.ready


def test_whatever_answers_it_is_not_ready_before_the_first_tick_is_done() -> None:
    """While the JVM boots the main loop may take its time, and a first tick that fails is none."""
    starting, now = ApplierCondition(), time.monotonic()
    starting.hear_database(now)
    starting.hear_beat(now, None)
    starting.beat()
    assert starting.reason == "no tick has finished yet" and starting.alive
    starting.note_failure("PostgreSQL cannot be reached")
    assert not starting.ready and not starting.has_ticked
    starting.note_ready()
    assert starting.ready and starting.has_ticked
