"""Connects the parts in the order of the flow and runs the loop: WAL -> change rows -> topic -> acknowledgement."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

from cdc_consumer.errors import StopRequested
from cdc_consumer.frame_handler import FrameHandler
from cdc_consumer.health import Health, Restarting, StandingBy, Streaming
from cdc_consumer.initial_copy import InitialCopy
from cdc_consumer.metrics import Metrics
from cdc_consumer.pgoutput.messages import Relation
from cdc_consumer.pgoutput.relations import RelationFacts, Relations
from cdc_consumer.progress_records import ProgressRecords
from cdc_consumer.relay import Relay
from cdc_consumer.resume import acquire_slot, ensure_publications, resumable_part, verify_acquired
from cdc_consumer.ring.hot_sources import HotSources
from cdc_consumer.ring.queue import Bounds, FrameQueue
from cdc_consumer.ring.receiver import Receiver
from cdc_consumer.ring.segments import Segments
from cdc_consumer.routes import Routes
from cdc_consumer.rows import TransactionRows
from cdc_consumer.schema_versions import SchemaVersions
from cdc_consumer.settings import ConsumerSettings
from cdc_consumer.settings_report import SettingsReport
from cdc_consumer.sinks.open_sink import find_schema, is_sink_empty, open_sink, prepare_sink, read_state
from cdc_consumer.snapshot.captures import CapturedTables, Captures
from cdc_consumer.snapshot.load import Loader
from cdc_consumer.snapshot.watch import CaptureWatch
from cdc_consumer.transaction_batcher import TransactionBatcher
from cdc_consumer.wal.catalog import Connection, connect, relation_facts
from cdc_consumer.wal.feedback import Feedback
from cdc_consumer.wal.frontier import Frontier
from cdc_consumer.wal.history import HistoryCheck
from cdc_consumer.wal.lag import LagReporter
from cdc_consumer.wal.session import ReplicationSession
from shared_schema.errors import TrickleError

log = logging.getLogger(__name__)

RECONNECT_S = 2.0
"""Pause before a session is restarted after the server or the broker became unavailable."""


def run_pipeline(
    settings: ConsumerSettings, stop: threading.Event, health: Health, metrics: Metrics, report: SettingsReport
) -> None:
    """Stream until `stop` is set. A session that fails after the process once worked is restarted."""
    worked = False
    while not stop.is_set():
        try:
            with open_relay(settings, stop, health, metrics, report) as relay:
                while not stop.is_set():
                    relay.run_once()
                relay.finish()
            log.info("stopped", extra={"slot": settings.slot})
        except StopRequested:
            return
        except TrickleError as error:
            worked = worked or isinstance(health.session, Streaming | StandingBy)
            if not (error.retryable and worked):
                raise
            health.enter(Restarting(error.problem))
            metrics.count_restart()
            log.warning("session lost, restarting it", extra={"problem": error.problem})
            stop.wait(RECONNECT_S)


@contextmanager
def open_relay(
    settings: ConsumerSettings, stop: threading.Event, health: Health, metrics: Metrics, report: SettingsReport
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
        point = acquire_slot(session, catalog, settings, stop, health)
        # Not before: a standby is not the one whose settings count.
        report.write(catalog)
        # WAL
        frontier = Frontier(point.frontier)
        lag = LagReporter(settings.wal_max_lag_bytes, 2 * settings.heartbeat_ms / 1000)
        feedback = stack.enter_context(Feedback(session, frontier, lag, stop=stop, health=health, metrics=metrics))
        hot = HotSources(settings.ring_buffer_sources, metrics)
        receiver = Receiver(session, feedback, frame_queue(settings), hot, metrics)
        stack.callback(receiver.close)
        metrics.ring_slots.set(settings.ring_buffer_slots)
        # The sink: opening it fences the previous instance, so its last progress is read after that.
        sink = open_sink(settings, receiver.while_waiting, metrics)
        stack.callback(sink.close)
        state = read_state(settings)
        point = verify_acquired(point, state)
        frontier.resume(point.frontier)
        is_new_slot = state.progress is None and not is_sink_empty(settings)
        # Captures
        tables = CapturedTables(state.captures, metrics)
        watch = CaptureWatch(database_url, settings.publications)
        heartbeat_s = settings.heartbeat_ms / 1000
        captures = Captures(tables, watch, frontier, lag, metrics, heartbeat_s=heartbeat_s, together=is_new_slot)
        stack.callback(captures.close)
        # Change rows
        routes = Routes(relations(catalog), tables, sink)
        schema_versions = SchemaVersions(
            state.progress.schemas if state.progress else {}, partial(find_schema, settings)
        )
        part = resumable_part(state.progress, settings.publications)
        rows = TransactionRows(routes, schema_versions, sink, metrics, part)
        # Topic and acknowledgement
        batcher = TransactionBatcher(
            settings=settings,
            frontier=frontier,
            sink=sink,
            records=ProgressRecords(settings, point, state.progress, schema_versions, captures),
            feedback=feedback,
            captures=captures,
            metrics=metrics,
            has_frontier=state.progress is not None,
        )
        initial_copy = InitialCopy(
            settings=settings,
            frontier=frontier,
            tables=tables,
            captures=captures,
            loader=Loader(settings, sink, feedback, metrics),
            routes=routes,
            schema_versions=schema_versions,
            batcher=batcher,
            metrics=metrics,
            is_new_slot=is_new_slot,
        )
        stack.callback(initial_copy.close)
        frame_handler = FrameHandler(
            frontier=frontier,
            history=HistoryCheck(state.progress, point.begins_at) if state.progress else None,
            rows=rows,
            sink=sink,
            batcher=batcher,
            captures=captures,
            initial_copy=initial_copy,
            feedback=feedback,
            metrics=metrics,
        )
        log.info(
            "streaming",
            extra={"slot": settings.slot, "frontier": str(point.frontier), "tables": len(state.captures)},
        )
        yield Relay(
            settings=settings,
            receiver=receiver,
            hot=hot,
            frontier=frontier,
            frame_handler=frame_handler,
            rows=rows,
            captures=captures,
            initial_copy=initial_copy,
            batcher=batcher,
            sink=sink,
            feedback=feedback,
            health=health,
        )


def frame_queue(settings: ConsumerSettings) -> FrameQueue:
    """Return an empty ring with the configured bounds."""
    bounds = Bounds(settings.ring_buffer_slots, settings.ring_spill_max_mb << 20)
    return FrameQueue(bounds, Segments(settings.ring_spill_folder or None))


def relations(catalog: Connection) -> Relations:
    """Return the registry of table schemas: the stream describes them, the catalog completes them."""

    def lookup(relation: Relation) -> RelationFacts:
        return relation_facts(catalog, relation.relid, [(c.type_oid, c.typmod) for c in relation.columns])

    return Relations(lookup)
