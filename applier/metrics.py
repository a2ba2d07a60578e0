"""The metrics of the applier with their help texts, and the condition that its health endpoints report."""

from __future__ import annotations

import time

from prometheus_client import Counter, Gauge, Histogram

ALIVE_WITHIN_S = 600.0
"""A tick may compute for minutes (a large initial fill); one that takes longer is stuck."""

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
SUSPENSIONS = Counter("pg_trickle_suspensions_total", "Stream tables suspended")
TICK_RETRIES = Counter("pg_trickle_tick_retries_total", "Ticks repeated because a service was not available")
ARRANGED_BYTES = Gauge("pg_trickle_arranged_bytes", "Bytes of all arrangements, after filters")
STATES_COMPUTED = Counter("pg_trickle_states_computed_total", "Times the state of a stream table was computed")
OPEN_LEASES = Gauge("pg_trickle_open_leases", "Leases on deltas that sinks or refreshes still hold")
CHECKPOINTS = Counter("pg_trickle_checkpoints_total", "Checkpoints of the traces")
DELTA_DIVERGED = Counter("pg_trickle_delta_diverged_total", "Delta writes that found other rows than expected")
DELTA_FAILURES = Counter("pg_trickle_delta_failures_total", "Delta writes that failed and are repeated")
SELF_CHECKS = Counter("pg_trickle_self_checks_total", "Self-checks of stream tables", ["stream_table", "outcome"])
SELF_CHECK_DIFFERENT = Gauge(
    "pg_trickle_self_check_different", "1 if the last self-check found a difference to the query", ["stream_table"]
)


class ApplierCondition:
    """Alive while the main loop runs, ready after the first tick."""

    def __init__(self) -> None:
        self.ready = False
        self.reason = "no tick has finished yet"
        self._beat = time.monotonic()

    def note_ready(self) -> None:
        """Note that a tick has finished."""
        self.ready = True

    def beat(self) -> None:
        """Note that the main loop ran once more."""
        self._beat = time.monotonic()

    @property
    def alive(self) -> bool:
        """Whether the main loop ran within the last ALIVE_WITHIN_S."""
        return time.monotonic() - self._beat < ALIVE_WITHIN_S
