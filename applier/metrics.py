"""The metrics of the applier with their help texts."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from prometheus_client import REGISTRY, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from shared_schema.alerts import AlertEvent

LABELLED_TABLES = 500
"""Most stream tables that have series of their own. Further ones share the label OTHERS."""

OTHERS = "(others)"

_LATENCY = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)

FRONTIER = Gauge("pg_trickle_frontier_lsn", "Frontier of the last whole tick, as a number")
TICKS = Counter("pg_trickle_ticks_total", "Ticks that advanced the frontier")
TICK_SECONDS = Histogram("pg_trickle_tick_seconds", "Time of one tick", buckets=_LATENCY)
TICK_JOBS = Gauge("pg_trickle_tick_spark_jobs", "Spark jobs started by the last tick that started any")
SPARK_JOBS = Gauge("pg_trickle_spark_jobs", "Spark jobs started since the applier started")
COMPUTE_SECONDS = Histogram("pg_trickle_compute_seconds", "Time that Spark computes one refresh", buckets=_LATENCY)
APPLY_SECONDS = Histogram("pg_trickle_apply_seconds", "Time that PostgreSQL writes one refresh", buckets=_LATENCY)
ROWS_IN = Counter("pg_trickle_change_rows_total", "Change rows added to traces")
ROWS_OUT = Counter("pg_trickle_delta_rows_total", "Net delta rows written", ["stream_table"])
STREAM_TABLES = Gauge("pg_trickle_stream_tables", "Stream tables in service")
SCHEMA_EVOLUTIONS = Counter("pg_trickle_schema_evolutions_total", "Changes of sources that stream tables followed")
ALERTS = Counter("pg_trickle_alerts_total", "Alerts sent to the channel pg_trickle_alert", ["event"])
for _event in AlertEvent:
    # A counter that begins at 1 has not increased, by Prometheus' rules.
    ALERTS.labels(_event.value)
BUFFERED_ROWS = Gauge("pg_trickle_buffered_rows", "Change rows held since the last checkpoint of the traces")
ROLE = Gauge("pg_trickle_applier_role", "1 for the role of this process: owner or standby", ["role"])
SUSPENSIONS = Counter("pg_trickle_suspensions_total", "Stream tables suspended")
TICK_RETRIES = Counter("pg_trickle_tick_retries_total", "Ticks repeated because a service was not available")
ARRANGED_BYTES = Gauge("pg_trickle_arranged_bytes", "Bytes of all arrangements, after filters")
STATES_COMPUTED = Counter("pg_trickle_states_computed_total", "Times the state of a stream table was computed")
STATES_RESTORED = Counter("pg_trickle_states_restored_total", "Times a state was read back after a start")
OPEN_LEASES = Gauge("pg_trickle_open_leases", "Leases on deltas that sinks or refreshes still hold")
CHECKPOINTS = Counter("pg_trickle_checkpoints_total", "Checkpoints of the traces")
CHECKPOINT_FAILURES = Counter(
    "pg_trickle_checkpoint_failures_total", "Checkpoints of the traces that failed and are repeated"
)
DELTA_DIVERGED = Counter("pg_trickle_delta_diverged_total", "Delta writes that found other rows than expected")
DELTA_FAILURES = Counter("pg_trickle_delta_failures_total", "Delta writes that failed and are repeated")
PUBLISHING_FAILURES = Counter(
    "pg_trickle_publishing_failures_total", "Attempts to publish that failed and are repeated"
)
SELF_CHECKS = Counter("pg_trickle_self_checks_total", "Self-checks of stream tables", ["stream_table", "outcome"])
SELF_CHECK_DIFFERENT = Gauge(
    "pg_trickle_self_check_different", "1 if the last self-check found a difference to the query", ["stream_table"]
)

CONSUMER_AGE = Gauge("pg_trickle_consumer_beat_age_seconds", "Seconds since the consumer's last beat, -1 if none came")
START_SECONDS = Gauge("pg_trickle_start_seconds", "Time that each stage of the last start took", ["stage"])
READY = Gauge("pg_trickle_ready", "1 while the applier is ready, as /readyz says")
COMMIT_TO_VISIBLE = Histogram(
    "pg_trickle_commit_to_visible_seconds",
    "Time from the first source commit of a refresh to its rows in a sink, by the source's clock",
    ["stream_table", "sink"],
    buckets=(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 3600.0),
)


def set_role(role: str) -> None:
    """Show the role of this process: owner or standby."""
    for known in ("owner", "standby"):
        ROLE.labels(known).set(known == role)


class StalenessGauge(Collector):
    """The staleness of each stream table, and how stale it may be.

    Both are read from the catalog every second; the staleness grows until the next time.
    """

    _STALENESS = "How long the oldest source commit that a stream table may lack has waited, by the source's clock"
    _ALLOWED = "How stale its SLA or its schedule lets a stream table become; none if it is frozen, paused or held"

    def __init__(self) -> None:
        self._read: tuple[float, dict[str, float], dict[str, float]] = 0.0, {}, {}
        REGISTRY.register(self)

    def set(self, seconds: Mapping[str, float], allowed: Mapping[str, float], now: float) -> None:
        """Replace all values; `now` is a monotonic clock. Stream tables that are not in them disappear."""
        stalest = dict(sorted(seconds.items(), key=lambda item: -item[1])[:LABELLED_TABLES])
        self._read = now, stalest, {name: allowed[name] for name in stalest if name in allowed}

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """Yield the present values."""
        read_at, seconds, allowed = self._read
        older = time.monotonic() - read_at
        staleness, most = self.describe()
        for name, value in seconds.items():
            staleness.add_metric([name], value + older)
        for name, value in allowed.items():
            most.add_metric([name], value)
        yield from (staleness, most)

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """Yield the metrics without values."""
        for name, text in (("staleness", self._STALENESS), ("allowed_staleness", self._ALLOWED)):
            yield GaugeMetricFamily(f"pg_trickle_{name}_seconds", text, labels=["stream_table"])


STALENESS = StalenessGauge()

_labelled: set[str] = set()


def name_of(table: str) -> str:
    """Return the label of a stream table; OTHERS once too many have series of their own."""
    if table not in _labelled and len(_labelled) >= LABELLED_TABLES:
        return OTHERS
    _labelled.add(table)
    return table


def forget(table: str) -> None:
    """Remove the series of a stream table that was dropped."""
    _labelled.discard(table)
    for metric in (ROWS_OUT, SELF_CHECKS, SELF_CHECK_DIFFERENT, COMMIT_TO_VISIBLE):
        metric.remove_by_labels({"stream_table": table})
