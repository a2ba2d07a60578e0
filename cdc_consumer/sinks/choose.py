"""Settings -> the sink they ask for."""

from __future__ import annotations

from collections.abc import Callable

from cdc_consumer.settings import ConsumerSettings
from cdc_consumer.sinks import postgres, progress
from cdc_consumer.sinks.kafka import Publisher
from cdc_consumer.sinks.postgres import BufferSink
from cdc_consumer.sinks.sink import Sink, StoredState
from cdc_consumer.sinks.topics import Topics


def prepare_sink(settings: ConsumerSettings) -> None:
    """Make what must be there before anything is read or written; fails early when nobody answers."""
    match settings.mode:
        case "log":
            Topics(settings).ensure_control()
        case "sidecar" | "remote":
            postgres.prepare(settings)


def open_sink(settings: ConsumerSettings, idle: Callable[[], None]) -> Sink:
    """Take over the slot's transactions: whoever wrote for it before can write no more."""
    match settings.mode:
        case "log":
            return Publisher(settings, Topics(settings), idle)
        case "sidecar" | "remote":
            return BufferSink(settings, idle)


def read_state(settings: ConsumerSettings) -> StoredState:
    """The progress and captures of the slot."""
    match settings.mode:
        case "log":
            return progress.read_state(settings)
        case "sidecar" | "remote":
            return postgres.read_state(settings)
