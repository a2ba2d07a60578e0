"""The status updates to the server: received is not durable."""

from __future__ import annotations

import threading
from typing import cast

import pytest

from cdc_consumer.errors import StopRequested
from cdc_consumer.health import Health
from cdc_consumer.metrics import Metrics
from cdc_consumer.wal.feedback import Feedback
from cdc_consumer.wal.frontier import Frontier
from cdc_consumer.wal.lag import LagReporter
from cdc_consumer.wal.session import ReplicationSession
from shared_schema.lsn import Lsn


class FakeSession:
    def __init__(self) -> None:
        self.sent: list[tuple[Lsn, Lsn]] = []

    def send_status(self, written: Lsn, flushed: Lsn) -> None:
        self.sent.append((written, flushed))


def feedback(frontier: Frontier, stop: threading.Event) -> tuple[Feedback, FakeSession]:
    session = FakeSession()
    health = Health()
    lag = LagReporter(65_536, 20)
    made = Feedback(cast(ReplicationSession, session), frontier, lag, stop=stop, health=health, metrics=Metrics(health))
    return made, session


def test_only_what_is_published_is_acknowledged() -> None:
    frontier = Frontier(Lsn(100))
    speaker, session = feedback(frontier, threading.Event())
    frontier.begin(Lsn(110))
    frontier.commit(Lsn(120))
    speaker.send()
    frontier.mark_published(Lsn(120), Lsn(120))
    speaker.send()
    assert session.sent == [(Lsn(120), Lsn(100)), (Lsn(120), Lsn(120))]


def test_reports_are_not_sent_at_every_turn() -> None:
    speaker, session = feedback(Frontier(Lsn(100)), threading.Event())
    for _ in range(100):
        speaker.send_if_due()
    assert len(session.sent) == 1


def test_a_wait_ends_when_the_process_is_asked_to_stop() -> None:
    stop = threading.Event()
    speaker, _ = feedback(Frontier(Lsn(100)), stop)
    speaker.while_waiting()
    stop.set()
    with pytest.raises(StopRequested):
        speaker.while_waiting()
