"""A schema version is on its topic before a row needs it, once per process."""

from __future__ import annotations

import json

import pytest
from confluent_kafka import OFFSET_BEGINNING, TopicPartition

from cdc_consumer.errors import BrokerUnavailable
from cdc_consumer.settings import ConsumerSettings
from cdc_consumer.sinks import schemas
from cdc_consumer.sinks.schemas import SchemaRegistrar
from cdc_consumer.sinks.topics import Topics
from shared_schema.avro import codec, parse_table_schema
from shared_schema.table_schema import Column
from tests.cdc_consumer.sinks.records import TEXT, schema
from tests.cdc_consumer.topic_reader import open_reader


def test_each_version_once(settings: ConsumerSettings) -> None:
    Topics(settings).ensure_control()
    registrar, versions = SchemaRegistrar(settings), [codec(schema()), codec(schema(Column("v", TEXT)))]
    for version in [*versions, *versions]:
        assert registrar.ensure(version, "topic") == version.header
    reader = open_reader(settings.kafka_bootstrap)
    reader.assign([TopicPartition(f"{settings.topic_prefix}.schemas", 0, OFFSET_BEGINNING)])
    found = []
    while (message := reader.poll(5.0)) is not None and message.error() is None:
        found.append((message.key(), parse_table_schema(json.loads(message.value() or b""))))
    reader.close()
    assert found == [(version.id.hex().encode(), version.schema) for version in versions]


def test_without_a_broker_no_row_may_go_out(settings: ConsumerSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schemas, "REGISTER_TIMEOUT_S", 0.2)
    registrar = SchemaRegistrar(settings.model_copy(update={"kafka_bootstrap": "127.0.0.1:1"}))
    with pytest.raises(BrokerUnavailable):
        registrar.ensure(codec(schema()), "topic")
