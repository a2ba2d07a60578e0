"""Metrics and health of the consumer: alive while its loop runs, ready once it streams."""

from __future__ import annotations

import datetime
import time
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from cdc_consumer.slot_gauges import SlotGauges
from shared_schema.change_row import Op
from shared_schema.lsn import Lsn
from shared_schema.table_schema import TableId

ALIVE_WITHIN_S = 30.0
"""The loop runs many times a second; if it has not run for this long, it is stuck."""


class Metrics:
    """The metrics and the health of one process; one object, passed down to all parts."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.settled = False
        """Whether the consumer streams and every table found at its start is copied."""
        self._state = "connecting"
        """What the consumer does while it is not settled."""
        self.source_problem: str | None = None
        self.sink_problem: str | None = None
        """Why the source or the sink did not answer the last probe; None if it did."""
        self._is_behind = False
        self.standby = False
        """Whether this instance waits because another one streams from the slot."""
        self._beat = time.monotonic()
        name, registry = "pg_trickle_cdc", self.registry
        self._rows = Counter(f"{name}_rows", "Change rows produced", ["table", "op"], registry=registry)
        self._children: dict[tuple[TableId, Op], Counter] = {}
        self.transactions = Counter(f"{name}_transactions", "Source commits published", registry=registry)
        self.publications = Counter(f"{name}_publishes", "Kafka transactions committed", registry=registry)
        self.deduplicated = Counter(
            f"{name}_deduplicated", "Source commits dropped because the topics already held them", registry=registry
        )
        self.table_rows: dict[TableId, int] = {}
        """Change rows produced so far, by table."""
        self._rates = Gauge(
            f"{name}_table_rows_per_second", "Change rows of a table over the last second", ["table"], registry=registry
        )
        self.hot_sources = Gauge(
            f"{name}_hot_sources", "Tables that use the ring because of their write rate", registry=registry
        )
        self.ring_frames = Gauge(f"{name}_ring_frames", "Messages waiting in memory for the sink", registry=registry)
        self.spill_bytes = Gauge(f"{name}_spill_bytes", "Bytes waiting on local disk for the sink", registry=registry)
        self.spilled = Counter(f"{name}_spilled_bytes", "Bytes written to local disk", registry=registry)
        self.captured_rows = Counter(f"{name}_captured_rows", "Rows copied by captures", ["table"], registry=registry)
        self.copy_rows_left = Gauge(
            f"{name}_copy_rows_left",
            "Rows that a running copy still has to read, estimated",
            ["table"],
            registry=registry,
        )
        self.captures = Gauge(f"{name}_captured_tables", "Tables captured", registry=registry)
        self.reconnects = Counter(f"{name}_reconnects", "Sessions restarted after an error", registry=registry)
        self._standing_by = Gauge(f"{name}_standby", "1 while this instance waits for the slot", registry=registry)
        self.publish_seconds = Histogram(
            f"{name}_publish_seconds",
            "Time from the end of a batch to its Kafka commit",
            buckets=(0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.25, 1, 5),
            registry=registry,
        )
        self.poll_seconds = Histogram(
            f"{name}_poll_seconds",
            "Time to decode and write the messages of one poll of the server",
            buckets=(0.001, 0.005, 0.02, 0.05, 0.06, 0.1, 0.25, 1, 5),
            registry=registry,
        )
        self.messages = Counter(f"{name}_messages", "Messages received from the server", registry=registry)
        self.retries = Counter(f"{name}_retries", "Operations repeated after an error", ["what"], registry=registry)
        self.unpublished: tuple[int, int] = (0, 0)
        """Source commits received and not published, and the commit time in microseconds of the oldest."""
        self._unacknowledged = Gauge(
            f"{name}_unacknowledged_commits", "Source commits received and not acknowledged", registry=registry
        )
        self._lag_seconds = Gauge(
            f"{name}_lag_seconds", "Age of the oldest commit received and not on the topics", registry=registry
        )
        self._behind = Gauge(f"{name}_behind", "1 while the consumer falls behind the server", registry=registry)
        self.last_error: tuple[float, str] | None = None
        """When a session last failed, and why."""
        self.server_position = Lsn(0)
        """The end of the server's log when it was last read."""
        self._lag_bytes = Gauge(f"{name}_lag_bytes", "Bytes of log that are not yet on the topics", registry=registry)
        self._received = Gauge(f"{name}_received_lsn", "LSN before which everything was received", registry=registry)
        self._published = Gauge(f"{name}_published_lsn", "Frontier of the topics", registry=registry)
        self._acknowledged = Gauge(
            f"{name}_acknowledged_lsn", "Flush position acknowledged to the server", registry=registry
        )
        self.slot = SlotGauges(name, registry)
        self._add_state_gauges(name, registry)

    def _add_state_gauges(self, name: str, registry: CollectorRegistry) -> None:
        """Add the gauges for the state of source and sink, and for what waits in memory and on disk."""
        for gauge, text, is_true in (
            ("ready", "1 while the consumer is ready, as /readyz says", lambda: self.ready and self.alive),
            ("source_reachable", "1 while the server answers", lambda: self.source_problem is None),
            ("sink_reachable", "1 while the sink of the change rows answers", lambda: self.sink_problem is None),
        ):
            Gauge(f"{name}_{gauge}", text, registry=registry).set_function(is_true)
        self.last_message = Gauge(
            f"{name}_last_message_timestamp_seconds", "Time of the last message from the server", registry=registry
        )
        self.last_transaction = Gauge(
            f"{name}_last_transaction_id", "Transaction id of the last source commit published", registry=registry
        )
        self.ring_slots = Gauge(f"{name}_ring_slots", "Messages that the ring may hold in memory", registry=registry)
        self.copying = Gauge(
            f"{name}_copying_tables", "Tables that are being copied or wait for their copy", registry=registry
        )
        self.spool_bytes = Gauge(
            f"{name}_spool_bytes",
            "Bytes of changes that wait on local disk for the copy of their table",
            registry=registry,
        )

    def count_rows(self, table: TableId, op: Op, number: int) -> None:
        """Count produced rows."""
        label = (table, op)
        child = self._children.get(label)
        if child is None:
            child = self._children[label] = self._rows.labels(str(table), op.value)
        child.inc(number)
        self.table_rows[table] = self.table_rows.get(table, 0) + number

    def show_rate(self, table: TableId, rows_per_s: float) -> None:
        """Show how fast a table is written."""
        self._rates.labels(str(table)).set(rows_per_s)

    def show_positions(self, received: Lsn, published: Lsn, acknowledged: Lsn, *, behind: bool = False) -> None:
        """Show the positions of the stream."""
        self._lag_bytes.set(max(0, max(self.server_position, received).value - acknowledged.value))
        commits, oldest_us = self.unpublished
        self._unacknowledged.set(commits)
        self._lag_seconds.set(max(0.0, time.time() - oldest_us / 1_000_000) if commits else 0.0)
        self._behind.set(behind)
        self._is_behind = behind
        self._received.set(received.value)
        self._published.set(published.value)
        self._acknowledged.set(acknowledged.value)

    def beat(self) -> None:
        """Record that the loop is running."""
        self._beat = time.monotonic()

    @property
    def quiet_s(self) -> float:
        """Seconds since the loop last ran."""
        return time.monotonic() - self._beat

    @property
    def alive(self) -> bool:
        """Whether the loop ran recently."""
        return self.quiet_s < ALIVE_WITHIN_S

    @property
    def ready(self) -> bool:
        """Whether the consumer is settled, source and sink answer, and it keeps up with the server."""
        return not self.reason

    @property
    def reason(self) -> str:
        """Why the consumer is not ready; empty if it is ready."""
        if not self.settled:
            return self._state
        late = "the consumer falls behind the server" if self._is_behind else ""
        return self.source_problem or self.sink_problem or late

    def stand_by(self, pid: int) -> None:
        """Enter standby: another instance streams from the slot, through the server process `pid`."""
        self.standby, self.settled = True, False
        self._state = f"standing by: server process {pid} streams from the slot"
        self._standing_by.set(1)
        self.beat()

    def take_over(self) -> None:
        """Leave standby: this instance has the slot."""
        self.standby, self._state = False, "loading tables"
        self._standing_by.set(0)

    def lose_session(self, problem: str) -> None:
        """Record that the session failed and is restarted."""
        self.standby = self.settled = self._is_behind = False
        self._state = f"restarting the session: {problem}"
        self._standing_by.set(0)
        self.reconnects.inc()
        self.retries.labels("session").inc()
        self.last_error = time.time(), problem

    def report(self) -> dict[str, Any]:
        """Return what `/status` serves: `pg-trickle-cdc status` reads it from a running instance."""
        at, problem = self.last_error or (None, None)
        return {
            "ready": self.ready and self.alive,
            "standby": self.standby,
            "blocked": self.reason or None,
            "last_error": problem,
            "last_error_at": at and datetime.datetime.fromtimestamp(at, datetime.UTC).isoformat(timespec="seconds"),
            "reconnects": int(self.reconnects._value.get()),
        }
