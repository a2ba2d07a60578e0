"""Topics are created once, with the documented settings; existing topics are used unchanged."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType

from cdc_consumer.settings import ConsumerSettings
from cdc_consumer.sinks.topics import PROGRESS_COMPACTION_LAG_MS, Topics, client_options
from shared_schema.errors import SettingsError
from tests.cdc_consumer.sinks.records import TABLE


def config(settings: ConsumerSettings, topic: str) -> dict[str, str | None]:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    admin = AdminClient({"bootstrap.servers": settings.kafka_bootstrap})
    return {name: entry.value for name, entry in admin.describe_configs([resource])[resource].result(20).items()}


def test_the_settings_of_the_contract(settings: ConsumerSettings) -> None:
    topics = Topics(settings)
    topics.ensure_control()
    progress = config(settings, f"{settings.topic_prefix}.progress")
    assert progress["cleanup.policy"] == "compact"
    assert progress["min.compaction.lag.ms"] == str(PROGRESS_COMPACTION_LAG_MS)
    assert config(settings, f"{settings.topic_prefix}.schemas")["cleanup.policy"] == "compact"
    table = config(settings, topics.ensure_table(TABLE))
    assert table["cleanup.policy"] == "delete" and table["retention.ms"] == str(settings.topic_retention_ms)
    # Every topic uses the broker's clock.
    assert progress["message.timestamp.type"] == table["message.timestamp.type"] == "LogAppendTime"


def test_partitions_are_those_that_are_there(settings: ConsumerSettings) -> None:
    name = Topics(settings.model_copy(update={"topic_partitions": 3})).ensure_table(TABLE)
    later = Topics(settings.model_copy(update={"topic_partitions": 5}))
    assert later.ensure_table(TABLE) == name and later.partitions(name) == 3


def test_whether_a_topic_was_ever_written(settings: ConsumerSettings) -> None:
    name = Topics(settings).ensure_table(TABLE)
    assert not Topics(settings).is_used(name)
    producer = Producer({"bootstrap.servers": settings.kafka_bootstrap})
    producer.produce(name, b"row")
    assert producer.flush(20) == 0
    assert Topics(settings).is_used(name) and Topics(settings).end_offset(name, 0) == 1


def test_options_librdkafka_does_not_know(settings: ConsumerSettings) -> None:
    with pytest.raises(SettingsError, match="Kafka settings") as raised:
        Topics(settings.model_copy(update={"kafka_options": {"no.such.option": 1}}))
    assert "PG_TRICKLE_KAFKA_OPTIONS" in raised.value.hint


def test_the_address_is_the_settings_own(settings: ConsumerSettings) -> None:
    given = settings.model_copy(update={"kafka_options": {"bootstrap.servers": "other:1", "client.id": "mine"}})
    options = client_options(given)
    assert options["bootstrap.servers"] == settings.kafka_bootstrap and options["client.id"] == "mine"
