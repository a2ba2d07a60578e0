"""`pg-trickle-applier run`: wires everything together, then ticks whenever the frontier moved, until told to stop."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import UTC, datetime

import psycopg
from prometheus_client import REGISTRY

from applier import metrics
from applier.arrange.traces import Traces
from applier.catalog.catalog import Catalog
from applier.catalog.database import Connection, Database
from applier.catalog.service import Service
from applier.errors import AnotherApplier, Infrastructure, InstallError
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
from applier.runtime.live_settings import LiveSettings
from applier.runtime.maintenance import Maintenance
from applier.runtime.requests import Requests, limit_waits
from applier.runtime.self_check import SelfCheck
from applier.runtime.tick import run_tick
from applier.sinks.delta_lake.sink import DeltaSink
from applier.sinks.kafka.publisher import TopicPublisher
from applier.sinks.postgres.sink import PostgresSink, prepare_write_session
from applier.sinks.staging.staged_delta import drop_leftovers
from applier.sinks.staging.staging import Staging
from applier.spark.jars import SPARK_JARS, ensure
from applier.spark.scratch import Scratch
from applier.spark.session import count_jobs, spark_session
from applier.state.store import StateStore
from applier.trace.store import TraceStore
from shared_schema.lsn import Lsn
from shared_schema.status_server import StatusServer

log = logging.getLogger(__name__)

IDLE_LOOK_S = 1.0
"""How often definitions are looked at when no change arrives."""

RETRY_S = (0.1, 0.5, 1.0, 2.0, 5.0)
"""Pauses between repeated ticks while a service is away; the last one stays."""

APPLIER_LOCK = 0x7067_7470
"""Advisory lock: one applier per database and slot."""

OWN_SESSION_LEFT_S = 60.0
"""So long a session of ours that the network took may live on; the server looks after it every few seconds."""


class Applier:
    """One running applier; `run` returns after a clean stop and raises what cannot be retried."""

    def __init__(self, tuning: LiveSettings) -> None:
        self.tuning = tuning
        self.settings = tuning.settings
        self.stopping = threading.Event()
        self._failure: BaseException | None = None
        self._inbox_lock = threading.Condition()
        self._tick_lock = threading.Lock()
        self._cleanup = ExitStack()
        self._runner = FullInPostgres(self.settings.database_url.get_secret_value(), self.settings.staging_rows)
        self._told: tuple[str, Lsn | None] | None = None
        self._drain_to: Lsn | None = None
        self._locked_at: float | None = None
        """When the lock was last known to be ours."""

    def stop(self) -> None:
        """Ask for a clean stop; may be called from a signal handler."""
        self.stopping.set()

    def run(self) -> None:
        """Until stopped."""
        with self._cleanup:
            status = metrics.Condition()
            server = StatusServer(self.settings.metrics_host, self.settings.metrics_port, REGISTRY, status)
            self._cleanup.enter_context(server)
            catalog = Catalog(self._database(self._lock_out_others))
            catalog.stream_tables.all()
            engine, maintenance, ingest = self._wire(catalog)
            self._cleanup.callback(ingest.stop)
            database = self._database()
            self.tuning.report(database)
            ingest.start()
            questions = Requests(
                self.settings.topic_prefix,
                stream.client_options(self.settings),
                self._database(limit_waits),
                self._thresholds(),
            )
            beside = {"maintenance": maintenance.run}
            if not self.settings.sources_elsewhere:
                # Else questions would be those of the other database, and the rows to check against are there.
                beside["questions"] = questions.run
                beside["self-check"] = SelfCheck(self._database(), self._self_check_s).run
            background = [
                threading.Thread(target=run, args=(self.stopping,), name=name) for name, run in beside.items()
            ]
            for thread in background:
                thread.start()
            try:
                self._loop(engine, ingest, status, lambda: self.tuning.look(database, engine, maintenance))
            finally:
                self.stopping.set()
                for thread in background:
                    thread.join()
                self._end_long_jobs(engine)
            maintenance.checkpoint()
            self._note("STOPPED", engine)
            log.info("applier stopped", extra={"frontier": str(engine.frontier)})

    def _thresholds(self) -> Thresholds:
        return Thresholds(self.settings.deep_join_l0_scan_threshold, self.settings.part3_max_scan_count)

    def _database(self, prepare: Callable[[Connection], None] | None = None) -> Database:
        database = Database(self.settings.database_url.get_secret_value(), prepare)
        self._cleanup.callback(database.close)
        return database

    def _self_check_s(self) -> float:
        return self.tuning.settings.self_check_interval_s

    def _lock_out_others(self, connection: Connection) -> None:
        """Held as long as the connection: it guards the stream tables, so it is the catalog's."""
        installed = connection.execute("SELECT to_regclass('pgtrickle.pgt_checkpoints') IS NOT NULL").fetchone()
        if installed != (True,):
            raise InstallError("schema pgtrickle is not installed", hint="run `pg-trickle-applier install` first")
        locked = connection.execute(
            "SELECT pg_try_advisory_lock(%s, hashtext(%s))", (APPLIER_LOCK, self.settings.slot)
        ).fetchone()
        if locked == (True,):
            self._locked_at = time.monotonic()
        elif self._locked_at is not None and time.monotonic() - self._locked_at < OWN_SESSION_LEFT_S:
            raise Infrastructure("the session this applier lost is not yet gone on the server, and has its lock")
        else:
            raise AnotherApplier(
                f"another applier keeps the stream tables of slot {self.settings.slot}", hint="stop it first"
            )

    def _wire(self, catalog: Catalog) -> tuple[Engine, Maintenance, Ingest]:
        settings = self.settings
        scratch = Scratch(settings.scratch_dir, "spark")
        self._cleanup.callback(scratch.remove)
        spark = spark_session(
            ensure(SPARK_JARS),
            master=settings.spark_master,
            driver_memory=settings.spark_driver_memory,
            scratch=scratch.path,
        )
        self._cleanup.callback(spark.stop)
        client = stream.client_options(settings)
        self._wait_for_topics()
        schemas = SchemaReader(settings.topic_prefix, client)
        self._cleanup.callback(schemas.close)
        manifest = catalog.checkpoints.load(settings.slot)
        store = TraceStore(spark, settings.state_dir)

        def open_publisher() -> TopicPublisher:
            return TopicPublisher(
                settings.publication_prefix,
                client,
                transactional_id=f"{settings.publication_prefix}-{settings.slot}",
                replication_factor=settings.replication_factor,
            )

        prepare = prepare_write_session(settings.target_lock_timeout_ms)

        traces = Traces(spark, store.load(manifest), settings.memory_budget_mb)
        definer = StreamTablePlanner(self._database(), catalog, self._thresholds())
        url = settings.database_url.get_secret_value()
        drop_leftovers(url)
        engine = Engine(
            spark=spark,
            catalog=catalog,
            stream_tables=StreamTables(catalog, traces, definer, settings.sources_elsewhere),
            scheduler=Scheduler(settings.max_consecutive_errors),
            planner=RefreshPlanner(traces, settings.differential_max_change_ratio, settings.catch_up_rows),
            inbox=Inbox(manifest.frontier, manifest.offsets),
            inbox_lock=self._inbox_lock,
            schema_of=schemas.copied,
            traces=traces,
            state_store=StateStore(spark),
            sinks=WriteBack(
                PostgresSink(self._database(prepare), settings.pipeline_batch_size, driver_rows=settings.staging_rows),
                open_publisher if settings.publish_sink else None,
                DeltaSink(settings.delta_root, url, settings.staging_rows) if settings.delta_sink else None,
                manifest,
            ),
            staging=Staging(url, settings.staging_rows),
            open_side_sink=lambda: PostgresSink(Database(url, prepare), self.settings.pipeline_batch_size),
            run_in_postgres=self._runner.run,
            workers=self._workers("compute"),
            long_refreshes=LongRefreshes(self._workers("long"), self._wake),
            alter=AlterStreamTables(definer.trial, definer.save).run,
        )
        maintenance = Maintenance(
            engine=engine,
            store=store,
            catalog=Catalog(self._database()),
            applier=settings.slot,
            tick_lock=self._tick_lock,
            delta_interval_s=settings.delta_interval_ms / 1000,
            checkpoint_rows=settings.checkpoint_rows,
            tidy_interval_s=settings.delta_tidy_interval_s,
            delta_retention_hours=settings.delta_retention_hours,
            history_retention_days=settings.history_retention_days,
            max_buffer_rows=settings.max_buffer_rows,
            failed=self._fail,
        )
        return engine, maintenance, Ingest(spark, settings, engine.inbox, self._inbox_lock, schemas)

    def _workers(self, name: str) -> ThreadPoolExecutor:
        return self._cleanup.enter_context(
            ThreadPoolExecutor(self.settings.max_parallel_workers, thread_name_prefix=name)
        )

    def _end_long_jobs(self, engine: Engine) -> None:
        """What they computed is not written; the next start begins them again."""
        if engine.long_refreshes.any_left:
            self._runner.stop()
            engine.spark.sparkContext.cancelAllJobs()
        engine.long_refreshes.workers.shutdown(cancel_futures=True)

    def _wake(self) -> None:
        with self._inbox_lock:
            self._inbox_lock.notify_all()

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

    def _fail(self, error: BaseException) -> None:
        self._failure = error
        self.stopping.set()

    def _loop(
        self, engine: Engine, ingest: Ingest, status: metrics.Condition, look_at_settings: Callable[[], None]
    ) -> None:
        failures = 0
        tuned = 0.0
        while not self.stopping.is_set():
            status.beat()
            if not self._wait(engine, hurry=bool(failures)):
                continue
            try:
                if time.monotonic() - tuned >= IDLE_LOOK_S:
                    look_at_settings()
                    tuned = time.monotonic()
                ingest.tend()
                self._serve(engine)
                failures = 0
                status.ready = True
                self._locked_at = time.monotonic()
            except (Infrastructure, psycopg.OperationalError) as error:
                pause = RETRY_S[min(failures, len(RETRY_S) - 1)]
                failures += 1
                metrics.TICK_RETRIES.inc()
                log.warning("tick will be repeated", extra={"error": str(error).splitlines()[0], "after_s": pause})
                self.stopping.wait(pause)
        if self._failure is not None:
            raise self._failure

    def _wait(self, engine: Engine, *, hurry: bool) -> bool:
        """Until the frontier moves, a long refresh ends or the calendar says so; whether it is time for a tick."""
        scheduled = engine.scheduler.seconds_to_next(engine.rows, datetime.now(UTC))
        with self._inbox_lock:
            self._inbox_lock.wait_for(
                lambda: (
                    engine.inbox.advance() > engine.frontier or engine.long_refreshes.any_done or self.stopping.is_set()
                ),
                RETRY_S[0] if hurry or engine.draining else min(IDLE_LOOK_S, scheduled),
            )
        return not self.stopping.is_set()

    def _serve(self, engine: Engine) -> None:
        """A tick, unless somebody asked for rest."""
        asked = engine.catalog.service.requested()
        engine.draining = asked is Service.DRAIN
        if asked is Service.REST:
            return
        if asked is Service.DRAIN and self._drain_to is None:
            # The log here says nothing about sources elsewhere: what has arrived is what there is.
            elsewhere = self.settings.sources_elsewhere
            self._drain_to = engine.inbox.frontier if elsewhere else engine.catalog.frontiers.log_end()
        self._tick(engine)
        if asked is Service.RUN:
            self._drain_to = None
            self._note("RUNNING", engine)
        elif self._drain_to is not None and engine.frontier >= self._drain_to and engine.settled:
            self._drain_to = None
            self._note("DRAINED", engine)

    def _note(self, state: str, engine: Engine) -> None:
        """Tell who asks; a drained applier also how far it came."""
        told = state, engine.frontier if state == "DRAINED" else None
        if self._told != told:
            engine.catalog.service.note(self.settings.slot, state, engine.frontier)
            self._told = told

    def _tick(self, engine: Engine) -> None:
        with self._tick_lock, metrics.TICK_SECONDS.time():
            before = count_jobs(engine.spark)
            frontier = run_tick(engine)
            begun = count_jobs(engine.spark)
            metrics.SPARK_JOBS.set(begun)
            if begun > before:
                metrics.TICK_JOBS.set(begun - before)
            if frontier > engine.frontier:
                metrics.TICKS.inc()
            engine.frontier = frontier
            metrics.FRONTIER.set(frontier.value)
