"""Settings -> the sink they ask for."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from cdc_consumer.metrics import Metrics
from cdc_consumer.settings import ConsumerSettings
from cdc_consumer.sinks import postgres, progress
from cdc_consumer.sinks.kafka import KafkaSink
from cdc_consumer.sinks.postgres import BufferSink
from cdc_consumer.sinks.sink import Sink, StoredState
from cdc_consumer.sinks.topics import Topics


def prepare_sink(settings: ConsumerSettings) -> None:
    """Make what must be there before anything is read or written; fails early when nobody answers."""
    match settings.mode:
        case "log":
            Topics(settings).ensure_control()
        case "sidecar" | "remote":
            postgres.prepare_buffers(settings)


def open_sink(settings: ConsumerSettings, idle: Callable[[], None], metrics: Metrics) -> Sink:
    """Take over the slot's transactions: whoever wrote for it before can write no more."""
    match settings.mode:
        case "log":
            return KafkaSink(settings, Topics(settings), idle, metrics)
        case "sidecar" | "remote":
            return BufferSink(settings, idle)


def read_state(settings: ConsumerSettings, patience_s: float = progress.READ_TIMEOUT_S) -> StoredState:
    """The progress and captures of the slot; who is not there after `patience_s` is away."""
    match settings.mode:
        case "log":
            return progress.read_topic_state(settings, patience_s)
        case "sidecar" | "remote":
            return postgres.read_buffer_state(settings)


def is_state_in_doubt(settings: ConsumerSettings) -> bool:
    """Whether more progress may be stored than can be read at this moment."""
    return settings.mode == "log" and progress.is_in_doubt(settings)


Probe = Callable[[], None]
"""Asks the place where change rows go whether it is there; raises the typed error when it is not."""


def open_probe(settings: ConsumerSettings) -> Probe:
    """For one who asks again and again."""
    match settings.mode:
        case "log":
            return Topics(settings).probe
        case "sidecar" | "remote":
            return partial(postgres.probe_buffers, settings)
