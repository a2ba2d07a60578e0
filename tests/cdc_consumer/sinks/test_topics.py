"""Topics are created once, with the documented settings; existing topics are used unchanged."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewTopic

from cdc_consumer.errors import TopicUnfit
from cdc_consumer.settings import ConsumerSettings
from cdc_consumer.sinks.topics import PROGRESS_COMPACTION_LAG_MS, Topics, client_options
from shared_schema.errors import SettingsError
from shared_schema.table_schema import TableId
from tests.cdc_consumer.harness import until
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


def test_many_topics_are_created_at_once(settings: ConsumerSettings) -> None:
    tables = [TableId("public", f"t{number}") for number in range(20)]
    names = [f"{settings.topic_prefix}.public.{table.name}" for table in tables]
    Topics(settings).ensure_table(tables[3])
    topics = Topics(settings.model_copy(update={"topic_partitions": 2}))
    topics.create_tables(tables)
    assert [topics.ensure_table(table) for table in tables] == names
    # The one that was there keeps its partitions, and may have been used.
    assert [topics.partitions(name) for name in names] == [1 if i == 3 else 2 for i in range(20)]
    assert config(settings, names[0])["retention.ms"] == str(settings.topic_retention_ms)
    assert not any(topics.is_used(name) for name in names)


def test_topics_that_somebody_else_created(settings: ConsumerSettings, caplog: pytest.LogCaptureFixture) -> None:
    Topics(settings).ensure_table(TableId("public", "good"))
    made = {
        "public.brief": {"retention.ms": "60000"},
        "public.small": {"retention.ms": "-1", "max.message.bytes": "2000"},
        "public.compacted": {"retention.ms": "-1", "cleanup.policy": "compact"},
        # Not a name that this project gives, nor a topic of this prefix.
        "public.not-ff": {"cleanup.policy": "compact"},
        "public.other.x": {"cleanup.policy": "compact"},
    }
    admin = AdminClient({"bootstrap.servers": settings.kafka_bootstrap})
    new = [NewTopic(f"{settings.topic_prefix}.{name}", 2, 1, config=config) for name, config in made.items()]
    for done in admin.create_topics(new).values():
        done.result(20)
    created = {topic.topic for topic in new}
    until(lambda: created <= {t.topic for t in admin.list_topics().topics.values() if t.error is None}, "created", 20)
    topics = Topics(settings)
    topics.look()
    said = {vars(r)["topic"].removeprefix(f"{settings.topic_prefix}."): vars(r) for r in caplog.records}
    assert "deleted after 60000 ms" in said["public.brief"]["problem"]
    assert "above 2000 bytes" in said["public.small"]["problem"]
    assert f"--entity-name {settings.topic_prefix}.public.brief" in said["public.brief"]["hint"]
    assert not {"public.good", "public.compacted", "public.other.x"} & {*said}
    with pytest.raises(TopicUnfit, match="is compacted") as raised:
        topics.ensure_table(TableId("public", "compacted"))
    assert raised.value.table == TableId("public", "compacted") and "cleanup.policy=delete" in raised.value.hint
    assert topics.partitions(topics.ensure_table(TableId("public", "brief"))) == 2


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
