"""Connects the parts and runs the loop: WAL -> messages -> change rows -> Kafka transactions -> acknowledgement."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from cdc_consumer.errors import StopRequested
from cdc_consumer.metrics import Metrics
from cdc_consumer.pgoutput.messages import Relation
from cdc_consumer.pgoutput.relations import RelationFacts, Relations
from cdc_consumer.ports import Ports
from cdc_consumer.relay import Relay
from cdc_consumer.resume import acquire_slot, ensure_publications, verify_acquired
from cdc_consumer.ring.hot_sources import HotSources
from cdc_consumer.ring.queue import Bounds, FrameQueue
from cdc_consumer.ring.receiver import Receiver
from cdc_consumer.ring.segments import Segments
from cdc_consumer.routes import Routes
from cdc_consumer.schema_versions import SchemaVersions
from cdc_consumer.settings import ConsumerSettings
from cdc_consumer.settings_report import SettingsReport
from cdc_consumer.sinks.open_sink import open_sink, prepare_sink, read_state
from cdc_consumer.snapshot.captures import Captures
from cdc_consumer.snapshot.load import Loader
from cdc_consumer.snapshot.watch import CaptureWatch
from cdc_consumer.wal.catalog import Connection, connect, relation_facts
from cdc_consumer.wal.feedback import Feedback
from cdc_consumer.wal.frontier import Frontier
from cdc_consumer.wal.lag import LagReporter
from cdc_consumer.wal.session import ReplicationSession
from shared_schema.errors import TrickleError

log = logging.getLogger(__name__)

RECONNECT_S = 2.0
"""Pause before a session is restarted after the server or the broker became unavailable."""


def run_pipeline(settings: ConsumerSettings, stop: threading.Event, metrics: Metrics, report: SettingsReport) -> None:
    """Stream until `stop` is set. A session that fails after the process once worked is restarted."""
    worked = False
    while not stop.is_set():
        try:
            with open_relay(settings, stop, metrics, report) as relay:
                while not stop.is_set():
                    relay.run_once()
                relay.finish()
            log.info("stopped", extra={"slot": settings.slot})
        except StopRequested:
            return
        except TrickleError as error:
            worked = worked or metrics.settled or metrics.standby
            if not (error.retryable and worked):
                raise
            metrics.lose_session(error.problem)
            log.warning("session lost, restarting it", extra={"problem": error.problem})
            stop.wait(RECONNECT_S)


@contextmanager
def open_relay(
    settings: ConsumerSettings, stop: threading.Event, metrics: Metrics, report: SettingsReport
) -> Iterator[Relay]:
    """Connect to source and sink, acquire the slot, fence other writers, and connect the parts."""
    database_url = settings.database_url.get_secret_value()
    with ExitStack() as stack:
        session = stack.enter_context(
            ReplicationSession(database_url, stop.is_set, sender_timeout_s=settings.wal_sender_timeout_s)
        )
        catalog = stack.enter_context(connect(database_url))
        prepare_sink(settings)
        ensure_publications(catalog, settings.publications)
        point = acquire_slot(session, catalog, settings, stop, metrics)
        # Not before: a standby is not the one whose settings count.
        report.write(catalog)
        frontier = Frontier(point.frontier)
        metrics.ring_slots.set(settings.ring_buffer_slots)
        lag = LagReporter(settings.wal_max_lag_bytes, 2 * settings.heartbeat_ms / 1000)
        feedback = stack.enter_context(Feedback(session, frontier, metrics, stop, lag))
        receiver = Receiver(
            session, feedback, frame_queue(settings), HotSources(settings.ring_buffer_sources, metrics), metrics
        )
        stack.callback(receiver.close)
        sink = open_sink(settings, receiver.while_waiting, metrics)
        stack.callback(sink.close)
        state = read_state(settings)
        point = verify_acquired(point, state)
        if state.progress is not None:
            sink.restore_offsets(state.progress)
        frontier.resume(point.frontier)
        is_new_slot = state.progress is None and not sink.is_empty
        watch = CaptureWatch(database_url, settings.publications, together=is_new_slot)
        captures = Captures(state.captures, watch, frontier, settings.heartbeat_ms / 1000, metrics)
        stack.callback(captures.close)
        routes = Routes(relations(catalog), captures, sink)
        loader = Loader(settings, sink, feedback, metrics)
        schema_versions = SchemaVersions(state.progress.schemas if state.progress else {}, sink.schema)
        ports = Ports(receiver, feedback, sink, routes, captures, loader, schema_versions, metrics)
        log.info(
            "streaming",
            extra={"slot": settings.slot, "frontier": str(point.frontier), "tables": len(state.captures)},
        )
        relay = Relay(settings, point, frontier, ports, state.progress, is_new_slot=is_new_slot)
        stack.callback(relay.close)
        yield relay


def frame_queue(settings: ConsumerSettings) -> FrameQueue:
    """Return an empty ring with the configured bounds."""
    bounds = Bounds(settings.ring_buffer_slots, settings.ring_spill_max_mb << 20)
    return FrameQueue(bounds, Segments(settings.ring_spill_folder or None))


def relations(catalog: Connection) -> Relations:
    """Return the registry of table schemas: the stream describes them, the catalog completes them."""

    def lookup(relation: Relation) -> RelationFacts:
        return relation_facts(catalog, relation.relid, [(c.type_oid, c.typmod) for c in relation.columns])

    return Relations(lookup)
