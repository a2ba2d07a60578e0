"""Alerts: limited per event and subject, small enough for the server, counted, and sent from one place only."""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared_schema.alerts import (
    ALERT_CHANNEL,
    PAYLOAD_BYTES,
    Alert,
    AlertEvent,
    AlertLimit,
    AlertSender,
    encode_alert,
    subject_of,
)
from shared_schema.slot_lag import MB, SlotLagThresholds, slot_lag_alert

ROOT = Path(__file__).resolve().parents[2]

CLAIMS = st.lists(st.tuples(st.sampled_from(AlertEvent), st.integers(0, 2), st.floats(0, 200)), max_size=60)


@given(CLAIMS, st.floats(0, 500))
def test_no_condition_is_repeated_within_its_cooldown_and_none_is_lost(
    claims: Sequence[tuple[AlertEvent, int, float]], cooldown_s: float
) -> None:
    limit, sent, now_s = AlertLimit(), dict[tuple[AlertEvent, int], float](), 0.0
    for event, table, pause_s in claims:
        now_s += pause_s
        last = sent.get((event, table))
        is_free = event.is_change_of_state or last is None or now_s - last >= cooldown_s
        assert limit.claim(event, subject_of({"pgt_id": table}), now_s, cooldown_s) == is_free
        if is_free:
            sent[event, table] = now_s


def test_an_alert_that_could_not_be_sent_does_not_count() -> None:
    limit = AlertLimit()
    assert limit.claim(AlertEvent.STALE_DATA, (1,), 0.0, 300.0)
    limit.release(AlertEvent.STALE_DATA, (1,))
    assert limit.claim(AlertEvent.STALE_DATA, (1,), 1.0, 300.0)


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
        sent = [sender.send(db, alert.event, alert.fields) for _ in range(2)]
        assert sent == [True, event.is_change_of_state]
        got = [json.loads(notify.payload) for notify in db.notifies(timeout=0.2)]
    assert got == [{"event": event.value, "pgt_id": 7, "detail": "why"}] * sum(sent)
    assert counted == [event] * sum(sent)


def test_an_alert_of_a_transaction_that_is_rolled_back_is_not_lost_for_the_cooldown(database: str) -> None:
    sender = AlertSender(lambda: 0.0, lambda _: None)
    with psycopg.connect(database, autocommit=True) as db:
        db.execute(f"LISTEN {ALERT_CHANNEL}")
        with db.transaction(force_rollback=True):
            assert sender.send(db, AlertEvent.STALE_DATA, {"pgt_id": 7})
        sent = [sender.send(db, AlertEvent.STALE_DATA, {"pgt_id": 7}) for _ in range(2)]
        assert sent == [True, False] and len(list(db.notifies(timeout=0.2))) == 1


def test_each_event_is_sent_from_one_place() -> None:
    named: Counter[str] = Counter()
    for package in ("applier", "cdc_consumer", "shared_schema"):
        for path in sorted((ROOT / package).rglob("*.py")):
            if path.name != "alerts.py":
                named.update(re.findall(r"AlertEvent\.([A-Z_]+)", path.read_text()))
    assert named == Counter({event.name: 1 for event in AlertEvent})


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
    assert notifying == {"shared_schema/alerts.py"}
    assert unknown == set()
    sql = (ROOT / "shared_schema" / "sql_api" / "api").glob("*.sql")
    assert [path.name for path in sql if ALERT_CHANNEL in path.read_text()] == []
