"""`pg-trickle-applier run`: settings in, one tick after the other whenever the frontier moves, until it is stopped.

Where another applier runs already, this one stands by until that one is gone.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from datetime import UTC, datetime

import psycopg
from prometheus_client import REGISTRY

from applier import metrics
from applier.catalog.catalog import Catalog
from applier.catalog.database import Database
from applier.catalog.epochs import has_ended
from applier.catalog.service import Service, ServiceState
from applier.errors import AnotherApplier, Infrastructure
from applier.refresh.computing.full_in_postgres import FullInPostgres
from applier.runtime.condition import ApplierCondition
from applier.runtime.live_settings import LiveSettings
from applier.runtime.ownership import Ownership
from applier.runtime.stand_by import StandBy
from applier.runtime.start_stages import StartStages
from applier.runtime.tick import run_tick
from applier.runtime.wiring import ApplierParts, Wiring
from applier.spark.session import count_jobs
from shared_schema.alerts import AlertEvent
from shared_schema.lsn import ORIGIN, Lsn
from shared_schema.status_server import StatusServer

log = logging.getLogger(__name__)

IDLE_LOOK_S = 1.0
"""How often definitions are read when no change arrives."""

SHORTEST_WAIT_S = 0.05
"""What is due by its schedule and was not refreshed waits for something else."""

TICK_RETRY_S = (0.1, 0.5, 1.0, 2.0, 5.0)
"""Pauses before a tick is repeated while a service is not available; the last value applies to all later ones."""


class Applier:
    """One running applier; `run` returns after a clean stop and raises an error that cannot be retried."""

    def __init__(self, live_settings: LiveSettings) -> None:
        self.live_settings = live_settings
        self.settings = live_settings.settings
        self.stopping = threading.Event()
        self._failure: BaseException | None = None
        self._tick_lock = threading.Lock()
        self._cleanup = ExitStack()
        self._runner = FullInPostgres(self.settings.database_url.get_secret_value(), self.settings.staging_rows)
        self._frontier = ORIGIN
        """The frontier of the last finished tick."""
        self._requested = Service.RUN
        self._noted: tuple[str, Lsn | None] | None = None
        self._drain_to: Lsn | None = None
        self._stages = StartStages()
        self._has_stood_by = False
        self._given_up = threading.Event()
        """Set when this process no longer owns anything, by its own will."""
        self._ownership = Ownership(self.settings.database_url.get_secret_value(), self.settings.slot)

    def stop(self) -> None:
        """Request a clean stop; may be called from a signal handler."""
        self.stopping.set()

    def run(self) -> None:
        """Run until `stop` is called or an error cannot be retried."""
        try:
            self._run()
        except BaseException as error:
            # Whatever failed because another applier has taken over, that is the reason.
            if isinstance(self._failure, AnotherApplier):
                raise self._failure from error
            if has_ended(error):
                raise self._ownership.lost() from error
            raise
        finally:
            self._ownership.give_up()

    def _run(self) -> None:
        with self._cleanup:
            status = ApplierCondition()
            metrics.CONSUMER_AGE.set_function(lambda: status.consumer_age_s)
            metrics.READY.set_function(lambda: status.ready and status.alive)
            server = StatusServer(self.settings.metrics_host, self.settings.metrics_port, REGISTRY, status)
            self._cleanup.enter_context(server)
            wiring = Wiring(
                lambda: self.live_settings.settings,
                stopping=self.stopping,
                cleanup=self._cleanup,
                runner=self._runner,
                stages=self._stages,
                confirm=self._ownership.confirm,
            )
            owned = wiring.database(self._ownership.acquire)
            with self._stages.stage("lock"):
                if not self._take_over(wiring, owned, status):
                    return
            catalog = wiring.catalog(owned)
            catalog.stream_tables.all()
            if self._has_stood_by:
                about = {"slot": self.settings.slot, "detail": self._ownership.reason}
                catalog.service.alert(AlertEvent.APPLIER_TAKEN_OVER, **about)
            parts = wiring.parts(catalog)
            maintenance = wiring.maintenance(
                parts, tick_lock=self._tick_lock, last_tick=lambda: self._frontier, on_failure=self._fail
            )
            self._cleanup.callback(parts.ingest.stop)
            database = wiring.database()
            self.live_settings.report(database)
            with parts.head_start.first_error(), self._stages.stage("query"):
                parts.ingest.start()
            publishing = wiring.publishing(parts, self._fail)
            parts.head_start.finish()
            beats = wiring.beats(status, parts)
            background = {
                "maintenance": maintenance.run,
                "publishing": publishing.run,
                "beat": beats.run,
                "listen": beats.listen,
                "preload": wiring.preload(parts, status).run,
            }
            if not self.settings.sources_elsewhere:
                # Otherwise the requests are for the other database, and the rows to compare with are there.
                background["requests"] = wiring.requests().run
                background["self-check"] = wiring.self_check(self._self_check_interval_s).run
            threads = [
                threading.Thread(target=self._beside, args=(run,), name=name) for name, run in background.items()
            ]
            for thread in threads:
                thread.start()
            is_released = False
            try:
                self._loop(parts, catalog, database, status)
                is_released = self._release(owned)
            finally:
                self.stopping.set()
                for thread in threads:
                    thread.join()
                self._cancel_long_refreshes(parts)
            if is_released:
                return
            publishing.finish()
            maintenance.checkpoint()
            parts.failures.fills.end_all()
            self._note("STOPPED", catalog.service)
            log.info("applier stopped", extra={"frontier": str(self._frontier)})

    def _take_over(self, wiring: Wiring, owned: Database, status: ApplierCondition) -> bool:
        """Become the owner, at once or after standing by; return False when stopped before."""
        beats = wiring.beat_database()
        while not self.stopping.is_set():
            try:
                _ = owned.connection
            except AnotherApplier:
                if not self._stand_by(wiring, beats, status):
                    break
            except (Infrastructure, psycopg.OperationalError) as error:
                if not self._has_stood_by:
                    raise
                log.warning("taking over is repeated", extra={"error": str(error).splitlines()[0]})
                self.stopping.wait(TICK_RETRY_S[1])
            else:
                status.is_standby = False
                metrics.set_role("owner")
                arguments = (beats, self._given_up, self._fail)
                renewing = threading.Thread(target=self._ownership.renew, args=arguments, name="ownership")
                renewing.start()
                self._cleanup.callback(renewing.join)
                self._cleanup.callback(self._given_up.set)
                return True
        with suppress(Infrastructure, psycopg.Error):
            self._ownership.leave(beats)
        return False

    def _stand_by(self, wiring: Wiring, beats: Database, status: ApplierCondition) -> bool:
        """Wait until the owner is gone; return False when stopped before."""
        log.info("another applier maintains the stream tables; this one stands by")
        metrics.set_role("standby")
        status.is_standby = self._has_stood_by = True
        with suppress(Infrastructure, psycopg.Error):
            self._ownership.beat(beats, "standby")
        wiring.warm_up()
        log.info("ready to take over")
        reason = StandBy(self._ownership, beats, status.beat).wait(self.stopping)
        if reason is None:
            return False
        log.warning("taking over", extra={"reason": reason})
        self._ownership.reason = reason
        return True

    def _release(self, owned: Database) -> bool:
        """Let a standby, if there is one, take over at once: it does what a clean stop would do. Return whether."""
        with suppress(Infrastructure, psycopg.Error):
            if self._ownership.has_standby(owned):
                log.info("the standby takes over", extra={"frontier": str(self._frontier)})
                self._given_up.set()
                self._ownership.release(owned)
                return True
        return False

    def _self_check_interval_s(self) -> float:
        return self.live_settings.settings.self_check_interval_s

    def _cancel_long_refreshes(self, parts: ApplierParts) -> None:
        """Their rows are not written; the next start computes them again."""
        for write in parts.writer.long_writes.stop():
            with write:
                # Whether it was committed or not: the next start compares the sinks with PostgreSQL.
                parts.writer.forget(write.result.refresh.table.id)
        if parts.computer.long_refreshes.has_any:
            self._runner.stop()
            parts.spark.sparkContext.cancelAllJobs()
        parts.computer.long_refreshes.stop()

    def _beside(self, run: Callable[[threading.Event], None]) -> None:
        """Run one of the threads; that the epoch has ended is for the main thread to report."""
        try:
            run(self.stopping)
        except AnotherApplier as error:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        self._failure = error
        self.stopping.set()

    def _loop(self, parts: ApplierParts, catalog: Catalog, database: Database, status: ApplierCondition) -> None:
        failures = 0
        reloaded_at = 0.0
        while not self.stopping.is_set():
            status.beat()
            if not self._wait(parts, hurry=bool(failures)):
                continue
            try:
                if time.monotonic() - reloaded_at >= IDLE_LOOK_S:
                    self.live_settings.reload(database)
                    reloaded_at = time.monotonic()
                parts.ingest.tend()
                with self._stages.stage("first_tick"):
                    self._serve(parts, catalog)
                failures = 0
                status.note_ready()
                self._stages.note_ready()
                self._ownership.lock.confirm()
            except (Infrastructure, psycopg.OperationalError) as error:
                if has_ended(error):
                    raise self._ownership.lost() from error
                pause = TICK_RETRY_S[min(failures, len(TICK_RETRY_S) - 1)]
                failures += 1
                metrics.TICK_RETRIES.inc()
                problem = str(error).splitlines()[0]
                status.note_failure(problem)
                log.warning("tick will be repeated", extra={"error": problem, "after_s": pause})
                self.stopping.wait(pause)
        if self._failure is not None:
            raise self._failure

    def _wait(self, parts: ApplierParts, *, hurry: bool) -> bool:
        """Wait until the frontier moves, a long refresh finishes or a schedule is due; return False when stopping."""
        long_refreshes, long_writes = parts.computer.long_refreshes, parts.writer.long_writes
        scheduled = parts.tables.seconds_to_next(
            datetime.now(UTC), lambda pgt_id: long_refreshes.is_running(pgt_id) or long_writes.is_writing(pgt_id)
        )
        parts.intake.wait(
            self._frontier,
            lambda: long_refreshes.has_finished or long_writes.has_finished or self.stopping.is_set(),
            TICK_RETRY_S[0] if hurry or self._is_pressing(parts) else min(IDLE_LOOK_S, max(scheduled, SHORTEST_WAIT_S)),
        )
        return not self.stopping.is_set()

    def _is_pressing(self, parts: ApplierParts) -> bool:
        """Whether to look again soon, though no row arrives: everything is to be drained, a commit is under way, or
        refreshes gave way to others."""
        return self._requested is Service.DRAIN or parts.vouch.has_waiting or parts.tables.has_deferred

    def _serve(self, parts: ApplierParts, catalog: Catalog) -> None:
        """Run a tick, unless the applier was drained and has to rest."""
        self._requested = catalog.service.requested_service()
        if self._requested is Service.REST:
            return
        if self._requested is Service.DRAIN and self._drain_to is None:
            # The local log says nothing about sources in another database: drain up to what has arrived.
            elsewhere = self.settings.sources_elsewhere
            self._drain_to = parts.intake.arrived if elsewhere else catalog.frontiers.log_end()
        self._tick(parts)
        if self._requested is Service.RUN:
            self._drain_to = None
            self._note("RUNNING", catalog.service)
        elif self._drain_to is not None and self._frontier >= self._drain_to and _is_drained(parts):
            self._drain_to = None
            self._note("DRAINED", catalog.service)

    def _note(self, state: str, service: ServiceState) -> None:
        """Write a new state of the applier to the catalog; DRAINED also when only its frontier is new."""
        noted = state, self._frontier if state == "DRAINED" else None
        if self._noted != noted:
            service.note(self.settings.slot, state, self._frontier)
            self._noted = noted

    def _tick(self, parts: ApplierParts) -> None:
        with self._tick_lock, metrics.TICK_SECONDS.time():
            before = count_jobs(parts.spark)
            frontier = run_tick(
                intake=parts.intake,
                vouch=parts.vouch,
                alterations=parts.alterations,
                tables=parts.tables,
                planner=parts.planner,
                computer=parts.computer,
                writer=parts.writer,
                failures=parts.failures,
                ignore_schedules=self._requested is Service.DRAIN,
            )
            after = count_jobs(parts.spark)
            metrics.SPARK_JOBS.set(after)
            if after > before:
                metrics.TICK_JOBS.set(after - before)
            if frontier > self._frontier:
                metrics.TICKS.inc()
            self._frontier = frontier
            metrics.FRONTIER.set(frontier.value)


def _is_drained(parts: ApplierParts) -> bool:
    """Whether every sink has received every delta and no refresh is running or being written."""
    is_busy = parts.computer.long_refreshes.has_any or parts.writer.long_writes.has_any
    return not is_busy and parts.downstream.is_drained(parts.tables.planned)
