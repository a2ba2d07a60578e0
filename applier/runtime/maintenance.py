"""What runs beside the ticks, one thing after the other on one thread: MERGEs into Delta, checkpoints, tidying."""

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
"""MERGEs take at most a third of the time: they share the cores with the ticks people wait for."""


@dataclass
class Maintenance:
    """Background work of one applier; `catalog` has a connection of its own."""

    engine: Engine
    store: TraceStore
    catalog: Catalog
    applier: str
    tick_lock: threading.Lock
    """Held by every tick, so that what is read under it is between two ticks."""
    delta_interval_s: float
    checkpoint_rows: int
    tidy_interval_s: float
    delta_retention_hours: int
    history_retention_days: int
    max_buffer_rows: int
    failed: Callable[[BaseException], None]

    def run(self, stopping: threading.Event) -> None:
        """Until told to stop; a failure is handed on, because a silent background thread is a silent loss."""
        next_flush = time.monotonic() + self.delta_interval_s
        tidied = time.monotonic()
        try:
            while not stopping.wait(LOOK_EVERY_S):
                if (began := time.monotonic()) >= next_flush:
                    self.flush_delta()
                    took = time.monotonic() - began
                    next_flush = time.monotonic() + max(self.delta_interval_s, took * IDLE_PER_WORK)
                if self._checkpoint_pays():
                    self._try_checkpoint(stopping)
                if time.monotonic() - tidied >= self.tidy_interval_s:
                    self._tidy()
                    tidied = time.monotonic()
        except BaseException as error:
            self.failed(error)
            raise

    def _checkpoint_pays(self) -> bool:
        """Not while a long refresh reads the traces: the base it reads would be released by the next but one."""
        return not self.engine.long_refreshes.reading_traces and any(
            trace.overlay_rows >= self.checkpoint_rows for trace in self.engine.traces
        )

    def _try_checkpoint(self, stopping: threading.Event) -> None:
        try:
            self.checkpoint()
        except (Infrastructure, psycopg.OperationalError, PySparkException, DeltaError, OSError) as error:
            # Nothing refers to what was written: the manifest comes last.
            log.exception("checkpoint failed, it will be tried again", extra={"error": str(error)[:300]})
            stopping.wait(CHECKPOINT_RETRY_S)

    def _tidy(self) -> None:
        with self.tick_lock:
            tables = list(self.engine.defined.values())
        if self.engine.sinks.delta_sink:
            self.engine.sinks.delta_sink.tidy(tables, self.delta_retention_hours)
        try:
            self.catalog.history.prune(self.history_retention_days)
        except (Infrastructure, psycopg.OperationalError) as error:
            log.warning("history could not be pruned", extra={"error": str(error).splitlines()[0]})

    def flush_delta(self) -> None:
        """MERGE what is queued; a stream table whose Delta table somebody wrote to is suspended."""
        for table, error in self.engine.sinks.delta_sink.flush() if self.engine.sinks.delta_sink else []:
            log.error("stream table suspended", extra={"table": str(table), "error": error.problem})
            self.catalog.stream_tables.suspend(table.id, error)
            metrics.SUSPENSIONS.inc()

    def checkpoint(self) -> None:
        """Write the traces as of a frontier that no sink will ever look behind, then the manifest, then use them."""
        if self._lowest_frontier(delta_written=True) <= self.engine.sinks.manifest.frontier:
            return
        self.flush_delta()
        with self.tick_lock:
            frontier = self._lowest_frontier()
            sinks = {
                str(t.id): {sink: str(at) for sink, at in self.engine.sinks.durable(t).items()}
                for t in self.engine.defined.values()
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
            # Between two ticks: a refresh is planned by what the traces still hold.
            for trace, base in bases:
                trace.rebase(base)
        self.engine.sinks.manifest = manifest
        metrics.CHECKPOINTS.inc()
        log.info("traces checkpointed", extra={"frontier": str(frontier), "traces": len(bases)})

    def _lowest_frontier(self, *, delta_written: bool = False) -> Lsn:
        """The last tick's, unless a sink still waits for something older."""
        engine = self.engine
        behind = [table_delta.lsn_range.lower for _, table_delta in list(engine.sinks.unpublished)]
        if engine.sinks.delta_sink and not delta_written:
            behind += [
                engine.sinks.delta_sink.frontier(t)
                for t in engine.defined.values()
                if not engine.sinks.delta_sink.idle(t.id)
            ]
        # A stream table that waits for its turn has its frontier in PostgreSQL only. Beyond max_buffer_rows it is not
        # waited for: then it is computed anew as a whole when its turn comes.
        waiting = [row.lsn for row in self.catalog.stream_tables.all() if row.lsn and row.pgt_id in engine.defined]
        if sum(trace.overlay_rows for trace in engine.traces) <= self.max_buffer_rows:
            behind += waiting
        return min([engine.frontier, *behind])
