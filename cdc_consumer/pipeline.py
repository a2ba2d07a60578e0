"""Connects the parts in the order of the flow and runs the loop: WAL -> change rows -> topic -> acknowledgement."""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial

from cdc_consumer.catalog_check import CatalogCheck
from cdc_consumer.errors import (
    CaptureOutdated,
    OversizeMessage,
    SchemaRefused,
    StopRequested,
    TableUnreadable,
    TopicUnfit,
    UnreadableValue,
)
from cdc_consumer.frame_handler import FrameHandler
from cdc_consumer.health import Health, Restarting, StandingBy, Streaming
from cdc_consumer.initial_copy import InitialCopy
from cdc_consumer.metrics import Metrics
from cdc_consumer.pgoutput.messages import Relation
from cdc_consumer.pgoutput.relations import RelationFacts, Relations
from cdc_consumer.progress_records import ProgressRecords
from cdc_consumer.relay import Relay
from cdc_consumer.resume import (
    acquire_slot,
    check_topics,
    ensure_publications,
    find_outdated,
    find_unrecorded,
    resumable_part,
    verify_acquired,
)
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
from cdc_consumer.sinks.sink import StoredState
from cdc_consumer.snapshot.captured_tables import CapturedTables
from cdc_consumer.snapshot.captures import Captures
from cdc_consumer.snapshot.comparison import CatalogComparison
from cdc_consumer.snapshot.load import Loader
from cdc_consumer.snapshot.watch import CaptureWatch
from cdc_consumer.transaction_batcher import TransactionBatcher
from cdc_consumer.tree_news import NewsReader
from cdc_consumer.wal.catalog import (
    Connection,
    connect,
    message_key,
    partition_ancestors,
    publish_leaves,
    relation_facts,
)
from cdc_consumer.wal.compared import ComparedPositions
from cdc_consumer.wal.feedback import Feedback
from cdc_consumer.wal.frontier import Frontier
from cdc_consumer.wal.history import HistoryCheck
from cdc_consumer.wal.lag import LagReporter
from cdc_consumer.wal.log_clock import LogClock
from cdc_consumer.wal.session import ReplicationSession
from shared_schema.errors import TrickleError
from shared_schema.lsn import Lsn
from shared_schema.table_schema import TableId
from shared_schema.topics import table_of_topic

log = logging.getLogger(__name__)

RECONNECT_S = 2.0
"""Pause before a session is restarted after the server or the broker became unavailable."""


def run_pipeline(
    settings: ConsumerSettings,
    stop: threading.Event,
    health: Health,
    metrics: Metrics,
    report: SettingsReport,
    *,
    clock: LogClock,
) -> None:
    """Stream until `stop` is set. A session that fails after the process once worked is restarted."""
    worked = False
    refused: dict[TableId, str] = {}
    overdue: set[TableId] = set()
    while not stop.is_set():
        try:
            with open_relay(
                settings, stop, health, metrics, report, refused=refused, overdue=overdue, clock=clock
            ) as relay:
                while not stop.is_set():
                    relay.run_once()
                relay.finish()
            log.info("stopped", extra={"slot": settings.slot})
        except StopRequested:
            return
        except (OversizeMessage, SchemaRefused, TableUnreadable, TopicUnfit, UnreadableValue) as error:
            worked = worked or isinstance(health.session, Streaming)
            # The transaction was aborted. The next session goes on without this table, and says so to its readers.
            match error:
                case OversizeMessage(topic=topic):
                    table = table_of_topic(settings.topic_prefix, topic or "")
                case _:
                    table = error.table
            if table is None or table in refused:
                raise
            refused[table] = f"{error.problem}; {error.hint}"
            health.enter(Restarting(error.problem))
            metrics.count_restart()
        except CaptureOutdated as error:
            worked = True
            overdue.add(error.table)
            health.enter(Restarting(error.problem))
            metrics.count_restart()
            log.warning("rows changed without being in the log, restarting", extra={"problem": error.problem})
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
    settings: ConsumerSettings,
    stop: threading.Event,
    health: Health,
    metrics: Metrics,
    report: SettingsReport,
    *,
    refused: Mapping[TableId, str],
    overdue: Collection[TableId],
    clock: LogClock,
) -> Iterator[Relay]:
    """Connect to source and sink, acquire the slot, fence other writers, and connect the parts.

    `refused` are tables that have rows which the sink does not accept, and the reason; `overdue` are tables whose rows
    changed without being in the log, and of which nobody requested a copy.
    """
    database_url = settings.database_url.get_secret_value()
    with ExitStack() as stack:
        session = stack.enter_context(
            ReplicationSession(database_url, stop.is_set, sender_timeout_s=settings.wal_sender_timeout_s)
        )
        catalog = stack.enter_context(connect(database_url))
        prepare_sink(settings)
        check_topics(read_state(settings), settings)
        ensure_publications(catalog, settings.publications)
        point = acquire_slot(session, catalog, settings, stop, health)
        # Not before: a standby is not the one whose settings count.
        report.write(catalog)
        publish_leaves(catalog, settings.publications)
        # WAL
        frontier = Frontier(point.frontier)
        lag = LagReporter(settings.wal_max_lag_bytes, 2 * settings.heartbeat_ms / 1000)
        feedback = stack.enter_context(Feedback(session, frontier, lag, stop=stop, health=health, metrics=metrics))
        hot = HotSources(settings.ring_buffer_sources, settings.ring_buffer_threshold_writes_per_sec, metrics)
        receiver = Receiver(session, feedback, frame_queue(settings), hot, health=health, metrics=metrics)
        stack.callback(receiver.close)
        metrics.ring_slots.set(settings.ring_buffer_slots)
        # The sink: opening it fences the previous instance, so its last progress is read after that.
        sink = open_sink(settings, receiver.while_waiting, metrics)
        stack.callback(sink.close)
        state = read_state(settings)
        check_topics(state, settings)
        point = verify_acquired(point, state)
        frontier.resume(point.frontier)
        clock.resume(point.frontier)
        is_new_slot = state.progress is None and not is_sink_empty(settings)
        # Captures
        outdated = find_outdated(catalog, settings, state, overdue)
        left = hold_frontier(frontier, state, {*refused, *find_unrecorded(catalog, state), *outdated})
        tables = CapturedTables(state.captures, metrics, left)
        if state.progress is not None and tables.held_at is not None:
            frontier.stay(state.progress.frontier)
        topic_prefix = settings.topic_prefix if settings.mode == "log" else None
        watch = CaptureWatch(database_url, settings.publications, topic_prefix, refused)
        heartbeat_s = settings.heartbeat_ms / 1000
        captures = Captures(
            tables,
            watch,
            frontier,
            lag,
            metrics,
            heartbeat_s=heartbeat_s,
            together=is_new_slot,
            unfinished=left,
        )
        stack.callback(captures.close)
        # Change rows
        schema_versions = SchemaVersions(
            state.progress.schemas if state.progress else {}, partial(find_schema, settings)
        )
        routes = Routes(
            relations(catalog),
            tables,
            sink,
            schema_versions,
            partial(partition_ancestors, catalog, settings.publications),
        )
        part = resumable_part(state.progress, settings.publications)
        rows = TransactionRows(routes, tables, schema_versions, sink, metrics=metrics, part=part)
        # Topic and acknowledgement
        compared = ComparedPositions()
        batcher = TransactionBatcher(
            settings=settings,
            frontier=frontier,
            sink=sink,
            records=ProgressRecords(settings, point, state.progress, schema_versions, captures=captures, tables=tables),
            feedback=feedback,
            captures=captures,
            metrics=metrics,
            health=health,
            clock=clock,
            compared=compared,
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
        catalog_check = CatalogCheck(
            tables=tables,
            captures=captures,
            routes=routes,
            frontier=frontier,
            batcher=batcher,
            comparison=CatalogComparison(database_url, settings.publications),
            compared=compared,
            readers_are_here=settings.mode == "sidecar",
        )
        stack.callback(catalog_check.close)
        frame_handler = FrameHandler(
            frontier=frontier,
            history=HistoryCheck(state.progress, point.begins_at) if state.progress else None,
            rows=rows,
            sink=sink,
            batcher=batcher,
            captures=captures,
            initial_copy=initial_copy,
            feedback=feedback,
            news=NewsReader(partial(message_key, catalog)),
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
            catalog_check=catalog_check,
            batcher=batcher,
            sink=sink,
            feedback=feedback,
            health=health,
        )


def hold_frontier(frontier: Frontier, state: StoredState, wrong: Collection[TableId]) -> frozenset[TableId]:
    """Hold the frontier while readers trust tables that are not as they seem -> these tables.

    Half of a new copy of them is on the topics, or they are `wrong`: their rows are refused and their readers were not
    told yet, or they must be copied again.
    """
    if state.progress is None:
        return frozenset()
    unfinished = state.progress.unfinished
    trusted = {table for table, capture in state.captures.items() if table in wrong and not capture.stopped}
    if trusted:
        frontier.hold(state.progress.frontier, Lsn(state.progress.frontier.value + 1))
    elif unfinished is not None:
        frontier.hold(state.progress.frontier, unfinished.lsn)
    return frozenset(trusted.union(unfinished.tables if unfinished else ()))


def frame_queue(settings: ConsumerSettings) -> FrameQueue:
    """Return an empty ring with the configured bounds."""
    bounds = Bounds(settings.ring_buffer_slots, settings.ring_spill_max_mb << 20)
    return FrameQueue(bounds, Segments(settings.ring_spill_folder or None))


def relations(catalog: Connection) -> Relations:
    """Return the registry of table schemas: the stream describes them, the catalog completes them."""

    def lookup(relation: Relation) -> RelationFacts:
        return relation_facts(catalog, relation.relid, [(c.type_oid, c.typmod) for c in relation.columns])

    return Relations(lookup)
