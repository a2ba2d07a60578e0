"""`pg-trickle-applier run`: settings in, one tick after the other whenever the frontier moves, until it is stopped."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime

import psycopg
from prometheus_client import REGISTRY

from applier import metrics
from applier.catalog.catalog import Catalog
from applier.catalog.service import Service
from applier.errors import Infrastructure
from applier.ingest.ingest import Ingest
from applier.refresh.engine import Engine
from applier.refresh.full_in_postgres import FullInPostgres
from applier.runtime.live_settings import LiveSettings
from applier.runtime.lock import ApplierLock
from applier.runtime.self_check import SelfCheck
from applier.runtime.tick import run_tick
from applier.runtime.wiring import Wiring
from applier.spark.session import count_jobs
from shared_schema.lsn import Lsn
from shared_schema.status_server import StatusServer

log = logging.getLogger(__name__)

IDLE_LOOK_S = 1.0
"""How often definitions are read when no change arrives."""

RETRY_S = (0.1, 0.5, 1.0, 2.0, 5.0)
"""Pauses before a tick is repeated while a service is not available; the last value applies to all later ones."""


class Applier:
    """One running applier; `run` returns after a clean stop and raises an error that cannot be retried."""

    def __init__(self, live_settings: LiveSettings) -> None:
        self.live_settings = live_settings
        self.settings = live_settings.settings
        self.stopping = threading.Event()
        self._failure: BaseException | None = None
        self._inbox_lock = threading.Condition()
        self._tick_lock = threading.Lock()
        self._cleanup = ExitStack()
        self._runner = FullInPostgres(self.settings.database_url.get_secret_value(), self.settings.staging_rows)
        self._noted: tuple[str, Lsn | None] | None = None
        self._drain_to: Lsn | None = None
        self._lock = ApplierLock(self.settings.slot)

    def stop(self) -> None:
        """Request a clean stop; may be called from a signal handler."""
        self.stopping.set()

    def run(self) -> None:
        """Run until `stop` is called or an error cannot be retried."""
        with self._cleanup:
            status = metrics.ApplierCondition()
            server = StatusServer(self.settings.metrics_host, self.settings.metrics_port, REGISTRY, status)
            self._cleanup.enter_context(server)
            wiring = Wiring(
                self.settings,
                stopping=self.stopping,
                cleanup=self._cleanup,
                runner=self._runner,
                inbox_lock=self._inbox_lock,
                tick_lock=self._tick_lock,
            )
            catalog = Catalog(wiring.database(self._lock.acquire))
            catalog.stream_tables.all()
            engine = wiring.engine(catalog, self._wake)
            maintenance = wiring.maintenance(engine, self._fail)
            ingest = wiring.ingest(engine)
            self._cleanup.callback(ingest.stop)
            database = wiring.database()
            self.live_settings.report(database)
            ingest.start()
            background = {"maintenance": maintenance.run}
            if not self.settings.sources_elsewhere:
                # Otherwise the requests are for the other database, and the rows to compare with are there.
                background["requests"] = wiring.requests().run
                background["self-check"] = SelfCheck(wiring.database(), self._self_check_interval_s).run
            threads = [
                threading.Thread(target=run, args=(self.stopping,), name=name) for name, run in background.items()
            ]
            for thread in threads:
                thread.start()
            try:
                self._loop(engine, ingest, status, lambda: self.live_settings.reload(database, engine, maintenance))
            finally:
                self.stopping.set()
                for thread in threads:
                    thread.join()
                self._cancel_long_refreshes(engine)
            maintenance.checkpoint()
            self._note("STOPPED", engine)
            log.info("applier stopped", extra={"frontier": str(engine.frontier)})

    def _self_check_interval_s(self) -> float:
        return self.live_settings.settings.self_check_interval_s

    def _cancel_long_refreshes(self, engine: Engine) -> None:
        """Their rows are not written; the next start computes them again."""
        if engine.long_refreshes.has_any:
            self._runner.stop()
            engine.spark.sparkContext.cancelAllJobs()
        engine.long_refreshes.workers.shutdown(cancel_futures=True)

    def _wake(self) -> None:
        with self._inbox_lock:
            self._inbox_lock.notify_all()

    def _fail(self, error: BaseException) -> None:
        self._failure = error
        self.stopping.set()

    def _loop(
        self, engine: Engine, ingest: Ingest, status: metrics.ApplierCondition, reload_settings: Callable[[], None]
    ) -> None:
        failures = 0
        reloaded_at = 0.0
        while not self.stopping.is_set():
            status.beat()
            if not self._wait(engine, hurry=bool(failures)):
                continue
            try:
                if time.monotonic() - reloaded_at >= IDLE_LOOK_S:
                    reload_settings()
                    reloaded_at = time.monotonic()
                ingest.tend()
                self._serve(engine)
                failures = 0
                status.ready = True
                self._lock.confirm()
            except (Infrastructure, psycopg.OperationalError) as error:
                pause = RETRY_S[min(failures, len(RETRY_S) - 1)]
                failures += 1
                metrics.TICK_RETRIES.inc()
                log.warning("tick will be repeated", extra={"error": str(error).splitlines()[0], "after_s": pause})
                self.stopping.wait(pause)
        if self._failure is not None:
            raise self._failure

    def _wait(self, engine: Engine, *, hurry: bool) -> bool:
        """Wait until the frontier moves, a long refresh finishes or a schedule is due; return False when stopping."""
        scheduled = engine.scheduler.seconds_to_next(engine.rows, datetime.now(UTC))
        with self._inbox_lock:
            self._inbox_lock.wait_for(
                lambda: (
                    engine.inbox.advance() > engine.frontier
                    or engine.long_refreshes.has_finished
                    or self.stopping.is_set()
                ),
                RETRY_S[0] if hurry or engine.draining else min(IDLE_LOOK_S, scheduled),
            )
        return not self.stopping.is_set()

    def _serve(self, engine: Engine) -> None:
        """Run a tick, unless the applier was drained and has to rest."""
        requested = engine.catalog.service.requested_service()
        engine.draining = requested is Service.DRAIN
        if requested is Service.REST:
            return
        if requested is Service.DRAIN and self._drain_to is None:
            # The local log says nothing about sources in another database: drain up to what has arrived.
            elsewhere = self.settings.sources_elsewhere
            self._drain_to = engine.inbox.frontier if elsewhere else engine.catalog.frontiers.log_end()
        self._tick(engine)
        if requested is Service.RUN:
            self._drain_to = None
            self._note("RUNNING", engine)
        elif self._drain_to is not None and engine.frontier >= self._drain_to and engine.is_drained:
            self._drain_to = None
            self._note("DRAINED", engine)

    def _note(self, state: str, engine: Engine) -> None:
        """Write a new state of the applier to the catalog; DRAINED also when only its frontier is new."""
        noted = state, engine.frontier if state == "DRAINED" else None
        if self._noted != noted:
            engine.catalog.service.note(self.settings.slot, state, engine.frontier)
            self._noted = noted

    def _tick(self, engine: Engine) -> None:
        with self._tick_lock, metrics.TICK_SECONDS.time():
            before = count_jobs(engine.spark)
            frontier = run_tick(engine)
            after = count_jobs(engine.spark)
            metrics.SPARK_JOBS.set(after)
            if after > before:
                metrics.TICK_JOBS.set(after - before)
            if frontier > engine.frontier:
                metrics.TICKS.inc()
            engine.frontier = frontier
            metrics.FRONTIER.set(frontier.value)
