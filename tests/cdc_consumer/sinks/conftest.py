"""`settings`: of mode log, on the run's broker, under a prefix and a slot that no other test uses."""

from __future__ import annotations

import pytest

from cdc_consumer.settings import ConsumerSettings
from shared_schema.settings import load_settings
from tests.fixtures.kafka import KafkaBroker


@pytest.fixture
def settings(kafka: KafkaBroker, topic_prefix: str, monkeypatch: pytest.MonkeyPatch) -> ConsumerSettings:
    monkeypatch.setenv("PG_TRICKLE_DATABASE_URL", "postgresql://h/db")
    monkeypatch.setenv("PG_TRICKLE_KAFKA_BOOTSTRAP", kafka.bootstrap)
    return load_settings(ConsumerSettings, topic_prefix=topic_prefix, slot=topic_prefix)
