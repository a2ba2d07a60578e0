"""Settings in, the parts of a running applier out. It decides nothing and runs nothing."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

from applier.arrange.traces import Traces
from applier.catalog.catalog import Catalog
from applier.catalog.database import Connection, Database
from applier.errors import Infrastructure
from applier.ingest import stream
from applier.ingest.inbox import Inbox
from applier.ingest.ingest import Ingest
from applier.ingest.schemas import SchemaReader
from applier.plan.depth import Thresholds
from applier.refresh.alter import AlterStreamTables
from applier.refresh.engine import Engine
from applier.refresh.full_in_postgres import FullInPostgres
from applier.refresh.long_refreshes import LongRefreshes
from applier.refresh.plan_stream_table import StreamTablePlanner
from applier.refresh.refresh_planner import RefreshPlanner
from applier.refresh.scheduler import Scheduler
from applier.refresh.stream_tables import StreamTables
from applier.refresh.write_back import WriteBack
from applier.runtime.maintenance import Maintenance
from applier.runtime.requests import Requests, limit_waits
from applier.settings import ApplierSettings
from applier.sinks.delta_lake.sink import DeltaSink
from applier.sinks.kafka.publisher import TopicPublisher
from applier.sinks.postgres.sink import PostgresSink, prepare_write_session
from applier.sinks.staging.staged_delta import drop_leftovers
from applier.sinks.staging.staging import Staging
from applier.spark.jars import SPARK_JARS, ensure
from applier.spark.scratch import Scratch
from applier.spark.session import spark_session
from applier.state.store import StateStore
from applier.trace.store import TraceStore

log = logging.getLogger(__name__)


class Wiring:
    """Builds each part once. `cleanup` closes what it opens, in the opposite order."""

    def __init__(
        self,
        settings: ApplierSettings,
        *,
        stopping: threading.Event,
        cleanup: ExitStack,
        runner: FullInPostgres,
        inbox_lock: threading.Condition,
        tick_lock: threading.Lock,
    ) -> None:
        self.settings = settings
        self.stopping = stopping
        self.cleanup = cleanup
        self.runner = runner
        self.inbox_lock = inbox_lock
        self.tick_lock = tick_lock
        self._thresholds = Thresholds(settings.deep_join_l0_scan_threshold, settings.part3_max_scan_count)

    def database(self, prepare: Callable[[Connection], None] | None = None) -> Database:
        """Return a connection of its own, prepared each time it is opened."""
        database = Database(self.settings.database_url.get_secret_value(), prepare)
        self.cleanup.callback(database.close)
        return database

    def engine(self, catalog: Catalog, wake: Callable[[], None]) -> Engine:
        """Build Spark, traces, state and sinks from the last checkpoint; wait for the topics of the consumer."""
        settings = self.settings
        scratch = Scratch(settings.scratch_dir, "spark")
        self.cleanup.callback(scratch.remove)
        spark = spark_session(
            ensure(SPARK_JARS),
            master=settings.spark_master,
            driver_memory=settings.spark_driver_memory,
            scratch=scratch.path,
        )
        self.cleanup.callback(spark.stop)
        client = stream.client_options(settings)
        self._wait_for_topics()
        self._schemas = SchemaReader(settings.topic_prefix, client)
        self.cleanup.callback(self._schemas.close)
        manifest = catalog.checkpoints.load(settings.slot)
        self._store = TraceStore(spark, settings.state_dir)

        def open_publisher() -> TopicPublisher:
            return TopicPublisher(
                settings.publication_prefix,
                client,
                transactional_id=f"{settings.publication_prefix}-{settings.slot}",
                replication_factor=settings.replication_factor,
            )

        prepare = prepare_write_session(settings.target_lock_timeout_ms)

        traces = Traces(spark, self._store.load(manifest), settings.memory_budget_mb)
        table_planner = StreamTablePlanner(self.database(), catalog, self._thresholds)
        url = settings.database_url.get_secret_value()
        drop_leftovers(url)
        return Engine(
            spark=spark,
            catalog=catalog,
            stream_tables=StreamTables(catalog, traces, table_planner, settings.sources_elsewhere),
            scheduler=Scheduler(settings.max_consecutive_errors),
            planner=RefreshPlanner(traces, settings.differential_max_change_ratio, settings.catch_up_rows),
            inbox=Inbox(manifest.frontier, manifest.offsets),
            inbox_lock=self.inbox_lock,
            schema_of=self._schemas.copied,
            traces=traces,
            state_store=StateStore(spark),
            sinks=WriteBack(
                PostgresSink(self.database(prepare), settings.pipeline_batch_size, driver_rows=settings.staging_rows),
                open_publisher if settings.publish_sink else None,
                DeltaSink(settings.delta_root, url, settings.staging_rows) if settings.delta_sink else None,
                manifest,
            ),
            staging=Staging(url, settings.staging_rows),
            open_side_sink=lambda: PostgresSink(Database(url, prepare), self.settings.pipeline_batch_size),
            run_in_postgres=self.runner.run,
            workers=self._workers("compute"),
            long_refreshes=LongRefreshes(self._workers("long"), wake),
            alter=AlterStreamTables(table_planner.trial, table_planner.save).run,
        )

    def maintenance(self, engine: Engine, on_failure: Callable[[BaseException], None]) -> Maintenance:
        """Build the background work of this engine."""
        settings = self.settings
        return Maintenance(
            engine=engine,
            store=self._store,
            catalog=Catalog(self.database()),
            applier=settings.slot,
            tick_lock=self.tick_lock,
            delta_interval_s=settings.delta_interval_ms / 1000,
            checkpoint_rows=settings.checkpoint_rows,
            tidy_interval_s=settings.delta_tidy_interval_s,
            delta_retention_hours=settings.delta_retention_hours,
            history_retention_days=settings.history_retention_days,
            max_buffer_rows=settings.max_buffer_rows,
            on_failure=on_failure,
        )

    def ingest(self, engine: Engine) -> Ingest:
        """Build the streaming query that fills this engine's inbox."""
        return Ingest(engine.spark, self.settings, engine.inbox, self.inbox_lock, self._schemas)

    def requests(self) -> Requests:
        """Build the reader that answers the requests of SQL functions."""
        client = stream.client_options(self.settings)
        return Requests(self.settings.topic_prefix, client, self.database(limit_waits), self._thresholds)

    def _workers(self, name: str) -> ThreadPoolExecutor:
        return self.cleanup.enter_context(
            ThreadPoolExecutor(self.settings.max_parallel_workers, thread_name_prefix=name)
        )

    def _wait_for_topics(self) -> None:
        waited = False
        while not stream.are_topics_ready(self.settings):
            if not waited:
                log.info(
                    "waiting for pg-trickle-cdc to create its topics", extra={"prefix": self.settings.topic_prefix}
                )
                waited = True
            if self.stopping.wait(0.2):
                raise Infrastructure("stopped while waiting for the consumer's topics")
