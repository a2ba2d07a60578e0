"""Reads topic `<prefix>.schemas`: the fingerprint in a message's header -> the codec that decodes the message."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable

from confluent_kafka import Consumer, TopicPartition

from applier.errors import Infrastructure
from shared_schema import avro
from shared_schema.errors import ContractError
from shared_schema.progress import Capture
from shared_schema.table_schema import TableSchema
from shared_schema.topics import schemas_topic

SCHEMA_WAIT_S = 10.0
"""A schema is committed before or with the first message that needs it, so it arrives soon."""


class SchemaReader:
    """Holds every schema version seen so far; reads the topic further when a message names an unknown one."""

    def __init__(self, prefix: str, client: dict[str, str | int | float | bool]) -> None:
        self._topic = schemas_topic(prefix)
        self._lock = threading.Lock()
        self._codecs: dict[bytes, avro.ChangeCodec] = {}
        self._missing: set[bytes] = set()
        self._consumer = Consumer(
            client
            | {
                "group.id": "pg-trickle-schemas",
                "enable.auto.commit": "false",
                "isolation.level": "read_committed",
                "enable.partition.eof": "false",
            }
        )
        self._consumer.assign([TopicPartition(self._topic, 0, 0)])

    def close(self) -> None:
        """Close the Kafka consumer."""
        self._consumer.close()

    def codec(self, message: bytes) -> avro.ChangeCodec:
        """Return the codec of the schema version that a message names in its header."""
        return self._version(avro.header_fingerprint(message))

    def copied(self, capture: Capture) -> TableSchema:
        """Return the schema with which a relation was copied."""
        return self._version(bytes.fromhex(capture.schema_id)).schema

    def _version(self, fingerprint: bytes) -> avro.ChangeCodec:
        problem = f"schema {fingerprint.hex()} is not on {self._topic}"
        # Many messages may name the same missing schema: only the first one waits for it.
        wait_s = 0.0 if fingerprint in self._missing else SCHEMA_WAIT_S
        try:
            self._read_until(lambda: fingerprint in self._codecs, problem, wait_s)
        except ContractError:
            self._missing.add(fingerprint)
            raise
        return self._codecs[fingerprint]

    def _read_until(self, found: Callable[[], bool], problem: str, wait_s: float) -> None:
        deadline = time.monotonic() + wait_s
        # Called from the query's thread and from the tick's thread.
        with self._lock:
            while not found():
                message = self._consumer.poll(0.1)
                if message is not None and (error := message.error()) is not None:
                    # The client reconnects by itself; only when it gives up is it an error.
                    if error.fatal() or time.monotonic() > deadline:
                        raise Infrastructure(f"{self._topic} cannot be read: {error.str()}")
                elif message is not None and (value := message.value()) is not None:
                    self._add(message.key(), value)
                elif time.monotonic() > deadline:
                    raise ContractError(problem, hint="was the schemas topic deleted or its retention changed?")

    def _add(self, key: bytes | str | None, text: bytes) -> None:
        schema = avro.parse_table_schema(json.loads(text))
        codec = avro.codec(schema)
        if codec.text.encode() != text:
            raise ContractError(f"the schema of {schema.table} on {self._topic} is not in its canonical text form")
        # By the ID in messages, which a schema registry may have assigned, and by the ID in captures.
        self._codecs[bytes.fromhex(key.decode() if isinstance(key, bytes) else key or "")] = codec
        self._codecs[codec.id] = codec
