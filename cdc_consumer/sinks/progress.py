"""Reads the progress topic, returns the last published state of a slot, from which a restart resumes."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition

from cdc_consumer.errors import BrokerUnavailable
from cdc_consumer.settings import ConsumerSettings
from cdc_consumer.sinks.failures import diagnose_kafka, kafka_error
from cdc_consumer.sinks.sink import StoredState
from cdc_consumer.sinks.topics import client_options
from shared_schema.avro import codec, parse_table_schema
from shared_schema.progress import Capture, Progress, decode_progress
from shared_schema.table_schema import TableSchema
from shared_schema.topics import progress_topic, schemas_topic

READING = "reading the progress topic"

READ_TIMEOUT_S = 30.0
"""The topic is compacted and small; if reading takes longer, the broker is not available."""


def read_topic_state(settings: ConsumerSettings, patience_s: float = READ_TIMEOUT_S) -> StoredState:
    """Read the committed records of the progress topic to its end; the state is empty if there is no topic."""
    topic = progress_topic(settings.topic_prefix)
    with _reading(settings, READING) as consumer:
        # The metadata request comes first: a consumer that does not know the partition's leader waits half a second.
        if consumer.list_topics(topic, timeout=patience_s).topics[topic].error is not None:
            return StoredState()
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        return _fold(consumer, settings.slot)


def is_in_doubt(settings: ConsumerSettings) -> bool:
    """Return whether the progress topic ends with transactions that readers do not see yet.

    The broker confirms a commit before it writes the markers into the partitions. So for a moment, or until a failed
    broker has restarted, the last record is stored but cannot be read.
    """
    readable, written = (_end(settings, isolation) for isolation in ("read_committed", "read_uncommitted"))
    return readable < written


def _end(settings: ConsumerSettings, isolation: str) -> int:
    topic = progress_topic(settings.topic_prefix)
    with _reading(settings, READING, isolation) as consumer:
        return int(consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=READ_TIMEOUT_S)[1])


@contextmanager
def _reading(settings: ConsumerSettings, doing: str, isolation: str = "read_committed") -> Iterator[Consumer]:
    """Open a consumer; its errors become typed errors, and `doing` says what it did."""
    consumer = Consumer(
        {
            **client_options(settings),
            "group.id": f"pg-trickle-cdc-{settings.slot}",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,
        }
    )
    try:
        yield consumer
    except KafkaException as exception:
        raise diagnose_kafka(kafka_error(exception), doing) from exception
    finally:
        consumer.close()


def read_schema(settings: ConsumerSettings, fingerprint: str) -> TableSchema | None:
    """Return the schema version with this fingerprint from the schemas topic, under any key; None if there is none."""
    for text in _values(settings, schemas_topic(settings.topic_prefix)):
        found = parse_table_schema(json.loads(text))
        if codec(found).id.hex() == fingerprint:
            return found
    return None


def _values(settings: ConsumerSettings, topic: str) -> Iterator[bytes]:
    with _reading(settings, f"reading {topic}") as consumer:
        if consumer.list_topics(topic, timeout=READ_TIMEOUT_S).topics[topic].error is not None:
            return
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        for message in _to_end(consumer):
            if (value := message.value()) is not None:
                yield value


def _fold(consumer: Consumer, slot: str) -> StoredState:
    records: dict[bytes, Progress | Capture] = {}
    for message in _to_end(consumer):
        key, value = message.key() or b"", message.value()
        if value is None:
            records.pop(key, None)
        elif (record := decode_progress(value)).slot == slot:
            records[key] = record
    return _state(records)


def _to_end(consumer: Consumer) -> Iterator[Message]:
    """Yield the records of the one assigned partition up to its end."""
    deadline = time.monotonic() + READ_TIMEOUT_S
    while time.monotonic() < deadline:
        message = consumer.poll(1.0)
        if message is None:
            continue
        if (error := message.error()) is None:
            yield message
        elif error.code() == KafkaError._PARTITION_EOF:
            return
        elif not error.retriable():
            raise diagnose_kafka(error, "reading back what was published")
    raise BrokerUnavailable("no Kafka broker answered while reading progress", hint="check PG_TRICKLE_KAFKA_BOOTSTRAP")


def _state(records: dict[bytes, Progress | Capture]) -> StoredState:
    progress = next((r for r in records.values() if isinstance(r, Progress)), None)
    captures = {r.table: r for r in records.values() if isinstance(r, Capture)}
    return StoredState(progress, captures if progress else {}, tuple(records))
