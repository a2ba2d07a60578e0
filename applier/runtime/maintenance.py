"""The work beside the ticks: MERGEs into Delta, checkpoints and cleanup, one after the other on a background thread."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import psycopg

from applier import metrics
from applier.catalog.catalog import Catalog
from applier.errors import Infrastructure
from applier.refresh.stream_tables import StreamTables
from applier.runtime.checkpointer import Checkpointer
from applier.sinks.delta_lake.sink import DeltaSink, TableError
from applier.unexpected import to_trickle_error
from shared_schema.alerts import AlertEvent

log = logging.getLogger(__name__)

MAINTENANCE_LOOK_EVERY_S = 0.25

CHECKPOINT_RETRY_S = 5.0

IDLE_PER_WORK = 2
"""MERGEs take at most a third of the time: they share the cores with the ticks, for which users wait."""


@dataclass(frozen=True, slots=True)
class MaintenanceSettings:
    """How often the work is done, and how long old versions and rows stay."""

    delta_interval_s: float
    tidy_interval_s: float
    delta_retention_hours: int
    history_retention_days: int


@dataclass(frozen=True)
class Maintenance:
    """Background work of one applier; `catalog` has a connection of its own."""

    checkpointer: Checkpointer
    delta_sink: DeltaSink | None
    tables: StreamTables
    catalog: Catalog
    tick_lock: threading.Lock
    """Held by every tick: another holder reads the state between two ticks."""
    settings: Callable[[], MaintenanceSettings]
    on_failure: Callable[[BaseException], None]
    _to_suspend: dict[int, TableError] = field(default_factory=dict)
    """The stream tables whose suspension is not in the catalog yet: it may be away."""

    def run(self, stopping: threading.Event) -> None:
        """Work until `stopping` is set; report a failure to the main thread, which then stops the applier."""
        next_flush = time.monotonic() + self.settings().delta_interval_s
        tidied = time.monotonic()
        try:
            while not stopping.wait(MAINTENANCE_LOOK_EVERY_S):
                if (began := time.monotonic()) >= next_flush:
                    self.flush_delta()
                    took = time.monotonic() - began
                    next_flush = time.monotonic() + max(self.settings().delta_interval_s, took * IDLE_PER_WORK)
                if self.checkpointer.is_due():
                    self._try_checkpoint(stopping)
                if time.monotonic() - tidied >= self.settings().tidy_interval_s:
                    self._tidy()
                    tidied = time.monotonic()
        except BaseException as error:
            self.on_failure(error)
            raise

    def _try_checkpoint(self, stopping: threading.Event) -> None:
        try:
            self.checkpoint()
        except Exception as error:
            # Nothing refers to the written files yet: the manifest is written last.
            problem = to_trickle_error("the checkpoint", error).problem
            log.warning("checkpoint failed, it will be repeated", extra={"error": problem})
            metrics.CHECKPOINT_FAILURES.inc()
            self._report_cleanup(f"the checkpoint of the traces failed: {problem}")
            stopping.wait(CHECKPOINT_RETRY_S)

    def _report_cleanup(self, detail: str, **about: str) -> None:
        self.catalog.service.alert(AlertEvent.CLEANUP_FAILURE, detail=detail, **about)

    def _tidy(self) -> None:
        settings = self.settings()
        with self.tick_lock:
            tables = list(self.tables.planned.values())
        if self.delta_sink:
            for name, problem in self.delta_sink.tidy(tables, settings.delta_retention_hours):
                self._report_cleanup(f"its Delta table could not be tidied: {problem}", stream_table=name)
        try:
            self.catalog.history.prune(settings.history_retention_days)
        except (Infrastructure, psycopg.OperationalError) as error:
            log.warning("history could not be pruned", extra={"error": str(error).splitlines()[0]})

    def flush_delta(self) -> None:
        """MERGE the queued deltas; suspend the stream tables whose Delta table cannot be written."""
        if self.delta_sink is None:
            return
        for table, error in self.delta_sink.flush():
            self._to_suspend[table.id] = table, error
            # When it is resumed, Delta is given what it lacks.
            self.checkpointer.downstream.forget(table.id)
        for table, error in list(self._to_suspend.values()):
            try:
                self.catalog.stream_tables.suspend(table.id, error)
            except (Infrastructure, psycopg.OperationalError) as away:
                log.warning("a suspension will be repeated", extra={"error": str(away).splitlines()[0]})
                return
            log.error("stream table suspended", extra={"table": str(table), "error": error.log_text})
            metrics.SUSPENSIONS.inc()
            del self._to_suspend[table.id]

    def checkpoint(self) -> None:
        """Write all deltas to Delta, then checkpoint the traces, if the frontier has moved since the last time."""
        if self.checkpointer.can_advance():
            self.flush_delta()
            self.checkpointer.checkpoint()
