"""Alerts: limited per event and subject, small enough for the server, counted, and sent from one place only."""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared_schema.alert_sender import AlertSender, Notifies
from shared_schema.alerts import (
    ALERT_CHANNEL,
    PAYLOAD_BYTES,
    START_GRACE_S,
    Alert,
    AlertEvent,
    AlertKind,
    AlertQueue,
    Subject,
    Waiting,
    encode_alert,
    subject_of,
)
from shared_schema.beats import SilenceWatch
from shared_schema.errors import TrickleError
from shared_schema.slot_lag import MB, SlotLagThresholds, slot_lag_alert

ROOT = Path(__file__).resolve().parents[2]

ADDED = st.lists(
    st.tuples(st.sampled_from(AlertEvent), st.integers(0, 2), st.floats(0, 200), st.booleans()), max_size=60
)


@given(ADDED, st.floats(0, 500))
def test_no_alert_is_lost_and_none_comes_twice_within_its_cooldown(
    added: Sequence[tuple[AlertEvent, int, float, bool]], cooldown_s: float
) -> None:
    """Whatever the order, and however often nothing can be sent."""
    queue, sent, now_s = AlertQueue(), list[tuple[AlertEvent, Subject, float, int]](), 0.0
    noticed: Counter[tuple[AlertEvent, Subject]] = Counter()

    def send() -> None:
        while (taken := queue.take(now_s, cooldown_s)) is not None:
            sent.append((*taken.key, now_s, taken.occurrences))

    for event, table, pause_s, works in added:
        now_s += pause_s
        new = Waiting(event, {"pgt_id": table}, now_s)
        noticed[new.key] += 1
        queue.add(new, cooldown_s)
        if works:
            send()
        elif (taken := queue.take(now_s, cooldown_s)) is not None:
            queue.put_back(taken)
    now_s += cooldown_s
    send()
    now_s += cooldown_s
    send()
    for key, number in noticed.items():
        times = [at for event, subject, at, _ in sent if (event, subject) == key]
        if key[0].kind is AlertKind.CONDITION:
            assert 1 <= len(times) <= number
        else:
            assert sum(count for event, subject, _, count in sent if (event, subject) == key) == number
        if key[0].kind is not AlertKind.CHANGE:
            assert all(later - earlier >= cooldown_s for earlier, later in pairwise(times))


def test_one_that_is_late_or_stands_for_several_says_so() -> None:
    queue = AlertQueue()
    for number, at in enumerate((0.0, 10.0, 20.0)):
        queue.add(Waiting(AlertEvent.REFRESH_FAILED, {"pgt_id": 1, "errors": number}, at), 300.0)
        if not number:
            first = queue.take(at, 300.0)
            assert first is not None and first.said(at) == {"pgt_id": 1, "errors": 0}
    assert queue.take(299.0, 300.0) is None
    late = queue.take(300.0, 300.0)
    assert late is not None and late.said(300.0) == {"pgt_id": 1, "errors": 2, "occurrences": 2, "late_s": 280}


def test_a_long_outage_needs_no_memory_for_what_lasts() -> None:
    queue = AlertQueue()
    for second in range(10_000):
        queue.add(Waiting(AlertEvent.STALE_DATA, {"pgt_id": 1}, float(second)), 300.0)
        taken = queue.take(float(second), 300.0)
        assert taken is not None
        queue.put_back(taken)
    assert len(queue._ready) == 1


@given(st.dictionaries(st.sampled_from(["error", "hint", "detail"]), st.text(max_size=5000)))
def test_a_payload_fits_and_is_json(fields: dict[str, str]) -> None:
    payload = encode_alert(AlertEvent.AUTO_SUSPENDED, fields)
    assert len(payload.encode()) <= PAYLOAD_BYTES and payload.isascii()
    said = json.loads(payload)
    assert said.pop("event") == "auto_suspended"
    assert all(fields[name].startswith(text) for name, text in said.items()) and said.keys() == fields.keys()


def test_long_texts_of_other_scripts_fit() -> None:
    assert len(encode_alert(AlertEvent.AUTO_SUSPENDED, {"error": "ж" * 2000, "hint": "ж" * 2000})) <= PAYLOAD_BYTES


def test_a_slot_that_becomes_critical_is_another_alert() -> None:
    thresholds = SlotLagThresholds(100, 1_024)
    assert slot_lag_alert("s", 100 * MB, thresholds) is None
    warning, critical = (slot_lag_alert("s", size * MB, thresholds) for size in (101, 1_025))
    assert warning is not None and warning.fields["severity"] == "warning"
    assert critical is not None and critical.fields["severity"] == "critical"
    assert subject_of(warning.fields) != subject_of(critical.fields)


@pytest.mark.parametrize("event", AlertEvent)
def test_a_listener_gets_each_event_once_and_it_is_counted(database: str, event: AlertEvent) -> None:
    counted: list[AlertEvent] = []
    sender = AlertSender(lambda: 0.0, counted.append)
    with psycopg.connect(database, autocommit=True) as db:
        db.execute(f"LISTEN {ALERT_CHANNEL}")
        alert = Alert(event, {"pgt_id": 7, "detail": "why"})
        sent = [sender.send(lambda: db, alert.event, alert.fields) for _ in range(2)]
        assert sent == [True, event.kind is AlertKind.CHANGE]
        got = [json.loads(notify.payload) for notify in db.notifies(timeout=0.2)]
    assert got == [{"event": event.value, "pgt_id": 7, "detail": "why"}] * sum(sent)
    assert counted == [event] * sum(sent)


def test_what_cannot_be_sent_is_sent_when_the_connection_is_back(database: str) -> None:
    counted: list[AlertEvent] = []
    now_s = [0.0]
    sender = AlertSender(lambda: now_s[0], counted.append)
    with psycopg.connect(database, autocommit=True) as listener, psycopg.connect(database, autocommit=True) as lost:
        listener.execute(f"LISTEN {ALERT_CHANNEL}")
        lost.close()

        def no_server() -> Notifies:
            raise TrickleError("PostgreSQL cannot be reached")

        assert not sender.send(lambda: lost, AlertEvent.APPLIER_SILENT, {})
        assert not sender.send(no_server, AlertEvent.APPLIER_BACK, {})
        with listener.transaction(force_rollback=True):
            assert not sender.send(lambda: listener, AlertEvent.STALE_DATA, {"pgt_id": 7})
        now_s[0] = 60.0
        assert counted == [] and sender.flush(lambda: listener) and sender.flush(no_server), "nothing waits any more"
        got = [json.loads(notify.payload) for notify in listener.notifies(timeout=0.2)]
    expected = [AlertEvent.APPLIER_SILENT, AlertEvent.APPLIER_BACK, AlertEvent.STALE_DATA]
    assert [said["event"] for said in got] == [event.value for event in expected] and counted == expected
    assert [said["late_s"] for said in got] == [60, 60, 60]


def test_nobody_waits_for_a_thread_that_hangs_in_the_server(database: str) -> None:
    sender = AlertSender(lambda: 0.0, lambda _: None)
    with psycopg.connect(database, autocommit=True) as db:
        db.execute(f"LISTEN {ALERT_CHANNEL}")

        others = iter([2])

        def hang() -> Notifies:
            for pgt_id in others:
                assert not sender.send(lambda: db, AlertEvent.RESUMED, {"pgt_id": pgt_id}), "another thread sends"
            return db

        assert sender.send(hang, AlertEvent.RESUMED, {"pgt_id": 1})
        assert [json.loads(notify.payload)["pgt_id"] for notify in db.notifies(timeout=0.2)] == [1, 2]


@pytest.mark.parametrize("is_old", [False, True])
def test_a_silence_is_told_once_and_one_that_a_start_finds_if_it_lasts(is_old: bool) -> None:
    watch = SilenceWatch()
    assert not watch.look(is_old, 0.0)
    told = [at for at in range(1, 60) if watch.look(True, float(at))]
    assert told == [START_GRACE_S if is_old else 1]
    assert [watch.look(False, 60.0), watch.look(False, 61.0), watch.look(True, 62.0)] == [True, False, True]


def test_a_program_that_starts_with_the_other_is_no_news() -> None:
    watch = SilenceWatch()
    assert not any(watch.look(is_silent, float(at)) for at, is_silent in enumerate([True, True, False, False]))


def test_each_event_is_sent_from_one_place() -> None:
    named: Counter[str] = Counter()
    for package in ("applier", "cdc_consumer", "shared_schema"):
        for path in sorted((ROOT / package).rglob("*.py")):
            if path.name != "alerts.py":
                named.update(re.findall(r"AlertEvent\.([A-Z_]+)", path.read_text()))
    assert named == Counter({event.name: 1 for event in AlertEvent})


def test_each_event_is_heard_by_a_listener_of_some_test() -> None:
    """Where programs, or parts of them, really run; the tests of this file send by themselves."""
    texts = [path.read_text() for path in (ROOT / "tests").rglob("test_*.py") if path != Path(__file__)]
    listening = "".join(text for text in texts if f"LISTEN {ALERT_CHANNEL}" in text)
    assert [event.value for event in AlertEvent if f'"{event.value}"' not in listening] == []


def test_nothing_else_notifies_and_every_event_is_of_the_list() -> None:
    notifying, unknown = set(), set()
    for package in ("applier", "cdc_consumer", "shared_schema"):
        for path in sorted((ROOT / package).rglob("*.py")):
            text = path.read_text()
            if "pg_notify(" in text and ALERT_CHANNEL in text + "ALERT_CHANNEL":
                notifying.add(path.relative_to(ROOT).as_posix())
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("send_alert", ".alert")):
                    named = [a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
                    unknown |= {*named} - {event.value for event in AlertEvent}
    assert notifying == {"shared_schema/alert_sender.py"}
    assert unknown == set()
    sql = (ROOT / "shared_schema" / "sql_api" / "api").glob("*.sql")
    assert [path.name for path in sql if ALERT_CHANNEL in path.read_text()] == []
