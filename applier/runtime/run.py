"""`pg-trickle-applier run`: wires everything together, then ticks whenever the frontier moved, until told to stop."""

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
"""How often definitions are looked at when no change arrives."""

RETRY_S = (0.1, 0.5, 1.0, 2.0, 5.0)
"""Pauses between repeated ticks while a service is away; the last one stays."""


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
        self._lock = ApplierLock(self.settings.slot)

    def stop(self) -> None:
        """Ask for a clean stop; may be called from a signal handler."""
        self.stopping.set()

    def run(self) -> None:
        """Until stopped."""
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
            self.tuning.report(database)
            ingest.start()
            beside = {"maintenance": maintenance.run}
            if not self.settings.sources_elsewhere:
                # Else requests would be those of the other database, and the rows to check against are there.
                beside["requests"] = wiring.requests().run
                beside["self-check"] = SelfCheck(wiring.database(), self._self_check_s).run
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
                self._end_long_refreshes(engine)
            maintenance.checkpoint()
            self._note("STOPPED", engine)
            log.info("applier stopped", extra={"frontier": str(engine.frontier)})

    def _self_check_s(self) -> float:
        return self.tuning.settings.self_check_interval_s

    def _end_long_refreshes(self, engine: Engine) -> None:
        """What they computed is not written; the next start begins them again."""
        if engine.long_refreshes.any_left:
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
        self, engine: Engine, ingest: Ingest, status: metrics.ApplierCondition, look_at_settings: Callable[[], None]
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
