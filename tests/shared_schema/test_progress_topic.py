"""Records of a long progress topic are found without reading it: by both programs, in bounded time.

With PG_TRICKLE_LONG_TESTS there are 3 000 000 records instead of 200 000.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer

from applier.ingest.inbox import Inbox
from applier.ingest.start_offsets import MAX_RECORDS, find_start_offsets
from applier.settings import ApplierSettings
from cdc_consumer.settings import ConsumerSettings
from cdc_consumer.sinks.progress import read_topic_state
from cdc_consumer.sinks.topics import Topics
from shared_schema.checkpoints import cut_checkpoint
from shared_schema.lsn import ORIGIN, Lsn
from shared_schema.progress import Capture, Checkpoint, CheckpointPlace, Progress
from shared_schema.progress_topic import READER_OPTIONS, STEP, find_frontier, find_last, read_records, topic_range
from shared_schema.settings import load_settings
from shared_schema.table_schema import TableId
from tests.fixtures.kafka import KafkaBroker

LONG = bool(os.environ.get("PG_TRICKLE_LONG_TESTS"))
RECORDS = 3_000_000 if LONG else 200_000
LIMIT_S = 10.0 if LONG else 4.0
EVERY = 5_000
"""Records after which a checkpoint is written."""

DATABASE = "postgresql://nobody@127.0.0.1/none"
TABLE = TableId("public", "t")


def progress(slot: str, number: int, place: CheckpointPlace | None) -> Progress:
    return Progress(slot, "1", 1, Lsn(1), Lsn(100 + number), {"x.public.t": {0: number}}, checkpoint=place)


def write(settings: ConsumerSettings, records: int, every: int) -> None:
    """Write as the consumer does, but without transactions; offsets are without gaps then."""
    topic, slot = f"{settings.topic_prefix}.progress", settings.slot
    producer = Producer({"bootstrap.servers": settings.kafka_bootstrap, "compression.type": "lz4", "linger.ms": 50})
    place, offset = None, 0

    def send(record: Progress | Checkpoint | Capture) -> None:
        nonlocal offset
        while True:
            try:
                producer.produce(topic, record.encode(), record.key, 0)
                break
            except BufferError:
                producer.poll(0.1)
        offset += 1

    capture = Capture(slot, TABLE, 7, Lsn(5), 3)
    send(capture)
    for number in range(records):
        if every and number % every == 0:
            place = CheckpointPlace(offset, 1)
            for part in cut_checkpoint(slot, offset, {"x.public.u": {0: number}}, {7: "ab"}, [capture]):
                send(part)
        send(progress(slot, number, place))
    assert producer.flush(60) == 0


@pytest.fixture
def settings(kafka: KafkaBroker, topic_prefix: str) -> ConsumerSettings:
    made = load_settings(
        ConsumerSettings,
        database_url=DATABASE,
        kafka_bootstrap=kafka.bootstrap,
        topic_prefix=topic_prefix,
        slot=topic_prefix,
    )
    Topics(made).ensure_control()
    return made


@pytest.fixture
def reader(settings: ConsumerSettings) -> Iterator[Consumer]:
    made = Consumer({"bootstrap.servers": settings.kafka_bootstrap, "group.id": "test", **READER_OPTIONS})
    yield made
    made.close()


def test_both_programs_start_fast_on_a_long_topic(settings: ConsumerSettings, kafka: KafkaBroker) -> None:
    write(settings, RECORDS, EVERY)
    began = time.monotonic()
    state = read_topic_state(settings)
    consumer_s = time.monotonic() - began
    assert state.progress is not None and state.progress.frontier == Lsn(100 + RECORDS - 1)
    assert state.progress.end_offsets == {
        "x.public.u": {0: (RECORDS - 1) // EVERY * EVERY},
        "x.public.t": {0: RECORDS - 1},
    }
    assert set(state.captures) == {TABLE} and state.progress.schemas == {7: "ab"}
    applier = ApplierSettings(
        database_url=DATABASE,  # type: ignore[arg-type]
        kafka_bootstrap=kafka.bootstrap,
        topic_prefix=settings.topic_prefix,
    )
    topic = f"{settings.topic_prefix}.progress"
    for frontier, most in ((ORIGIN, MAX_RECORDS + EVERY), (Lsn(100 + RECORDS - 10), 2 * EVERY)):
        began = time.monotonic()
        first = find_start_offsets(applier, {}, frontier).offsets[topic][0]
        applier_s = time.monotonic() - began
        began = time.monotonic()
        with_reader = Consumer({"bootstrap.servers": settings.kafka_bootstrap, "group.id": "test", **READER_OPTIONS})
        _, end = topic_range(with_reader, topic)
        assert end - first <= most
        inbox = Inbox()
        for found in read_records(with_reader, topic, first, end):
            assert found.record is not None
            inbox.add_record((topic, 0), found.offset, found.record)
        with_reader.close()
        read_s = time.monotonic() - began
        assert TABLE in inbox.captures
        inbox.mark_read(("x.public.t", 0), RECORDS)
        assert inbox.advance() < Lsn(100 + RECORDS - 1), "what the checkpoint names has not arrived"
        inbox.mark_read(("x.public.u", 0), RECORDS)
        assert inbox.advance() == Lsn(100 + RECORDS - 1)
        print(f"{RECORDS} records: consumer {consumer_s:.2f} s, applier {applier_s:.2f} s + reading {read_s:.2f} s")
        assert consumer_s < LIMIT_S and applier_s + read_s < LIMIT_S


def test_the_record_of_a_frontier(settings: ConsumerSettings, reader: Consumer) -> None:
    count = 10 * STEP
    write(settings, count, 700)
    topic = f"{settings.topic_prefix}.progress"
    newest = find_last(reader, topic, lambda found: isinstance(found.record, Progress))
    assert newest is not None and isinstance(newest.record, Progress)
    assert newest.record.frontier == Lsn(100 + count - 1)
    for number in (-5, 0, 1, STEP, 4 * STEP + 17, count - 1, count + 5):
        found = find_frontier(reader, topic, Lsn(100 + number), 0, newest.offset)
        assert found is not None and isinstance(found.record, Progress)
        nearest = min(max(number, 0), count - 1)
        assert nearest - 2 * STEP <= found.record.frontier.value - 100 <= nearest


def test_a_topic_of_an_older_version_is_read_whole(settings: ConsumerSettings, kafka: KafkaBroker) -> None:
    write(settings, 2_000, 0)
    state = read_topic_state(settings)
    assert state.progress == progress(settings.slot, 1_999, None) and set(state.captures) == {TABLE}
    applier = ApplierSettings(
        database_url=DATABASE,  # type: ignore[arg-type]
        kafka_bootstrap=kafka.bootstrap,
        topic_prefix=settings.topic_prefix,
    )
    assert find_start_offsets(applier, {}, Lsn(1_500)).offsets[f"{settings.topic_prefix}.progress"][0] == 0
