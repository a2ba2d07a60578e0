"""Settings in, the parts of a running applier out. It decides nothing and runs nothing."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from pyspark.sql import SparkSession

from applier.arrange.traces import Traces
from applier.catalog.beats import BeatStore
from applier.catalog.catalog import Catalog
from applier.catalog.checkpoints import Manifest
from applier.catalog.database import Connection, Database
from applier.catalog.service import ServiceState, open_alert_sender
from applier.errors import Infrastructure
from applier.ingest import stream
from applier.ingest.beat_reader import BeatReader
from applier.ingest.inbox import Inbox
from applier.ingest.ingest import Ingest
from applier.ingest.schemas import SchemaReader
from applier.ingest.source_clock import SourceClock
from applier.ingest.source_times import SourceTimes
from applier.ingest.start_offsets import find_start_offsets
from applier.plan.depth import Thresholds
from applier.plan.limits import PlanLimits
from applier.refresh.alter import Alterations
from applier.refresh.computing.computer import Computer
from applier.refresh.computing.full_in_postgres import FullInPostgres
from applier.refresh.computing.long_refreshes import LongRefreshes
from applier.refresh.computing.worker_pool import WorkerPool
from applier.refresh.failure_policy import FailurePolicy
from applier.refresh.holding.fuses import Fuses
from applier.refresh.holding.holds import Holds
from applier.refresh.holding.readiness import Readiness
from applier.refresh.intake import Intake
from applier.refresh.method.cost_cache import CostCache, model_of
from applier.refresh.method.cost_model import CostModel, PredictionLimits
from applier.refresh.method.read_fuses import ReadFuses
from applier.refresh.method.refresh_planner import RefreshLimits, RefreshPlanner
from applier.refresh.planning.plan_stream_table import StreamTablePlanner
from applier.refresh.planning.plans import StreamTablePlans
from applier.refresh.promises import RECALLED_REFRESHES, Promises, PromiseSettings
from applier.refresh.scheduler import Scheduler
from applier.refresh.stream_tables import StreamTables
from applier.refresh.vouching.captured_sources import CapturedSources
from applier.refresh.vouching.server_history import Loss, ServerHistory
from applier.refresh.vouching.vouch import Vouch
from applier.refresh.writing.catch_up import CatchUp, LatestCheckpoint
from applier.refresh.writing.long_writes import LongWrites
from applier.refresh.writing.result_writer import ResultWriter
from applier.refresh.writing.writer import RefreshWriter
from applier.runtime.beats import Beats
from applier.runtime.checkpointer import Checkpointer, CheckpointSettings
from applier.runtime.condition import ApplierCondition
from applier.runtime.head_start import HeadStart
from applier.runtime.maintenance import Maintenance, MaintenanceSettings
from applier.runtime.preload import Preload
from applier.runtime.publishing import Publishing, open_topics
from applier.runtime.requests import Requests, limit_waits
from applier.runtime.self_check import SelfCheck
from applier.runtime.start_stages import StartStages
from applier.runtime.stream_table_watch import AlertThresholds
from applier.settings import ApplierSettings
from applier.sinks.commit_to_visible import CommitToVisible
from applier.sinks.delta_lake.sink import DeltaSink
from applier.sinks.downstream import Downstream
from applier.sinks.kafka.publisher import TopicPublisher
from applier.sinks.postgres.committed_rows import CommittedRows
from applier.sinks.postgres.progressive import EarlyParts
from applier.sinks.postgres.sink import PostgresSink
from applier.sinks.postgres.transaction import TICK_LOCK_TIMEOUT_MS, Cursor, WriteSession, prepare_write_session
from applier.sinks.staging.staged_delta import drop_leftovers
from applier.sinks.staging.staging import Staging
from applier.spark.jars import SPARK_JARS, ensure
from applier.spark.scratch import Scratch
from applier.spark.session import count_cores, spark_session, stand_back
from applier.state.durable_states import DurableStates
from applier.state.history import TraceHistory
from applier.state.state_files import StateFiles
from applier.state.store import StateStore
from applier.trace.store import TraceStore, noted_manifest
from applier.unexpected import to_trickle_error
from shared_schema.lsn import Lsn
from shared_schema.slot_lag import SlotLagThresholds

log = logging.getLogger(__name__)

WARM_UP_RUNS = 3

_WARM_UP = """
SELECT k, count(*) AS n, sum(v) AS total, min(t) AS first, max(d) AS last
FROM VALUES (1, 2L, 'a', 1.5BD), (2, 3L, 'b', 2.5BD) AS a(k, v, t, d) JOIN VALUES (1), (2) AS b(j) ON a.k = b.j
WHERE v > 1 GROUP BY k
UNION ALL SELECT k, v, v, NULL, NULL FROM VALUES (1, 2L) AS c(k, v)
"""


@dataclass(frozen=True)
class ApplierParts:
    """The parts of a running applier; whoever needs some of them is given those."""

    head_start: HeadStart
    spark: SparkSession
    intake: Intake
    ingest: Ingest
    vouch: Vouch
    history: ServerHistory
    alterations: Alterations
    tables: StreamTables
    planner: RefreshPlanner
    computer: Computer
    writer: RefreshWriter
    failures: FailurePolicy
    downstream: Downstream
    delta_sink: DeltaSink | None
    store: TraceStore
    latest_checkpoint: LatestCheckpoint


class Wiring:
    """Builds each part once. `cleanup` closes what it opens, in the opposite order.

    `settings` returns the present settings; those that need a restart are read once, here.
    """

    def __init__(
        self,
        settings: Callable[[], ApplierSettings],
        *,
        stopping: threading.Event,
        cleanup: ExitStack,
        runner: FullInPostgres,
        stages: StartStages,
        confirm: Callable[[], None] = lambda: None,
    ) -> None:
        self._stages = stages
        self._visible = CommitToVisible(SourceTimes(), SourceClock())
        self._settings = settings
        self._start = settings()
        self._url = self._start.database_url.get_secret_value()
        self._stopping = stopping
        self._cleanup = cleanup
        self._runner = runner
        self._confirm = confirm
        self._spark: SparkSession | None = None
        start = self._start
        self._alerts = open_alert_sender(lambda: self._settings().schedule_alert_cooldown_seconds)
        limits = PlanLimits(start.max_plan_nodes, start.max_plan_text, start.max_planning_s)
        self._thresholds = Thresholds(start.deep_join_l0_scan_threshold, start.part3_max_scan_count, limits)

    def database(self, prepare: Callable[[Connection], None] | None = None) -> Database:
        """Return a connection of its own, prepared each time it is opened."""
        database = Database(self._url, prepare)
        self._cleanup.callback(database.close)
        return database

    def catalog(self, database: Database) -> Catalog:
        """Return the catalog over a connection."""
        return Catalog(database, self._alerts)

    def beat_database(self) -> Database:
        """Return a connection of its own for beats."""
        return self.database(_never_wait)

    def spark(self) -> SparkSession:
        """Return the session, started on first use."""
        if self._spark is None:
            settings = self._start
            scratch = Scratch(settings.scratch_dir, "spark")
            self._cleanup.callback(scratch.remove)
            self._spark = spark_session(
                ensure(SPARK_JARS),
                master=settings.spark_master,
                driver_memory=settings.spark_driver_memory,
                scratch=scratch.path,
            )
            self._cleanup.callback(self._spark.stop)
        return self._spark

    def warm_up(self) -> None:
        """Start Spark and run a small query of every usual kind, so that its classes are loaded and compiled."""
        spark = self.spark()
        for _ in range(WARM_UP_RUNS):
            spark.sql(_WARM_UP).toArrow()

    def parts(self, catalog: Catalog) -> ApplierParts:
        """Build Spark, traces, state and sinks from the last checkpoint; the head start has to be finished."""
        settings = self._start
        manifest, loss = self._load_manifest(catalog)
        inbox = Inbox(
            manifest.frontier, manifest.offsets, self._visible.times, sources_elsewhere=settings.sources_elsewhere
        )
        table_planner = StreamTablePlanner(self.database(_wait_briefly), catalog, self._thresholds)
        delta_sink = self._delta_sink() if settings.delta_sink else None
        open_publisher = self._open_publisher if settings.publish_sink else None
        downstream = Downstream(open_publisher, delta_sink, lambda: self._settings().max_buffer_rows)
        head_start = HeadStart(self._stopping, self._stages)
        self._cleanup.callback(head_start.close)
        topics = head_start.run("topics", self._wait_for_topics)
        positions, frontier = inbox.positions(), inbox.frontier
        start_offsets = head_start.run("offsets", lambda: find_start_offsets(settings, positions, frontier), topics)
        if downstream.topics is not None:
            # The broker answers by then: otherwise nobody could end the start for a minute.
            head_start.run("publisher", partial(open_topics, downstream.topics), topics)
        planned = head_start.run("planning", lambda: self._plan_ahead(table_planner))
        if delta_sink is not None:
            head_start.run("delta", lambda: delta_sink.recall(list(table_planner.ahead.tables.values())), planned)
        with head_start.first_error(), self._stages.stage("jvm"):
            spark = self.spark()
        with head_start.first_error():
            topics.result()
        schemas = SchemaReader(settings.topic_prefix, stream.client_options(settings))
        self._cleanup.callback(schemas.close)
        store = TraceStore(spark, settings.state_dir)
        with self._stages.stage("traces"):
            traces = Traces(spark, store.load(manifest), settings.memory_budget_mb)
        drop_leftovers(self._url)
        inbox_lock = threading.Condition()
        intake = Intake(inbox, inbox_lock, traces, schemas.copied, settings.sources_elsewhere)
        promises = Promises(self._promise_settings, catalog.service.alert)
        promises.recall(catalog.history.read_recent(RECALLED_REFRESHES))
        scheduler = Scheduler(lambda: self._settings().max_consecutive_errors, promises)
        tables = StreamTables(
            StreamTablePlans(table_planner),
            Readiness(catalog.sources, traces, settings.sources_elsewhere),
            scheduler,
            Holds(catalog, traces, lambda: self._settings().watermark_holdback_timeout),
        )
        sources = CapturedSources(catalog, traces, settings.sources_elsewhere)
        computer = self._computer(spark, traces, intake)
        if loss is None:
            computer.states.adopt(manifest.states, manifest.frontier)
        latest = LatestCheckpoint(manifest)
        history = ServerHistory(
            None if settings.sources_elsewhere else catalog.frontiers,
            lambda: intake.progress,
            loss,
            # From now on the catalog agrees with the traces again.
            lambda: catalog.checkpoints.save(settings.slot, latest.manifest),
        )
        fuses = Fuses(traces, catalog.fuses, lambda: self._settings().fuse_default_ceiling, scheduler.replaced_by)
        session = WriteSession(self.database(prepare_write_session(TICK_LOCK_TIMEOUT_MS)))
        results = self._result_writer(session, downstream)
        writer = RefreshWriter(
            results,
            self._long_writes(downstream, intake),
            CatchUp(downstream, results.committed, computer, latest),
            catalog,
            self._visible,
        )
        return ApplierParts(
            head_start=head_start,
            spark=spark,
            intake=intake,
            ingest=Ingest(spark, settings, inbox, inbox_lock, schemas, find_first=start_offsets.result),
            vouch=Vouch(catalog, table_planner, tables.plans, sources, history),
            history=history,
            alterations=Alterations(catalog, session, table_planner, tables, computer, writer, sources, fuses),
            tables=tables,
            planner=RefreshPlanner(
                traces,
                self._refresh_limits,
                self._costs(catalog),
                fuses,
                ReadFuses(fuses, catalog.stream_tables.base_sources),
                catalog.frontiers.wake,
            ),
            computer=computer,
            writer=writer,
            failures=FailurePolicy(scheduler, catalog),
            downstream=downstream,
            delta_sink=delta_sink,
            store=store,
            latest_checkpoint=latest,
        )

    def _plan_ahead(self, planner: StreamTablePlanner) -> None:
        """Make plans for the first tick; without them it makes them itself, and reports what is wrong."""
        # Connections of their own: those of the ticks are for one thread.
        with closing(Database(self._url, _wait_briefly)) as planning, closing(Database(self._url)) as catalog:
            try:
                ahead = StreamTablePlanner(planning, Catalog(catalog), self._thresholds)
                planner.ahead = ahead.plan_ahead(self._stopping)
            except Exception as error:
                problem = to_trickle_error("planning ahead", error).problem
                log.warning("stream tables are planned later", extra={"error": problem})

    def _load_manifest(self, catalog: Catalog) -> tuple[Manifest, Loss | None]:
        """Return the last manifest: that of the catalog, unless the traces have a later one, which is then a loss."""
        stored = catalog.checkpoints.load(self._start.slot)
        noted = noted_manifest(self._start.state_dir, catalog.checkpoints.installation())
        if noted is None or not stored.frontier or noted.frontier <= stored.frontier:
            return stored, None
        problem = (
            f"the last checkpoint in the catalog is at {stored.frontier}, that of the traces at {noted.frontier}: the "
            "server was restored to an older state"
        )
        is_comparable = not self._start.sources_elsewhere
        return noted, Loss(problem, noted.frontier, is_certain=False) if is_comparable else None

    def _computer(self, spark: SparkSession, traces: Traces, intake: Intake) -> Computer:
        settings = self._start
        return Computer(
            spark=spark,
            traces=traces,
            states=StateStore(spark, TraceHistory(traces), StateFiles.below(settings.state_dir)),
            workers=self._workers("compute"),
            long_refreshes=LongRefreshes(self._workers("long", partial(stand_back, spark)), intake.wake),
            in_postgres=self._runner,
            open_early_parts=lambda: EarlyParts(Database(self._url, self._prepare_writes), self._batch_size),
            staging=Staging(self._url, settings.staging_rows),
        )

    def _workers(self, name: str, prepare: Callable[[], None] = lambda: None) -> WorkerPool:
        workers = WorkerPool(lambda: self._settings().max_parallel_workers, name, prepare)
        self._cleanup.callback(workers.close)
        return workers

    def _result_writer(
        self, session: WriteSession, downstream: Downstream, confirm: Callable[[Cursor], None] | None = None
    ) -> ResultWriter:
        rows = self._start.staging_rows
        sink = PostgresSink(session, self._batch_size, rows, self._visible.times, confirm)
        return ResultWriter(sink, downstream, CommittedRows(session.database, rows))

    def _long_writes(self, downstream: Downstream, intake: Intake) -> LongWrites:
        def open_writer(confirm: Callable[[Cursor], None]) -> ResultWriter:
            return self._result_writer(WriteSession(Database(self._url, self._prepare_writes)), downstream, confirm)

        return LongWrites(self._workers("write"), intake.wake, open_writer)

    def _delta_sink(self) -> DeltaSink:
        settings = self._start
        return DeltaSink(settings.delta_root, self._url, settings.staging_rows, self._visible)

    def _open_publisher(self) -> TopicPublisher:
        settings = self._start
        return TopicPublisher(
            settings.publication_prefix,
            stream.client_options(settings),
            transactional_id=f"{settings.publication_prefix}-{settings.slot}",
            replication_factor=settings.replication_factor,
            confirm=self._confirm,
        )

    def _prepare_writes(self, connection: Connection) -> None:
        prepare_write_session(self._start.target_lock_timeout_ms)(connection)

    def preload(self, parts: ApplierParts, status: ApplierCondition) -> Preload:
        """Build what brings the rows of the sources into memory after a start."""
        return Preload(
            parts.spark,
            parts.intake.traces,
            lambda: [source for table in list(parts.tables.planned.values()) for source in table.sources],
            lambda: status.has_ticked,
        )

    def maintenance(
        self,
        parts: ApplierParts,
        *,
        tick_lock: threading.Lock,
        last_tick: Callable[[], Lsn],
        on_failure: Callable[[BaseException], None],
    ) -> Maintenance:
        """Build the background work."""
        catalog = self.catalog(self.database())
        checkpointer = Checkpointer(
            applier=self._start.slot,
            store=parts.store,
            states=DurableStates(parts.computer.states),
            catalog=catalog,
            intake=parts.intake,
            traces=parts.intake.traces,
            tables=parts.tables,
            long_refreshes=parts.computer.long_refreshes,
            long_writes=parts.writer.long_writes,
            downstream=parts.downstream,
            delta_sink=parts.delta_sink,
            catch_up=parts.writer.catch_up_sinks,
            latest=parts.latest_checkpoint,
            last_tick=last_tick,
            tick_lock=tick_lock,
            settings=self._checkpoint_settings,
            has_lost_history=lambda: parts.vouch.has_lost_history,
        )
        return Maintenance(
            checkpointer=checkpointer,
            delta_sink=parts.delta_sink,
            tables=parts.tables,
            catalog=catalog,
            tick_lock=tick_lock,
            settings=self._maintenance_settings,
            on_failure=on_failure,
        )

    def publishing(self, parts: ApplierParts, on_failure: Callable[[BaseException], None]) -> Publishing:
        """Build the background publisher."""
        return Publishing(parts.downstream, self.catalog(self.database()), self._visible, on_failure)

    # -- settings that may change: each part asks for its own ---------------------------------------------------------

    def _batch_size(self) -> int:
        return self._settings().pipeline_batch_size

    def _refresh_limits(self) -> RefreshLimits:
        settings = self._settings()
        window = timedelta(minutes=settings.prediction_window)
        prediction = PredictionLimits(window, settings.prediction_ratio, settings.prediction_min_samples)
        return RefreshLimits(settings.differential_max_change_ratio, settings.catch_up_rows, prediction)

    def _costs(self, catalog: Catalog) -> CostCache:
        def load(pgt_id: int) -> CostModel:
            return model_of(catalog.history.read_costs(pgt_id, self._refresh_limits().prediction.window))

        return CostCache(load, lambda: self._settings().cost_cache_capacity)

    def _promise_settings(self) -> PromiseSettings:
        settings = self._settings()
        workers = settings.max_parallel_workers
        cores = count_cores(self._start.spark_master, elsewhere=workers)
        return PromiseSettings(settings.tiered_scheduling, settings.auto_backoff, workers, cores)

    def _checkpoint_settings(self) -> CheckpointSettings:
        settings = self._settings()
        return CheckpointSettings(settings.checkpoint_rows, settings.max_buffer_rows)

    def _maintenance_settings(self) -> MaintenanceSettings:
        settings = self._settings()
        return MaintenanceSettings(
            delta_interval_s=settings.delta_interval_ms / 1000,
            tidy_interval_s=settings.delta_tidy_interval_s,
            delta_retention_hours=settings.delta_retention_hours,
            history_retention_days=settings.history_retention_days,
        )

    def requests(self) -> Requests:
        """Build the reader that answers the requests of SQL functions."""
        client = stream.client_options(self._start)
        return Requests(self._start.topic_prefix, client, self.database(limit_waits), self._thresholds)

    def self_check(self, interval_s: Callable[[], float]) -> SelfCheck:
        """Build what compares stream tables with their queries now and then."""
        database = self.database()
        return SelfCheck(database, interval_s, ServiceState(database, self._alerts))

    def beats(self, condition: ApplierCondition, parts: ApplierParts) -> Beats:
        """Build what beats, and listens to the consumer's beats."""
        settings = self._start
        client = stream.client_options(settings)
        return Beats(
            BeatStore(self.database(_never_wait), settings.slot, lambda: parts.planner.costs.counters, self._alerts),
            lambda: BeatReader(settings.topic_prefix, client, settings.slot),
            condition,
            self._visible.clock,
            parts.history.hear,
            thresholds=self._alert_thresholds,
            buffered_rows=lambda: sum(trace.overlay_volume for trace in parts.intake.traces),
            reader_waits_s=lambda: parts.ingest.waits_s,
        )

    def _alert_thresholds(self) -> AlertThresholds:
        settings = self._settings()
        lag = SlotLagThresholds(settings.slot_lag_warning_threshold_mb, settings.slot_lag_critical_threshold_mb)
        return AlertThresholds(settings.buffer_alert_threshold, lag)

    def _wait_for_topics(self) -> None:
        waited = False
        while not stream.are_topics_ready(self._start):
            if not waited:
                log.info("waiting for pg-trickle-cdc to create its topics", extra={"prefix": self._start.topic_prefix})
                waited = True
            if self._stopping.wait(0.2):
                raise Infrastructure("stopped while waiting for the consumer's topics")


def _wait_briefly(connection: Connection) -> None:
    """Prepare a connection for planning: a source that another session has locked must not stop the tick."""
    connection.execute("SET lock_timeout = '300ms'")


def _never_wait(connection: Connection) -> None:
    """Prepare a connection for beats: a lost one is repeated, so none waits for a disk, a standby or a lock."""
    connection.execute("SET synchronous_commit = off; SET lock_timeout = '2s'")
