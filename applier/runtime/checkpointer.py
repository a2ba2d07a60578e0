"""The traces and the frontiers of all sinks in; checkpoints, at frontiers that every sink has passed, out."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass

from applier import metrics
from applier.arrange.traces import Traces
from applier.catalog.catalog import Catalog
from applier.catalog.checkpoints import Manifest
from applier.plan.stream_table import StreamTable
from applier.refresh.computing.long_refreshes import LongRefreshes
from applier.refresh.intake import Intake
from applier.refresh.stream_tables import StreamTables
from applier.refresh.writing.catch_up import CatchUp, LatestCheckpoint
from applier.refresh.writing.long_writes import LongWrites
from applier.sinks.delta_lake.sink import DeltaSink
from applier.sinks.downstream import Downstream
from applier.trace.store import TraceStore
from applier.trace.trace import Base, Trace
from shared_schema.lsn import Lsn

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CheckpointSettings:
    """The settings of checkpoints."""

    checkpoint_rows: int
    """Rows that a trace holds in memory before a checkpoint."""
    max_buffer_rows: int
    """With more rows than this a checkpoint does not wait for stream tables that are not due."""


@dataclass(frozen=True)
class Checkpointer:
    """Writes checkpoints; `catalog` has a connection of its own."""

    applier: str
    store: TraceStore
    catalog: Catalog
    intake: Intake
    traces: Traces
    tables: StreamTables
    long_refreshes: LongRefreshes
    long_writes: LongWrites
    downstream: Downstream
    delta_sink: DeltaSink | None
    catch_up: CatchUp
    latest: LatestCheckpoint
    last_tick: Callable[[], Lsn]
    """Returns the frontier of the last finished tick."""
    tick_lock: threading.Lock
    """Held by every tick: another holder reads the state between two ticks."""
    settings: Callable[[], CheckpointSettings]
    has_lost_history: Callable[[], bool]
    """Returns whether the server lacks changes that the traces have: then its checkpoint stays the older one."""

    def is_due(self) -> bool:
        """Not while a long refresh reads the traces: the second checkpoint from now would release its base."""
        rows = self.settings().checkpoint_rows
        if self.has_lost_history() or self.long_refreshes.is_reading_traces:
            return False
        return any(trace.overlay_volume >= rows for trace in self.traces)

    def can_advance(self) -> bool:
        """Whether a checkpoint, once Delta has all deltas, would be later than the last one."""
        return self._lowest_frontier(delta_written=True) > self.latest.manifest.frontier

    def checkpoint(self) -> None:
        """Write the traces at a frontier that every sink has passed, then the manifest, then use the new bases."""
        with self.tick_lock:
            frontier = self._lowest_frontier()
            # A sink that was not compared with PostgreSQL yet may lack rows up to here. So may one whose stream table
            # is being written beside the ticks: the commit may have arrived, and its delta is not queued yet.
            sinks = {
                str(t.id): self._complete_frontiers(t, frontier)
                for t in self.tables.planned.values()
                if self.catch_up.lacks_since(t) is None and not self.long_writes.is_writing(t.id)
            }
        if frontier <= self.latest.manifest.frontier or self.has_lost_history():
            return
        offsets = self.intake.restart_offsets(frontier)
        bases: list[tuple[Trace, Base]] = []
        try:
            for trace in self.traces:
                bases.append((trace, self.store.append(trace, frontier)))
            with self.tick_lock:
                # Between two ticks: a capture changes several of the fields.
                entries = [self.store.entry(trace, base) for trace, base in bases]
            manifest = Manifest(frontier, offsets, entries, sinks)
            self._save(manifest)
        except BaseException:
            for trace, base in bases:
                trace.release(base)
            raise
        with self.tick_lock:
            # Between two ticks: the planner of refreshes depends on what the traces hold.
            for trace, base in bases:
                trace.rebase(base)
        self.latest.move_to(manifest)
        metrics.CHECKPOINTS.inc()
        log.info("traces checkpointed", extra={"frontier": str(frontier), "traces": len(bases)})

    def _complete_frontiers(self, table: StreamTable, until: Lsn) -> dict[str, str]:
        """Return the frontier of each sink that lacks no queued delta before `until`."""
        sinks = self.downstream.sinks
        return {
            sink: str(at)
            for sink, at in self.downstream.frontiers(table).items()
            if (lowest := sinks[sink].queue.lowest_frontier(table.id)) is None or lowest >= until
        }

    def _save(self, manifest: Manifest) -> None:
        """Store a manifest as the last one: in the catalog, then beside the traces."""
        self.catalog.checkpoints.save(self.applier, manifest)
        self.store.note_manifest(self.catalog.checkpoints.installation(), manifest)

    def _lowest_frontier(self, *, delta_written: bool = False) -> Lsn:
        """Return the frontier of the last tick, or an older one that a sink or a stream table still needs."""
        planned = self.tables.planned
        needed = [self.last_tick()]
        if self.delta_sink and not delta_written:
            sink = self.delta_sink
            needed += [sink.frontier(table) for table in planned.values() if not sink.queue.is_idle(table.id)]
        # The frontier of a stream table that is not due yet, paused or suspended is only in PostgreSQL. With more than
        # max_buffer_rows the checkpoint does not wait for it: its next refresh is then FULL. What an earlier checkpoint
        # has passed needs no more waiting.
        passed = self.latest.manifest.frontier
        if sum(trace.overlay_volume for trace in self.traces) <= self.settings().max_buffer_rows:
            needed += [row.lsn for row in self.catalog.stream_tables.all() if row.lsn and row.lsn >= passed]
            # Likewise what is not on its topic yet, which is queued in memory only: a crash then means all rows again.
            topics = self.downstream.topics
            if topics is not None and (unpublished := topics.queue.lowest_frontier()) is not None:
                needed.append(unpublished)
            # And the frontier of a sink that was not compared with PostgreSQL since the start.
            needed += [since for since in map(self.catch_up.lacks_since, planned.values()) if since]
        return min(needed)
