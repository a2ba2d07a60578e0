"""An engine in; MERGEs into Delta, checkpoints and cleanup, one after the other on a background thread, out."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import psycopg
from deltalake.exceptions import DeltaError
from pyspark.errors import PySparkException

from applier import metrics
from applier.catalog.catalog import Catalog
from applier.catalog.checkpoints import Manifest
from applier.errors import Infrastructure
from applier.refresh.engine import Engine
from applier.trace.store import TraceStore
from shared_schema.lsn import Lsn

log = logging.getLogger(__name__)

LOOK_EVERY_S = 0.25

CHECKPOINT_RETRY_S = 5.0

IDLE_PER_WORK = 2
"""MERGEs take at most a third of the time: they share the cores with the ticks, for which users wait."""


@dataclass
class Maintenance:
    """Background work of one applier; `catalog` has a connection of its own."""

    engine: Engine
    store: TraceStore
    catalog: Catalog
    applier: str
    tick_lock: threading.Lock
    """Held by every tick: another holder reads the state between two ticks."""
    delta_interval_s: float
    checkpoint_rows: int
    tidy_interval_s: float
    delta_retention_hours: int
    history_retention_days: int
    max_buffer_rows: int
    on_failure: Callable[[BaseException], None]

    def run(self, stopping: threading.Event) -> None:
        """Work until `stopping` is set; report a failure to the main thread, which then stops the applier."""
        next_flush = time.monotonic() + self.delta_interval_s
        tidied = time.monotonic()
        try:
            while not stopping.wait(LOOK_EVERY_S):
                if (began := time.monotonic()) >= next_flush:
                    self.flush_delta()
                    took = time.monotonic() - began
                    next_flush = time.monotonic() + max(self.delta_interval_s, took * IDLE_PER_WORK)
                if self._is_checkpoint_due():
                    self._try_checkpoint(stopping)
                if time.monotonic() - tidied >= self.tidy_interval_s:
                    self._tidy()
                    tidied = time.monotonic()
        except BaseException as error:
            self.on_failure(error)
            raise

    def _is_checkpoint_due(self) -> bool:
        """Not while a long refresh reads the traces: the second checkpoint from now would release its base."""
        return not self.engine.long_refreshes.is_reading_traces and any(
            trace.overlay_rows >= self.checkpoint_rows for trace in self.engine.traces
        )

    def _try_checkpoint(self, stopping: threading.Event) -> None:
        try:
            self.checkpoint()
        except (Infrastructure, psycopg.OperationalError, PySparkException, DeltaError, OSError) as error:
            # Nothing refers to the written files yet: the manifest is written last.
            log.exception("checkpoint failed, it will be repeated", extra={"error": str(error)[:300]})
            stopping.wait(CHECKPOINT_RETRY_S)

    def _tidy(self) -> None:
        with self.tick_lock:
            tables = list(self.engine.planned.values())
        if self.engine.sinks.delta_sink:
            self.engine.sinks.delta_sink.tidy(tables, self.delta_retention_hours)
        try:
            self.catalog.history.prune(self.history_retention_days)
        except (Infrastructure, psycopg.OperationalError) as error:
            log.warning("history could not be pruned", extra={"error": str(error).splitlines()[0]})

    def flush_delta(self) -> None:
        """MERGE the queued deltas; suspend a stream table when another program wrote to its Delta table."""
        for table, error in self.engine.sinks.delta_sink.flush() if self.engine.sinks.delta_sink else []:
            log.error("stream table suspended", extra={"table": str(table), "error": error.problem})
            self.catalog.stream_tables.suspend(table.id, error)
            metrics.SUSPENSIONS.inc()

    def checkpoint(self) -> None:
        """Write the traces at a frontier that every sink has passed, then the manifest, then use the new bases."""
        if self._lowest_frontier(delta_written=True) <= self.engine.sinks.manifest.frontier:
            return
        self.flush_delta()
        with self.tick_lock:
            frontier = self._lowest_frontier()
            sinks = {
                str(t.id): {sink: str(at) for sink, at in self.engine.sinks.durable_frontiers(t).items()}
                for t in self.engine.planned.values()
            }
        if frontier <= self.engine.sinks.manifest.frontier:
            return
        with self.engine.inbox_lock:
            offsets = self.engine.inbox.restart_offsets(frontier)
        bases = [(trace, self.store.append(trace, frontier)) for trace in self.engine.traces]
        entries = [self.store.entry(trace, base) for trace, base in bases]
        manifest = Manifest(frontier, offsets, entries, sinks)
        self.catalog.checkpoints.save(self.applier, manifest)
        with self.tick_lock:
            # Between two ticks: the planner of refreshes depends on what the traces hold.
            for trace, base in bases:
                trace.rebase(base)
        self.engine.sinks.manifest = manifest
        metrics.CHECKPOINTS.inc()
        log.info("traces checkpointed", extra={"frontier": str(frontier), "traces": len(bases)})

    def _lowest_frontier(self, *, delta_written: bool = False) -> Lsn:
        """Return the frontier of the last tick, or an older one that a sink or a stream table still needs."""
        engine = self.engine
        needed = [table_delta.lsn_range.lower for _, table_delta in list(engine.sinks.unpublished)]
        if engine.sinks.delta_sink and not delta_written:
            needed += [
                engine.sinks.delta_sink.frontier(t)
                for t in engine.planned.values()
                if not engine.sinks.delta_sink.is_idle(t.id)
            ]
        # The frontier of a stream table that is not due yet is only in PostgreSQL. With more than max_buffer_rows the
        # checkpoint does not wait for it: its next refresh is then FULL.
        not_due = [row.lsn for row in self.catalog.stream_tables.all() if row.lsn and row.pgt_id in engine.planned]
        if sum(trace.overlay_rows for trace in engine.traces) <= self.max_buffer_rows:
            needed += not_due
        return min([engine.frontier, *needed])
