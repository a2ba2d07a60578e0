"""Takes the settings, returns the sink for the configured mode."""

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
from shared_schema.table_schema import TableSchema
from shared_schema.topics import progress_topic


def prepare_sink(settings: ConsumerSettings) -> None:
    """Create the topics or tables that must exist before anything else; fails early if the sink does not answer."""
    match settings.mode:
        case "log":
            Topics(settings).ensure_control()
        case "sidecar" | "remote":
            postgres.prepare_buffers(settings)


def open_sink(settings: ConsumerSettings, idle: Callable[[], None], metrics: Metrics) -> Sink:
    """Open the sink and take over the slot's transactions: the previous writer of the slot is fenced."""
    match settings.mode:
        case "log":
            return KafkaSink(settings, Topics(settings), idle, metrics)
        case "sidecar" | "remote":
            return BufferSink(settings, idle)


def read_state(settings: ConsumerSettings, patience_s: float = progress.READ_TIMEOUT_S) -> StoredState:
    """Return the progress and captures of the slot; a broker that does not answer within `patience_s` is an error."""
    match settings.mode:
        case "log":
            return progress.read_topic_state(settings, patience_s)
        case "sidecar" | "remote":
            return postgres.read_buffer_state(settings)


def is_sink_empty(settings: ConsumerSettings) -> bool:
    """Return whether nothing was ever published here, so that no reader can know a table already."""
    match settings.mode:
        case "log":
            return Topics(settings).end_offset(progress_topic(settings.topic_prefix), 0) == 0
        case "sidecar" | "remote":
            return postgres.are_buffers_empty(settings)


def find_schema(settings: ConsumerSettings, fingerprint: str) -> TableSchema | None:
    """Return a schema version that an earlier instance used; None if it cannot be found."""
    match settings.mode:
        case "log":
            return progress.read_schema(settings, fingerprint)
        case "sidecar" | "remote":
            return postgres.read_buffer_schema(settings, fingerprint)


def is_state_in_doubt(settings: ConsumerSettings) -> bool:
    """Return whether more progress may be stored than can be read at the moment."""
    return settings.mode == "log" and progress.is_in_doubt(settings)


Probe = Callable[[], None]
"""Tests whether the sink answers; raises the typed error if it does not."""


def open_probe(settings: ConsumerSettings) -> Probe:
    """Return a probe that can be called repeatedly."""
    match settings.mode:
        case "log":
            return Topics(settings).probe
        case "sidecar" | "remote":
            return partial(postgres.probe_buffers, settings)
