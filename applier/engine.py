"""The ports of a tick, wired to the real world: inbox, traces, Spark, PostgreSQL, Kafka and Delta."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime

from pyspark.sql import SparkSession

from applier import metrics
from applier.apply.contents import Contents
from applier.apply.delta_lake import DeltaSink
from applier.apply.postgres import PostgresSink
from applier.compute import compute
from applier.errors import AnotherApplier, Infrastructure, SourceChanged
from applier.plan.nodes import Scan, scans
from applier.publish.topic import Publisher
from applier.registry import Registered, Registry
from applier.state.states import States
from applier.stream_table import Status, StreamTable, TableDelta
from applier.tick import Outcome
from applier.trace.inbox import Inbox
from applier.trace.store import Manifest
from applier.trace.traces import Traces, WindowInputs
from shared_schema.errors import TrickleError
from shared_schema.lsn import ORIGIN, Lsn, Window
from shared_schema.progress import Capture, epoch
from shared_schema.table_schema import Column

log = logging.getLogger(__name__)

Definer = Callable[[Registered], StreamTable]
"""A stored definition -> its plan; a TrickleError says why it has none."""


@dataclass
class Engine:
    """State between ticks. Everything here can be lost: it is rebuilt from the sinks, the checkpoint and Kafka."""

    spark: SparkSession
    registry: Registry
    define: Definer
    inbox: Inbox
    inbox_lock: threading.Condition
    columns_of: Callable[[Capture], tuple[Column, ...]]
    traces: Traces
    states: States
    postgres: PostgresSink
    open_publisher: Callable[[], Publisher] | None
    """None when nothing is to be published."""
    delta_sink: DeltaSink | None
    manifest: Manifest
    workers: ThreadPoolExecutor
    frontier: Lsn = ORIGIN
    """Of the last whole tick."""
    publisher: Publisher | None = None
    defined: dict[int, StreamTable] = field(default_factory=dict)
    caught_up: set[int] = field(default_factory=set)
    unpublished: list[tuple[StreamTable, TableDelta]] = field(default_factory=list)
    _fingerprints: dict[int, str | None] = field(default_factory=dict)
    """Of the relations the defined stream tables read, as they were when last looked at."""
    _asked: set[tuple[int, int]] = field(default_factory=set)
    """Stream table and source: captures asked for because a column was missing."""
    _partial: set[int] = field(default_factory=set)
    """Stream tables whose last progressive window was cut off by a crash."""
    _inputs: dict[Window, WindowInputs] = field(default_factory=dict)
    """Of the current tick: stream tables that read the same relations share their frames."""
    _inputs_lock: threading.Lock = field(default_factory=threading.Lock)

    def take_in(self) -> Lsn:
        """Inbox -> traces."""
        self._close_inputs()
        with self.inbox_lock:
            frontier = self.inbox.advance()
            captures, arrivals = list(self.inbox.captures.values()), self.inbox.take()
        for capture in captures:
            trace = self.traces.get(capture.table)
            if trace is None or trace.captured_at < capture.snapshot_lsn:
                self.traces.capture(capture, self.columns_of(capture))
        self.traces.append(arrivals)
        metrics.ROWS_IN.inc(sum(len(rows) for rows in arrivals.values()))
        return frontier

    def _close_inputs(self) -> None:
        for inputs in self._inputs.values():
            inputs.__exit__()
        self._inputs.clear()

    def stream_tables(self) -> list[tuple[Registered, StreamTable]]:
        """Definitions as stored now; a new one is understood here or suspended."""
        rows = self.registry.stream_tables()
        self._forget_dropped({row.pgt_id for row in rows})
        self._partial = {row.pgt_id for row in rows if row.partial}
        in_service = [row for row in rows if row.state in (Status.INITIALIZING, Status.ACTIVE)]
        self._notice_changed_sources()
        tables = []
        for row in in_service:
            try:
                if row.pgt_id not in self.defined:
                    self.defined[row.pgt_id] = self.define(row)
                    log.info("stream table defined", extra={"table": str(row.table), "pgt_id": row.pgt_id})
                tables.append((row, self.defined[row.pgt_id]))
            except TrickleError as error:
                if error.retryable:
                    raise
                self.suspend(row, error)
        metrics.STREAM_TABLES.set(len(tables))
        return tables

    def _notice_changed_sources(self) -> None:
        """What reads an altered source is defined anew: its query may mean something else now, or nothing."""
        sources = {scan.relid for table in self.defined.values() for scan in scans(table.plan.root)}
        now = self.registry.fingerprints(sources)
        altered = {relid for relid in sources if self._fingerprints.setdefault(relid, now.get(relid)) != now.get(relid)}
        for table in [t for t in self.defined.values() if any(s.relid in altered for s in scans(t.plan.root))]:
            log.info("source was altered, stream table is defined anew", extra={"table": str(table)})
            del self.defined[table.id]
        self._fingerprints = {relid: now.get(relid) for relid in sources}

    def _forget_dropped(self, existing: set[int]) -> None:
        for gone in self.defined.keys() - existing:
            del self.defined[gone]
            self.states.forget(gone)
            self._ask_again(gone)

    def ready(self, registered: Registered, table: StreamTable, frontier: Lsn) -> bool:
        """Whether everything it reads is known as of the frontier.

        A column that was not captured is asked for once; what is then still missing is SourceChanged, and so is a
        column that is no longer the one the stream table's rows were computed with.
        """
        return all([self._known(registered, scan, frontier) for scan in scans(table.plan.root)])

    def _known(self, registered: Registered, scan: Scan, frontier: Lsn) -> bool:
        trace = self.traces.get(scan.table)
        if trace is None:
            return False
        if trace.relid != scan.relid:
            if registered.lsn:
                raise SourceChanged(
                    f"table {scan.table} was dropped and created again", hint="drop and create the stream table"
                )
            return False
        if registered.lsn and not self.traces.knows(scan, registered.lsn):
            raise self.traces.reason(scan)
        if self.traces.knows(scan, frontier):
            return True
        if self.traces.coming(scan, frontier):
            return False
        if self.registry.recapture_epoch(scan.relid) > epoch(trace.membership):
            return False
        if registered.lsn or (registered.pgt_id, scan.relid) in self._asked:
            raise self.traces.reason(scan)
        self._asked.add((registered.pgt_id, scan.relid))
        log.info("source is captured anew", extra={"table": str(registered.table), "source": str(scan.table)})
        self.registry.request_recapture(scan.relid)
        return False

    def catch_up(self, table: StreamTable, at: Lsn) -> None:
        """Give the topic and Delta what they missed when the last run ended."""
        if table.id in self.caught_up:
            return
        missed: dict[Lsn, list[TableDelta]] = {}
        for sink, durable in self.durable(table).items():
            since = self._since(table, sink, durable, at)
            if since not in missed:
                missed[since] = self._missed(table, since, at)
            for delta in missed[since]:
                self._hand_on(table, delta, (sink,))
        self.caught_up.add(table.id)

    def durable(self, table: StreamTable) -> dict[str, Lsn]:
        """Up to where each sink behind PostgreSQL has the stream table."""
        frontiers: dict[str, Lsn] = {}
        if publisher := self.current_publisher():
            frontiers["topic"] = publisher.frontier(table)
        if self.delta_sink:
            frontiers["delta"] = self.delta_sink.frontier(table)
        return frontiers

    def _hand_on(self, table: StreamTable, delta: TableDelta, sinks: Sequence[str] = ("topic", "delta")) -> None:
        if "topic" in sinks and self.open_publisher:
            self.unpublished.append((table, delta))
        if "delta" in sinks and self.delta_sink:
            self.delta_sink.add(table, delta)

    def _since(self, table: StreamTable, sink: str, durable: Lsn, at: Lsn) -> Lsn:
        """From where a sink misses something; it may be up to date."""
        if durable > at:
            raise AnotherApplier(
                f"the {sink} sink of {table} stands at {durable}, beyond PostgreSQL's {at}",
                hint="was the database restored from a backup? drop the stream table and create it again",
            )
        # Nothing changed between a sink's last commit and the checkpoint that recorded it.
        recorded = self.manifest.sinks.get(str(table.id), {}).get(sink)
        since = max(durable, self.manifest.frontier) if recorded == str(durable) and durable else durable
        if since < at:
            log.info("sink catches up", extra={"table": str(table), "sink": sink, "since": str(since), "to": str(at)})
        return since

    def _missed(self, table: StreamTable, since: Lsn, at: Lsn) -> list[TableDelta]:
        """What happened in between: what was kept because it cannot be computed again, then what can."""
        if since >= at:
            return []
        kept = self.postgres.owed(table, since) if since else []
        since = max([since, *(delta.window.new for delta in kept)])
        if since >= at:
            return kept
        with self.traces.through(Window(since, at)) as inputs:
            last = compute(self.spark, table, inputs)
        return [*kept, last] if last is not None else kept

    def compute(self, work: Sequence[tuple[StreamTable, Window]]) -> Iterator[Outcome]:
        """Independent stream tables side by side: planning is most of a small query's time, and it uses one core."""
        return self.workers.map(self._compute, work)

    def _compute(self, work: tuple[StreamTable, Window]) -> Outcome:
        table, window = work
        if window.old and table.id not in self._partial and not self.traces.changed(table.sources, window):
            self.states.unchanged(table, window)
            return None
        with self._inputs_lock:
            if window not in self._inputs:
                self._inputs[window] = self.traces.through(window)
            inputs = self._inputs[window]
        try:
            with metrics.COMPUTE_SECONDS.time():
                delta = compute(self.spark, table, inputs, self.states)
                return self._with_whole(table, delta, window) if table.id in self._partial else delta
        except TrickleError as error:
            if error.retryable:
                raise
            return error

    def _with_whole(self, table: StreamTable, delta: TableDelta | None, window: Window) -> TableDelta:
        """A progressive window was cut off by a crash: PostgreSQL is to be compared with the whole content."""
        log.warning("stream table is compared with its whole content", extra={"table": str(table)})
        with self.traces.through(Window(ORIGIN, window.new)) as everything:
            content = compute(self.spark, table, everything)
        if content is None:
            raise AssertionError("a snapshot is never proven empty")
        rows = delta.rows if delta is not None else content.rows.slice(0, 0)
        return TableDelta(window, rows, content.rows)

    def replace(
        self, table: StreamTable, window: Window, contents: Contents, as_of: datetime, reason: str = "replace"
    ) -> TableDelta:
        """Make the stream table hold `contents` as of the window's end; only rows that differ reach any of the sinks.

        The window begins at the stream table's frontier and must end after it. What differs is returned, and kept until
        every sink has it: neither another query nor a full refresh can be computed again from a window.
        """
        waiting = [d for t, d in self.unpublished if t.id == table.id]
        if self.delta_sink:
            waiting += self.delta_sink.waiting(table.id)
        durable = self.durable(table)
        with self._asking_again(table.id):
            delta = self.postgres.replace(
                table,
                contents,
                window,
                as_of,
                reason,
                also_owed=list({d.window: d for d in waiting}.values()),
                settled=min(durable.values()) if durable else None,
            )
        self._hand_on(table, delta)
        self.caught_up.add(table.id)
        return delta

    def write_back(self, table: StreamTable, delta: TableDelta, as_of: datetime) -> None:
        """PostgreSQL first: from its commit on the delta is owed to the others."""
        started = time.monotonic()
        reason = "repair" if delta.whole is not None else "fill" if delta.is_fill else "changes"
        with self._asking_again(table.id):
            self.postgres.apply(table, delta, as_of, reason)
        metrics.APPLY_SECONDS.observe(time.monotonic() - started)
        metrics.ROWS_OUT.labels(str(table)).inc(delta.count)
        self._hand_on(table, replace(delta, whole=None))
        self.caught_up.add(table.id)
        extra = {"table": str(table), "frontier": str(delta.window.new), "rows": delta.count}
        log.log(logging.INFO if delta.is_fill else logging.DEBUG, "stream table refreshed", extra=extra)

    def advance(self, unchanged: list[int], window: Window, as_of: datetime) -> None:
        """Frontiers of stream tables without changes, together."""
        self.registry.advance_unchanged(unchanged, window.old, window.new, as_of)

    def publish(self) -> None:
        """One Kafka transaction; what could not be published stays owed."""
        if not self.unpublished or (publisher := self.current_publisher()) is None:
            return
        owed = [(t, d) for t, d in self.unpublished if publisher.frontier(t) < d.window.new]
        try:
            publisher.publish(owed)
        except Infrastructure:
            # A new one finds out whether the transaction was committed after all.
            self.publisher = None
            raise
        self.unpublished.clear()

    def current_publisher(self) -> Publisher | None:
        """The publisher in use, opened again after it failed; None when nothing is to be published."""
        if self.publisher is None and self.open_publisher is not None:
            self.publisher = self.open_publisher()
        return self.publisher

    @contextmanager
    def _asking_again(self, table_id: int) -> Iterator[None]:
        """A commit that failed may have arrived: then the next tick asks the sinks themselves where they stand."""
        try:
            yield
        except Infrastructure:
            self._ask_again(table_id)
            raise

    def _ask_again(self, table_id: int) -> None:
        self.caught_up.discard(table_id)
        self.unpublished = [(t, d) for t, d in self.unpublished if t.id != table_id]
        if self.delta_sink:
            self.delta_sink.forget(table_id)

    def suspend(self, table: Registered, error: TrickleError) -> None:
        """Out of service, with the reason where people look."""
        log.error("stream table suspended", extra={"table": str(table.table), "error": error.problem})
        self.registry.suspend(table.pgt_id, error)
        metrics.SUSPENSIONS.inc()
