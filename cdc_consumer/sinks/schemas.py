"""Writes schema versions to the compacted `<prefix>.schemas` topic and, if configured, to a schema registry.

Key = fingerprint in hexadecimal, or the registry's id; value = schema text. A schema is durable before the first row
that needs it is produced, and it is written outside the row's transaction. So a reader that sees a row can always find
its schema, although transaction markers reach partitions at different moments.
"""

from __future__ import annotations

import logging

from confluent_kafka import KafkaException, Producer

from cdc_consumer.errors import BrokerUnavailable
from cdc_consumer.settings import ConsumerSettings
from cdc_consumer.sinks.failures import diagnose_kafka, kafka_error
from cdc_consumer.sinks.registry import SchemaRegistry
from cdc_consumer.sinks.topics import client_options
from shared_schema.avro import MAGIC, REGISTRY_MAGIC, ChangeCodec, registry_header
from shared_schema.topics import schemas_topic

log = logging.getLogger(__name__)

REGISTER_TIMEOUT_S = 30.0
"""Happens once per schema version and process, so a long wait is acceptable; no row is written before its schema."""


class SchemaRegistrar:
    """Publishes each schema version once per process; a repeated record is harmless on a compacted topic."""

    def __init__(self, settings: ConsumerSettings) -> None:
        self._topic = schemas_topic(settings.topic_prefix)
        self._producer = Producer({**client_options(settings), "enable.idempotence": True, "linger.ms": 0})
        url = settings.schema_registry_url
        self._registry = SchemaRegistry(url.get_secret_value()) if url else None
        self._headers: dict[bytes, bytes] = {}

    def ensure(self, codec: ChangeCodec, topic: str) -> bytes:
        """Publish the schema if needed -> the header of messages that use it. Readers can find the schema then."""
        known = self._headers.get(codec.id)
        if known is not None:
            return known
        header, key = codec.header, codec.header.removeprefix(MAGIC)
        if self._registry is not None:
            header = registry_header(self._registry.register(codec.schema.table, f"{topic}-value", codec.text))
            key = header.removeprefix(REGISTRY_MAGIC)
        self._publish(key, codec)
        self._headers[codec.id] = header
        log.info("schema published", extra={"table": str(codec.schema.table), "id": key.hex()})
        return header

    def _publish(self, key: bytes, codec: ChangeCodec) -> None:
        try:
            self._producer.produce(self._topic, key=key.hex().encode(), value=codec.text.encode())
            left = self._producer.flush(REGISTER_TIMEOUT_S)
        except KafkaException as exception:
            raise diagnose_kafka(kafka_error(exception), "publishing a schema") from exception
        if left:
            raise BrokerUnavailable(
                "no Kafka broker answered while publishing a schema", hint="check PG_TRICKLE_KAFKA_BOOTSTRAP"
            )
