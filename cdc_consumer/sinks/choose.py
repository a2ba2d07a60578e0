"""Settings -> the sink they ask for."""

from __future__ import annotations

from collections.abc import Callable

from cdc_consumer.settings import ConsumerSettings
from cdc_consumer.sinks import progress
from cdc_consumer.sinks.kafka import Publisher
from cdc_consumer.sinks.sink import Sink, StoredState
from cdc_consumer.sinks.topics import Topics


def prepare_sink(settings: ConsumerSettings) -> None:
    """Make what must be there before anything is read or written; fails early when nobody answers."""
    Topics(settings).ensure_control()


def open_sink(settings: ConsumerSettings, idle: Callable[[], None]) -> Sink:
    """Take over the slot's transactions: whoever wrote for it before can write no more."""
    return Publisher(settings, Topics(settings), idle)


def read_state(settings: ConsumerSettings) -> StoredState:
    """The progress and captures of the slot."""
    return progress.read_state(settings)
