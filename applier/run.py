"""`pg-trickle-applier run`: wires everything together, then ticks whenever the frontier moved, until told to stop."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import psycopg
from prometheus_client import REGISTRY

from applier import metrics
from applier.apply.delta_lake import DeltaSink
from applier.apply.postgres import PostgresSink, writes_stream_tables
from applier.database import Connection, Database
from applier.definition.define import Written, define
from applier.engine import Engine
from applier.errors import AnotherApplier, Infrastructure, InstallError, SourceChanged
from applier.jars import SPARK_JARS, ensure
from applier.maintenance import Maintenance
from applier.plan.facts import facts
from applier.publish.topic import Publisher
from applier.questions import Questions
from applier.registry import Registered, Registry
from applier.session import spark_session
from applier.state.states import States
from applier.stream_table import StreamTable
from applier.tick import run_tick
from applier.trace import stream
from applier.trace.inbox import Inbox
from applier.trace.ingest import Ingest
from applier.trace.schemas import SchemaReader
from applier.trace.store import TraceStore
from applier.trace.traces import Traces
from applier.tuning import Tuning
from shared_schema.status_server import StatusServer
from shared_schema.table_schema import Column

log = logging.getLogger(__name__)

IDLE_LOOK_S = 1.0
"""How often definitions are looked at when no change arrives."""

RETRY_S = (0.1, 0.5, 1.0, 2.0, 5.0)
"""Pauses between repeated ticks while a service is away; the last one stays."""

APPLIER_LOCK = 0x7067_7470
"""Advisory lock: one applier per database and slot."""


class Applier:
    """One running applier; `run` returns after a clean stop and raises what cannot be retried."""

    def __init__(self, tuning: Tuning) -> None:
        self.tuning = tuning
        self.settings = tuning.settings
        self.stopping = threading.Event()
        self._failure: BaseException | None = None
        self._inbox_lock = threading.Condition()
        self._tick_lock = threading.Lock()
        self._cleanup = ExitStack()

    def stop(self) -> None:
        """Ask for a clean stop; may be called from a signal handler."""
        self.stopping.set()

    def run(self) -> None:
        """Until stopped."""
        with self._cleanup:
            status = metrics.Condition()
            server = StatusServer(self.settings.metrics_host, self.settings.metrics_port, REGISTRY, status)
            self._cleanup.enter_context(server)
            registry = Registry(self._database(self._lock_out_others))
            registry.stream_tables()
            engine, maintenance, ingest = self._wire(registry)
            self._cleanup.callback(ingest.stop)
            database = self._database()
            self.tuning.report(database)
            ingest.start()
            questions = Questions(self.settings.topic_prefix, stream.client_options(self.settings), self._database())
            background = [
                threading.Thread(target=run, args=(self.stopping,), name=name)
                for name, run in (("maintenance", maintenance.run), ("questions", questions.run))
            ]
            for thread in background:
                thread.start()
            try:
                self._loop(engine, ingest, status, lambda: self.tuning.look(database, engine, maintenance))
            finally:
                self.stopping.set()
                for thread in background:
                    thread.join()
            maintenance.checkpoint()
            log.info("applier stopped", extra={"frontier": str(engine.frontier)})

    def _database(self, prepare: Callable[[Connection], None] | None = None) -> Database:
        database = Database(self.settings.database_url.get_secret_value(), prepare)
        self._cleanup.callback(database.close)
        return database

    def _lock_out_others(self, connection: Connection) -> None:
        """Held as long as the connection: it guards the stream tables, so it is the registry's."""
        installed = connection.execute("SELECT to_regclass('pgtrickle.pgt_checkpoints') IS NOT NULL").fetchone()
        if installed != (True,):
            raise InstallError("schema pgtrickle is not installed", hint="run `pg-trickle-applier install` first")
        locked = connection.execute(
            "SELECT pg_try_advisory_lock(%s, hashtext(%s))", (APPLIER_LOCK, self.settings.slot)
        ).fetchone()
        if locked != (True,):
            raise AnotherApplier(
                f"another applier keeps the stream tables of slot {self.settings.slot}", hint="stop it first"
            )

    def _wire(self, registry: Registry) -> tuple[Engine, Maintenance, Ingest]:
        settings = self.settings
        spark = spark_session(
            ensure(SPARK_JARS),
            master=settings.spark_master,
            driver_memory=settings.spark_driver_memory,
            scratch=settings.scratch_dir,
        )
        self._cleanup.callback(spark.stop)
        client = stream.client_options(settings)
        self._wait_for_topics()
        schemas = SchemaReader(settings.topic_prefix, client)
        self._cleanup.callback(schemas.close)
        manifest = registry.load_manifest(settings.slot)
        store = TraceStore(spark, settings.state_dir)
        definitions = self._database()

        def definer(row: Registered) -> StreamTable:
            written = Written(row.original_query, row.created_at)
            definition = define(definitions.connection, row.defining_query, "pg_catalog", written)
            if registry.result_columns(row.defining_query) != registry.result_columns(f"TABLE {row.table.quoted}"):
                raise SourceChanged(
                    f"the query of {row.table} no longer returns the columns the stream table has",
                    hint="a source was altered: drop and create the stream table",
                )
            registry.save_plan(row.pgt_id, facts(definition.plan))
            columns = tuple(Column(name, kind) for name, kind in definition.columns)
            return StreamTable(row.pgt_id, row.table, row.pgt_relid, columns, definition.plan)

        def open_publisher() -> Publisher:
            return Publisher(
                settings.publication_prefix,
                client,
                transactional_id=f"{settings.publication_prefix}-{settings.slot}",
                replication_factor=settings.replication_factor,
            )

        engine = Engine(
            spark=spark,
            registry=registry,
            define=definer,
            inbox=Inbox(manifest.frontier, manifest.offsets),
            inbox_lock=self._inbox_lock,
            columns_of=schemas.columns,
            traces=Traces(spark, store.load(manifest)),
            states=States(spark),
            postgres=PostgresSink(
                self._database(writes_stream_tables(settings.target_lock_timeout_ms)), settings.pipeline_batch_size
            ),
            open_publisher=open_publisher if settings.publish_sink else None,
            delta_sink=DeltaSink(settings.delta_root) if settings.delta_sink else None,
            manifest=manifest,
            workers=self._cleanup.enter_context(
                ThreadPoolExecutor(settings.max_parallel_workers, thread_name_prefix="compute")
            ),
        )
        maintenance = Maintenance(
            engine=engine,
            store=store,
            registry=Registry(self._database()),
            applier=settings.slot,
            tick_lock=self._tick_lock,
            delta_interval_s=settings.delta_interval_ms / 1000,
            checkpoint_rows=settings.checkpoint_rows,
            delta_retention_hours=settings.delta_retention_hours,
            history_retention_days=settings.history_retention_days,
            failed=self._fail,
        )
        return engine, maintenance, Ingest(spark, settings, engine.inbox, self._inbox_lock, schemas)

    def _wait_for_topics(self) -> None:
        waited = False
        while not stream.topics_ready(self.settings):
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
        looked = tuned = 0.0
        while not self.stopping.is_set():
            status.beat()
            with self._inbox_lock:
                self._inbox_lock.wait_for(
                    lambda: engine.inbox.advance() > engine.frontier or self.stopping.is_set(),
                    IDLE_LOOK_S if not failures else 0.01,
                )
                moved = engine.inbox.frontier > engine.frontier
            if self.stopping.is_set() or not (moved or time.monotonic() - looked >= IDLE_LOOK_S):
                continue
            looked = time.monotonic()
            try:
                if looked - tuned >= IDLE_LOOK_S:
                    look_at_settings()
                    tuned = looked
                ingest.tend()
                self._tick(engine)
                failures = 0
                status.ready = True
            except (Infrastructure, psycopg.OperationalError) as error:
                pause = RETRY_S[min(failures, len(RETRY_S) - 1)]
                failures += 1
                metrics.TICK_RETRIES.inc()
                log.warning("tick will be repeated", extra={"error": str(error).splitlines()[0], "after_s": pause})
                self.stopping.wait(pause)
        if self._failure is not None:
            raise self._failure

    def _tick(self, engine: Engine) -> None:
        with self._tick_lock, metrics.TICK_SECONDS.time():
            frontier = run_tick(engine)
            if frontier > engine.frontier:
                metrics.TICKS.inc()
            engine.frontier = frontier
            metrics.FRONTIER.set(frontier.value)
