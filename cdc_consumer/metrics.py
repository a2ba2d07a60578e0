"""What the consumer counts, and how it is: alive while its loop turns, ready once it streams."""

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
"""The loop turns many times a second; one that has not for this long is stuck."""


class Metrics:
    """What the consumer counts; one object per process, passed down."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.settled = False
        """Whether it streams and every table found at its start is copied."""
        self._state = "connecting"
        """What it does while it is not settled."""
        self.source_problem: str | None = None
        self.sink_problem: str | None = None
        """Why the other side does not answer, when it was last looked at."""
        self._late = False
        self.standby = False
        """Whether another instance streams from the slot and this one waits for it to end."""
        self._beat = time.monotonic()
        name, registry = "pg_trickle_cdc", self.registry
        self._rows = Counter(f"{name}_rows", "Change rows produced", ["table", "op"], registry=registry)
        self._children: dict[tuple[TableId, Op], Counter] = {}
        self.transactions = Counter(f"{name}_transactions", "Source commits published", registry=registry)
        self.publications = Counter(f"{name}_publishes", "Kafka transactions committed", registry=registry)
        self.deduplicated = Counter(
            f"{name}_deduplicated", "Source commits dropped because the topics held them", registry=registry
        )
        self.table_rows: dict[TableId, int] = {}
        """Change rows produced so far."""
        self._rates = Gauge(
            f"{name}_table_rows_per_second", "Change rows of a table over the last second", ["table"], registry=registry
        )
        self.hot_sources = Gauge(f"{name}_hot_sources", "Tables written fast enough for the ring", registry=registry)
        self.ring_frames = Gauge(f"{name}_ring_frames", "Messages waiting in memory for the sink", registry=registry)
        self.spill_bytes = Gauge(f"{name}_spill_bytes", "Bytes waiting on local disk for the sink", registry=registry)
        self.spilled = Counter(f"{name}_spilled_bytes", "Bytes written to local disk", registry=registry)
        self.captured_rows = Counter(f"{name}_captured_rows", "Rows copied by captures", ["table"], registry=registry)
        self.copy_rows_left = Gauge(
            f"{name}_copy_rows_left", "Rows a running copy expects still to read", ["table"], registry=registry
        )
        self.captures = Gauge(f"{name}_captured_tables", "Tables captured", registry=registry)
        self.reconnects = Counter(f"{name}_reconnects", "Sessions begun again after an error", registry=registry)
        self._standing_by = Gauge(f"{name}_standby", "1 while another instance has the slot", registry=registry)
        self.publish_seconds = Histogram(
            f"{name}_publish_seconds",
            "From the end of a batch to its Kafka commit",
            buckets=(0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.25, 1, 5),
            registry=registry,
        )
        self.poll_seconds = Histogram(
            f"{name}_poll_seconds",
            "Time to decode what one poll of the server brought and to hand it on",
            buckets=(0.001, 0.005, 0.02, 0.05, 0.06, 0.1, 0.25, 1, 5),
            registry=registry,
        )
        self.messages = Counter(f"{name}_messages", "Messages received from the server", registry=registry)
        self.retries = Counter(f"{name}_retries", "What was tried again after an error", ["what"], registry=registry)
        self.unpublished: tuple[int, int] = (0, 0)
        """Source commits received and not published, and the commit time in microseconds of the oldest."""
        self._unacknowledged = Gauge(
            f"{name}_unacknowledged_commits", "Source commits received and not acknowledged", registry=registry
        )
        self._lag_seconds = Gauge(
            f"{name}_lag_seconds", "Age of the oldest commit received and not on the topics", registry=registry
        )
        self._behind = Gauge(f"{name}_behind", "1 while it falls behind the server", registry=registry)
        self.last_error: tuple[float, str] | None = None
        """When a session last broke, and why."""
        self.server_position = Lsn(0)
        """Where the server's log ended when it was last looked at."""
        self._lag_bytes = Gauge(f"{name}_lag_bytes", "Log not yet on the topics", registry=registry)
        self._received = Gauge(f"{name}_received_lsn", "Everything before it was received", registry=registry)
        self._published = Gauge(f"{name}_published_lsn", "Frontier of the topics", registry=registry)
        self._acknowledged = Gauge(f"{name}_acknowledged_lsn", "Flush position the server knows", registry=registry)
        self.slot = SlotGauges(name, registry)
        self._show_more(name, registry)

    def _show_more(self, name: str, registry: CollectorRegistry) -> None:
        """How both ends are, and what waits where."""
        for gauge, text, holds in (
            ("ready", "1 while it does its work, as /readyz says", lambda: self.ready and self.alive),
            ("source_reachable", "1 while the server answers", lambda: self.source_problem is None),
            ("sink_reachable", "1 while the place where change rows go answers", lambda: self.sink_problem is None),
        ):
            Gauge(f"{name}_{gauge}", text, registry=registry).set_function(holds)
        self.last_message = Gauge(
            f"{name}_last_message_timestamp_seconds", "When the server last sent something", registry=registry
        )
        self.last_transaction = Gauge(
            f"{name}_last_transaction_id", "Of the last source commit published", registry=registry
        )
        self.ring_slots = Gauge(f"{name}_ring_slots", "Messages the ring may keep in memory", registry=registry)
        self.copying = Gauge(f"{name}_copying_tables", "Tables being copied or next in line", registry=registry)
        self.spool_bytes = Gauge(
            f"{name}_spool_bytes", "Changes of tables being copied that wait on local disk", registry=registry
        )

    def rows(self, table: TableId, op: Op, number: int) -> None:
        """Count produced rows."""
        place = (table, op)
        child = self._children.get(place)
        if child is None:
            child = self._children[place] = self._rows.labels(str(table), op.value)
        child.inc(number)
        self.table_rows[table] = self.table_rows.get(table, 0) + number

    def rate(self, table: TableId, rows_per_s: float) -> None:
        """How fast a table is written."""
        self._rates.labels(str(table)).set(rows_per_s)

    def positions(self, received: Lsn, published: Lsn, acknowledged: Lsn, *, behind: bool = False) -> None:
        """Where the stream stands."""
        self._lag_bytes.set(max(0, max(self.server_position, received).value - acknowledged.value))
        commits, oldest_us = self.unpublished
        self._unacknowledged.set(commits)
        self._lag_seconds.set(max(0.0, time.time() - oldest_us / 1_000_000) if commits else 0.0)
        self._behind.set(behind)
        self._late = behind
        self._received.set(received.value)
        self._published.set(published.value)
        self._acknowledged.set(acknowledged.value)

    def beat(self) -> None:
        """The loop is alive."""
        self._beat = time.monotonic()

    @property
    def quiet_s(self) -> float:
        """How long ago the loop was last alive."""
        return time.monotonic() - self._beat

    @property
    def alive(self) -> bool:
        """Whether the loop turned lately."""
        return self.quiet_s < ALIVE_WITHIN_S

    @property
    def ready(self) -> bool:
        """Whether it does its work: settled, both sides answer, and it keeps up."""
        return not self.reason

    @property
    def reason(self) -> str:
        """Why it is not ready; empty when it is."""
        if not self.settled:
            return self._state
        late = "it falls behind the server" if self._late else ""
        return self.source_problem or self.sink_problem or late

    def stand_by(self, pid: int) -> None:
        """Another instance, served by this server process, has the slot."""
        self.standby, self.settled = True, False
        self._state = f"standing by, the slot is streamed by server process {pid}"
        self._standing_by.set(1)
        self.beat()

    def take_over(self) -> None:
        """The slot is ours."""
        self.standby, self._state = False, "loading tables"
        self._standing_by.set(0)

    def lose_session(self, problem: str) -> None:
        """The session broke and is begun again."""
        self.standby = self.settled = self._late = False
        self._state = f"beginning again: {problem}"
        self._standing_by.set(0)
        self.reconnects.inc()
        self.retries.labels("session").inc()
        self.last_error = time.time(), problem

    def report(self) -> dict[str, Any]:
        """What `pg-trickle-cdc status` asks a running instance."""
        at, problem = self.last_error or (None, None)
        return {
            "ready": self.ready and self.alive,
            "standby": self.standby,
            "blocked": self.reason or None,
            "last_error": problem,
            "last_error_at": at and datetime.datetime.fromtimestamp(at, datetime.UTC).isoformat(timespec="seconds"),
            "reconnects": int(self.reconnects._value.get()),
        }
