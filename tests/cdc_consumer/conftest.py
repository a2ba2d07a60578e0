"""`consumer`: a real process on a fresh database and prefix; `make_consumer` for a second one or other settings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cdc_consumer.harness import Connection, Consumer, connect
from tests.fixtures.kafka import KafkaBroker

MakeConsumer = Callable[..., Consumer]


@pytest.fixture
def make_consumer(database: str, kafka: KafkaBroker, topic_prefix: str, tmp_path: Path) -> Iterator[MakeConsumer]:
    made: list[Consumer] = []

    def make(**settings: object) -> Consumer:
        folder = tmp_path / str(len(made))
        folder.mkdir()
        consumer = Consumer(database, kafka.bootstrap, topic_prefix, folder, **settings)
        made.append(consumer)
        return consumer

    yield make
    for consumer in made:
        consumer.end()


@pytest.fixture
def consumer(make_consumer: MakeConsumer) -> Consumer:
    return make_consumer()


@pytest.fixture
def db(database: str) -> Iterator[Connection]:
    """A session of the test's own; the publication is there and empty."""
    with connect(database) as connection:
        connection.execute("CREATE PUBLICATION pg_trickle WITH (publish_via_partition_root = true)")
        yield connection
