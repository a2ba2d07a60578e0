"""`consumer`: a real process on a new database and prefix; `make_consumer` for a second one or other settings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cdc_consumer.harness import Connection, Consumer, connect
from tests.fixtures.kafka import KafkaBroker

MakeConsumer = Callable[..., Consumer]


MODES = pytest.mark.parametrize("mode", ["log", "sidecar", "remote"], indirect=True)
"""For tests of guarantees of all modes."""

LOG_AND_TABLES = pytest.mark.parametrize("mode", ["log", "remote"], indirect=True)
"""For tests where sidecar, the same sink at another address, would test nothing new."""


@pytest.fixture
def mode(request: pytest.FixtureRequest) -> str:
    return str(getattr(request, "param", "log"))


@pytest.fixture
def make_consumer(
    request: pytest.FixtureRequest, mode: str, database: str, kafka: KafkaBroker, topic_prefix: str, tmp_path: Path
) -> Iterator[MakeConsumer]:
    made: list[Consumer] = []
    given = {} if mode == "log" else {"mode": mode}
    if mode == "remote":
        given["target_url"] = request.getfixturevalue("second_database")

    def make(**settings: object) -> Consumer:
        folder = tmp_path / str(len(made))
        folder.mkdir()
        consumer = Consumer(database, kafka.bootstrap, topic_prefix, folder, **(given | settings))
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
    """Yield a session of the test's own; the publication exists and is empty."""
    with connect(database) as connection:
        connection.execute("CREATE PUBLICATION pg_trickle")
        yield connection
