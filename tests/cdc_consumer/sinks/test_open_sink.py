"""The sink of every mode: the same calls prepare, open, read back and query it."""

from __future__ import annotations

import pytest

from cdc_consumer.errors import BrokerUnavailable, ConnectionLost
from cdc_consumer.health import Health
from cdc_consumer.metrics import Metrics
from cdc_consumer.settings import ConsumerSettings
from cdc_consumer.sinks import topics
from cdc_consumer.sinks.kafka import KafkaSink
from cdc_consumer.sinks.open_sink import (
    is_sink_empty,
    is_state_in_doubt,
    open_probe,
    open_sink,
    prepare_sink,
    read_state,
)
from cdc_consumer.sinks.postgres import BufferSink
from cdc_consumer.sinks.sink import StoredState
from shared_schema.settings import load_settings
from tests.cdc_consumer.harness import until
from tests.cdc_consumer.sinks.records import TABLE, capture, progress

NOBODY = "127.0.0.1:1"


@pytest.fixture(params=["log", "sidecar", "remote"])
def chosen(
    request: pytest.FixtureRequest, settings: ConsumerSettings, database: str, monkeypatch: pytest.MonkeyPatch
) -> ConsumerSettings:
    if request.param == "log":
        return settings
    elsewhere = {}
    if request.param == "remote":
        elsewhere["target_url"] = request.getfixturevalue("second_database")
    monkeypatch.setenv("PG_TRICKLE_DATABASE_URL", database)
    return load_settings(ConsumerSettings, mode=request.param, slot=settings.slot, kafka_bootstrap=NOBODY, **elsewhere)


def test_what_is_published_is_read_back_by_the_next(chosen: ConsumerSettings) -> None:
    assert read_state(chosen) == StoredState()
    prepare_sink(chosen)
    open_probe(chosen)()
    sink = open_sink(chosen, lambda: None, Metrics(Health()))
    assert type(sink) is (KafkaSink if chosen.mode == "log" else BufferSink)
    assert is_sink_empty(chosen) or chosen.mode != "log"
    sink.commit([capture(chosen.slot), progress(chosen.slot)])
    sink.close()
    until(lambda: not is_state_in_doubt(chosen), "the broker told the partition of the commit")
    state = read_state(chosen)
    assert state.progress == progress(chosen.slot) and state.captures == {TABLE: capture(chosen.slot)}
    # The progress of one slot is not read for another, which must not write to the same topics.
    other_slot = chosen.slot if chosen.mode == "log" else None
    assert read_state(chosen.model_copy(update={"slot": "another"})) == StoredState(other_slot=other_slot)


def test_nobody_there(chosen: ConsumerSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "ASK_TIMEOUT_S", 0.5)
    nobody = f"postgresql://u@{NOBODY}/db"
    away = chosen.model_copy(
        update={"kafka_bootstrap": NOBODY}
        if chosen.mode == "log"
        else {name: type(chosen.database_url)(nobody) for name in ("database_url", "target_url")}
    )
    with pytest.raises(BrokerUnavailable if chosen.mode == "log" else ConnectionLost):
        open_probe(away)()
