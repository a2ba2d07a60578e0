"""The one streaming query: Kafka -> micro-batches, as frames.

Spark's own checkpoint is a throw-away cache: every start begins at the offsets of the traces' checkpoint. So it is in
memory (`MemoryCheckpoint.java`), in a folder that is new each time.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from applier.errors import Infrastructure
from applier.ingest.kafka_options import java_options
from applier.settings import ApplierSettings
from shared_schema.progress import Offsets
from shared_schema.topics import progress_topic, schemas_topic, subscribe_pattern

log = logging.getLogger(__name__)

POLL_MS = 50
"""Pause between two polls of Kafka: a compromise between latency and the cost of idling. Spark's own trigger uses the
wall clock: if that is set back by an hour, Spark would poll again after an hour."""


ClientOptions = dict[str, str | int | float | bool]


def client_options(settings: ApplierSettings) -> ClientOptions:
    """Return the librdkafka options that all clients of this process share."""
    return {"bootstrap.servers": settings.kafka_bootstrap, **settings.kafka_options}


@contextmanager
def reaching_kafka() -> Iterator[None]:
    """Turn the error of a broker that does not respond into an Infrastructure error."""
    try:
        yield
    except KafkaException as error:
        raise Infrastructure(
            f"Kafka cannot be reached: {error.args[0].str()}",
            hint="check PG_TRICKLE_KAFKA_BOOTSTRAP and that the broker is running",
        ) from error


def are_topics_ready(settings: ApplierSettings) -> bool:
    """Whether pg-trickle-cdc has created its topics."""
    with reaching_kafka():
        topics = AdminClient(client_options(settings)).list_topics(timeout=10).topics
    return progress_topic(settings.topic_prefix) in topics and schemas_topic(settings.topic_prefix) in topics


def start(
    spark: SparkSession,
    settings: ApplierSettings,
    offsets: Offsets,
    folder: str,
    receive: Callable[[DataFrame], None],
) -> StreamingQuery:
    """Start the query; `receive` gets each micro-batch on the query's thread, as Spark's Kafka source gives it."""
    reader = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", settings.kafka_bootstrap)
        .option("subscribePattern", subscribe_pattern(settings.topic_prefix))
        .option("startingOffsets", json.dumps(offsets))
        .option("failOnDataLoss", "true")
        .option("maxOffsetsPerTrigger", settings.max_offsets_per_trigger)
        .option("kafka.isolation.level", "read_committed")
        # A batch ends at the invisible marker of a transaction; without this option it waits half a second for that.
        .option("kafka.fetch.max.wait.ms", "5")
    )
    for name, value in java_options(settings.kafka_options).items():
        reader = reader.option(f"kafka.{name}", value)

    spark.conf.set("spark.sql.streaming.pollingDelay", POLL_MS)
    next_at = 0.0

    def on_batch(batch: DataFrame, batch_id: int) -> None:
        nonlocal next_at
        receive(batch)
        # `pollingDelay` above applies only to polls that found nothing.
        time.sleep(max(0.0, next_at - time.monotonic()))
        next_at = time.monotonic() + POLL_MS / 1000

    return (
        reader.load()
        .writeStream.foreachBatch(on_batch)
        .option("checkpointLocation", folder)
        .trigger(processingTime="0 seconds")
        .queryName("pg-trickle-ingest")
        .start()
    )
