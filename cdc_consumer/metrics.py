"""The metrics of the consumer. They are only written: whatever decides something reads `Health` or its own state."""

from __future__ import annotations

from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from cdc_consumer.health import Health, StandingBy
from cdc_consumer.slot_gauges import SlotGauges
from shared_schema.alerts import AlertEvent
from shared_schema.change_row import Op
from shared_schema.lsn import Lsn
from shared_schema.table_schema import TableId


class Metrics:
    """The metrics of one process; one object, passed down to all parts."""

    def __init__(self, health: Health) -> None:
        self.registry = CollectorRegistry()
        self._health = health
        name, registry = "pg_trickle_cdc", self.registry
        self._rows = Counter(f"{name}_rows", "Change rows produced", ["table", "op"], registry=registry)
        self._children: dict[tuple[TableId, Op], Counter] = {}
        self.transactions = Counter(f"{name}_transactions", "Source commits published", registry=registry)
        self.publications = Counter(f"{name}_publishes", "Kafka transactions committed", registry=registry)
        self.deduplicated = Counter(
            f"{name}_deduplicated", "Source commits dropped because the topics already held them", registry=registry
        )
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
        self._reconnects = Counter(f"{name}_reconnects", "Sessions restarted after an error", registry=registry)
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
        # The same name as in the other program: whoever sends it, it is one event.
        self.alerts = Counter(
            "pg_trickle_alerts", "Alerts sent to the channel pg_trickle_alert", ["event"], registry=registry
        )
        for event in AlertEvent:
            # A counter that begins at 1 has not increased, by Prometheus' rules.
            self.alerts.labels(event.value)
        self._unpublished: tuple[int, int] = (0, 0)
        """Source commits received and not published, and the commit time in microseconds of the oldest."""
        self._unacknowledged = Gauge(
            f"{name}_unacknowledged_commits", "Source commits received and not acknowledged", registry=registry
        )
        self._lag_seconds = Gauge(
            f"{name}_lag_seconds", "Age of the oldest commit received and not on the topics", registry=registry
        )
        self._lag_bytes = Gauge(f"{name}_lag_bytes", "Bytes of log after the acknowledged position", registry=registry)
        self._received = Gauge(f"{name}_received_lsn", "LSN before which everything was received", registry=registry)
        self._published = Gauge(f"{name}_published_lsn", "Frontier of the topics", registry=registry)
        self._acknowledged = Gauge(
            f"{name}_acknowledged_lsn", "Flush position acknowledged to the server", registry=registry
        )
        self.slot = SlotGauges(name, registry)
        self._add_state_gauges(name, registry, health)

    def _add_state_gauges(self, name: str, registry: CollectorRegistry, health: Health) -> None:
        """Add the gauges that show the health, and those for what waits in memory and on disk."""
        for gauge, text, is_true in (
            ("ready", "1 while the consumer is ready, as /readyz says", lambda: health.ready and health.alive),
            ("source_reachable", "1 while the server answers", lambda: health.source_problem is None),
            ("sink_reachable", "1 while the sink of the change rows answers", lambda: health.sink_problem is None),
            ("standby", "1 while this instance waits for the slot", lambda: isinstance(health.session, StandingBy)),
            ("behind", "1 while the consumer falls behind the server", lambda: health.is_behind),
        ):
            Gauge(f"{name}_{gauge}", text, registry=registry).set_function(is_true)
        for what, text in (
            ("source", "Seconds since the server answered a beat, -1 before the first"),
            ("broker", "Seconds since the broker confirmed a beat, -1 before the first"),
            ("applier", "Seconds since the applier's last beat, -1 if none was seen"),
        ):
            age = Gauge(f"{name}_{what}_beat_age_seconds", text, registry=registry)
            age.set_function(partial(health.age_of, what))
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

    def show_rate(self, table: TableId, rows_per_s: float) -> None:
        """Show how fast a table is written."""
        self._rates.labels(str(table)).set(rows_per_s)

    def show_unpublished(self, commits: int, oldest_us: int) -> None:
        """Show how many source commits wait to be published; `oldest_us` is the commit time of the oldest one."""
        self._unpublished = commits, oldest_us

    def show_positions(self, server: Lsn, received: Lsn, published: Lsn, acknowledged: Lsn) -> None:
        """Show the end of the server's log and the positions of the stream."""
        self._lag_bytes.set(max(0, server.value - acknowledged.value))
        commits, oldest_us = self._unpublished
        self._unacknowledged.set(commits)
        self._lag_seconds.set(max(0.0, self._health.source_now_s - oldest_us / 1_000_000) if commits else 0.0)
        self._received.set(received.value)
        self._published.set(published.value)
        self._acknowledged.set(acknowledged.value)

    def count_restart(self) -> None:
        """Count a session that failed and is restarted."""
        self._reconnects.inc()
        self.retries.labels("session").inc()
